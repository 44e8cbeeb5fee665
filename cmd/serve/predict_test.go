package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/demo"
)

type rates map[string]*float64

func demoOnDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPlanPredicts(t *testing.T) {
	type report struct{ Predicted, Measured rates }
	folder := demoOnDisk(t)
	for name, c := range map[string]struct {
		args  []string
		known string // in the order of load, first token, tokens a second, disk bytes
	}{
		"folder":      {[]string{folder}, "yyyy"},
		"on disk":     {[]string{folder, "--device-map", "disk"}, "yyyy"},
		"no probe":    {[]string{folder, "--no-probe"}, "nnny"},
		"bare config": {[]string{filepath.Join(folder, "config.json")}, "nnyy"},
		"bare, disk":  {[]string{filepath.Join(folder, "config.json"), "--device-map", "disk"}, "ynny"}, // nothing to load
	} {
		var got report
		parse(t, &got, append([]string{"plan", "--json"}, c.args...)...)
		for i, field := range []string{"load_seconds", "first_token_seconds", "tokens_per_second", "disk_bytes_per_token"} {
			v, there := got.Predicted[field]
			if !there || (v != nil) != (c.known[i] == 'y') {
				t.Errorf("%s: predicted %s is there %v, known %v", name, field, there, v != nil)
			}
			if v, there := got.Measured[field]; !there || v != nil {
				t.Errorf("%s: measured %s before anything ran", name, field)
			}
		}
	}
	if text, _ := command(t, 0, "plan", folder); !strings.Contains(text, "predicted for this machine: ") || !strings.Contains(text, "tokens/s") {
		t.Errorf("the plan predicts nothing:\n%s", text)
	}
}

// TestServerReports asks a served model for its plan, before and after it has run.
func TestServerReports(t *testing.T) {
	c := runCmd{placeFlags: placeFlags{DeviceMap: "auto"}, sizeFlags: sizeFlags{Dtype: "auto", KVDtype: "auto", Precision: "auto", MaxBatch: 2}, MaxQueue: 8}
	s, err := c.build()
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ask := func(method, path, body string) []byte {
		t.Helper()
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	var before, after struct{ Predicted, Measured rates }
	if err := json.Unmarshal(ask(http.MethodGet, "/plan", ""), &before); err != nil {
		t.Fatal(err)
	}
	if before.Predicted["tokens_per_second"] == nil || before.Measured["tokens_per_second"] != nil {
		t.Errorf("before: %v", before)
	}
	ask(http.MethodPost, "/v1/completions", `{"model":"`+s.name+`","prompt":[1,2,3],"max_tokens":6,"ignore_eos":true}`)
	if err := json.Unmarshal(ask(http.MethodGet, "/plan", ""), &after); err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"first_token_seconds", "tokens_per_second", "disk_bytes_per_token"} {
		if after.Measured[field] == nil {
			t.Errorf("measured %s is not known after a request", field)
		}
	}
	if *after.Predicted["tokens_per_second"] != *before.Predicted["tokens_per_second"] {
		t.Error("the prediction changed: the machine was measured twice")
	}
}

func TestPredictedLineLeavesOutTheUnknown(t *testing.T) {
	report := dispatch.NewReport(devicemap.Plan{DiskBytesPerToken: 2048})
	if got, want := predictedLine(report.Predicted), "predicted for this machine: 2.00 KiB from the disk a token\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
