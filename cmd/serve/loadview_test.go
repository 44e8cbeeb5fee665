package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
)

// viewed returns the output of a view for some stages of loading, one per second, with a line of the log
// in between.
func viewed(t *testing.T, terminal bool, stages ...dispatch.Loading) string {
	t.Helper()
	var out bytes.Buffer
	clock := time.Unix(1000, 0)
	v := &loadView{out: &out, terminal: terminal, now: func() time.Time { return clock }, begin: clock}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(v, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	defer slog.SetDefault(before)
	for i, l := range stages {
		if over, last := v.tell(l), i == len(stages)-1; over != last {
			t.Errorf("stage %d: over is %v", i, over)
		}
		if i == 0 {
			slog.Info("a request")
		}
		clock = clock.Add(3 * time.Second)
	}
	return out.String()
}

// TestLoadingIsShown: the terminal showed nothing from the start until the first request.
func TestLoadingIsShown(t *testing.T) {
	at := func(blocks int) dispatch.Loading {
		return dispatch.Loading{Started: true, BlocksDone: blocks, BlocksTotal: 40, BytesDone: int64(blocks) << 28, BytesTotal: 40 << 28, SecondsLeft: float64(40 - blocks)}
	}
	done := at(40)
	done.Done = true
	got := viewed(t, true, at(1), at(12), done)
	for _, want := range []string{"\r\x1b[Klevel=INFO msg=\"a request\"\n", "loading 12 of 40 blocks, 3.0 of 10.0 GiB, 28 s left\r\x1b[K", "msg=loaded weights=\"10.0 GiB\" seconds=6.0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("a terminal gets %q, without %q", got, want)
		}
	}
	got = viewed(t, false, at(1), at(6), at(12), at(20), at(30), done)
	if strings.ContainsAny(got, "\r\x1b") || strings.Count(got, "of 40 blocks") != 2 || !strings.Contains(got, "msg=loaded") {
		t.Errorf("a file gets %q, want two plain lines and the end", got)
	}
	failed := at(3)
	failed.Err = errors.New("torn")
	if got = viewed(t, true, at(1), failed); !strings.Contains(got, "reason=torn") || strings.HasSuffix(got, "left") {
		t.Errorf("a failure: %q", got)
	}
}
