package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/api/generate"
)

// TestAnEmptyKeyWarns: a script whose variable was not set believed that a key was asked for.
func TestAnEmptyKeyWarns(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	empty, some, none := "", "a,b", (*string)(nil)
	for _, c := range []struct {
		key   *string
		warns bool
		keys  []string
	}{{&empty, true, nil}, {&some, false, []string{"a", "b"}}, {none, false, nil}} {
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		f := accessFlags{APIKey: c.key}
		f.warn()
		if got := strings.Contains(log.String(), "--api-key is empty"); got != c.warns || !slices.Equal(f.plainKeys(), c.keys) {
			t.Errorf("got warning %t and keys %v, want %t and %v", got, f.plainKeys(), c.warns, c.keys)
		}
	}
}

// TestTheNameInHostIsAllowed: on a loopback address the server answers to it.
func TestTheNameInHostIsAllowed(t *testing.T) {
	f := accessFlags{AllowedHost: "box.example, other", CORSOrigin: "https://a.example,http://b.example:3000"}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	a := f.access("my.machine")
	if !slices.Equal(a.Hosts, []string{"box.example", "other", "my.machine"}) || !slices.Equal(a.Origins, []string{"https://a.example", "http://b.example:3000"}) {
		t.Errorf("got %+v", a)
	}
	if a := f.access("::1"); slices.Contains(a.Hosts, "::1") {
		t.Errorf("got %+v", a)
	}
	for _, args := range []string{"--cors-origin a.example", "--allowed-host http://x", "--log-format xml", "--api-key ,"} {
		if status, _, said := invoke(strings.Fields(args)...); status != 2 {
			t.Errorf("%s: got status %d: %s", args, status, said)
		}
	}
}

// TestTheLogHasTimesInSeconds: with --log-format json the time to drain was a number of nanoseconds.
func TestTheLogHasTimesInSeconds(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	c := runCmd{ShutdownTimeout: 30 * time.Second}
	c.LogFormat = "json"
	slog.SetDefault(slog.New(c.handler(slog.LevelInfo, &log)))
	if err := c.drain(&http.Server{}, generate.NewModels()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), `"msg":"draining","timeout_seconds":30}`) {
		t.Errorf("got %s", &log)
	}
}
