package main

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/loader/demo"
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
	folder, cache := demoOnDisk(t), filepath.Join(t.TempDir(), "cache")
	for name, c := range map[string]struct {
		args  []string
		known string // in the order of load, first token, tokens a second, disk bytes
	}{
		"folder":      {[]string{folder}, "yyyy"},
		"on disk":     {[]string{folder, "--device-map", "disk"}, "yyyy"},
		"no probe":    {[]string{folder, "--no-probe"}, "nnny"},
		"bare config": {[]string{filepath.Join(folder, "config.json"), "--cache-dir", "none"}, "nnyy"},
		"bare, disk":  {[]string{filepath.Join(folder, "config.json"), "--cache-dir", "none", "--device-map", "disk"}, "ynny"}, // nothing to load
		"bare, cache": {[]string{filepath.Join(folder, "config.json"), "--cache-dir", cache, "--device-map", "disk"}, "yyyy"},
		"bare, rate":  {[]string{filepath.Join(folder, "config.json"), "--cache-dir", "none", "--device-map", "disk", "--disk-rate", "2GB/s"}, "yyyy"},
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

// A disk's rate that the user gives is used instead of a measured one, for a folder too.
func TestPlanWithADiskRate(t *testing.T) {
	folder := demoOnDisk(t)
	predicted := func(rate string) float64 {
		var got struct{ Predicted rates }
		parse(t, &got, "plan", "--json", folder, "--device-map", "disk", "--disk-rate", rate)
		return *got.Predicted["disk_bytes_per_token"] * *got.Predicted["tokens_per_second"]
	}
	for rate, want := range map[string]float64{"1KB/s": 1e3, "2 KiB/s": 2048, "64KB": 64e3} {
		if got := predicted(rate); !(math.Abs(got-want) <= 1e-6*want) {
			t.Errorf("--disk-rate %s: %v bytes a second", rate, got)
		}
	}
	for _, rate := range []string{"fast", "0KB/s", "-1KB/s", "5/s"} {
		if _, text := command(t, 2, "plan", folder, "--disk-rate", rate); !strings.Contains(text, "--disk-rate") {
			t.Errorf("--disk-rate %s: %s", rate, text)
		}
	}
}

// demoService is the demo model, wired, without a listener.
func demoService(t *testing.T) *service {
	t.Helper()
	c := runCmd{servedFlags: servedFlags{LoadTimeout: time.Minute}, placeFlags: placeFlags{DeviceMap: "auto"}, sizeFlags: sizeFlags{Dtype: "auto", KVDtype: "auto", Precision: "auto", MaxBatch: 2}, MaxQueue: 8}
	w, err := c.request()
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.build(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// TestServerReports asks a served model for its plan, before and after it has run.
func TestServerReports(t *testing.T) {
	s := demoService(t)
	ask := func(method, path, body string) []byte {
		t.Helper()
		w := httptest.NewRecorder()
		s.server.Handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	type report struct {
		Predicted, Measured rates
		KVTokens            int `json:"kv_tokens"`
		MaxModelLen         int `json:"max_model_len"`
	}
	plan := func() (r report) {
		t.Helper()
		if err := json.Unmarshal(ask(http.MethodGet, "/plan", ""), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if before := plan(); before.Predicted["tokens_per_second"] != nil || before.Measured["tokens_per_second"] != nil {
		t.Errorf("before anything was measured: %v", before)
	}
	if r := plan(); r.KVTokens == 0 || r.MaxModelLen != s.first.generator.Limit() {
		t.Errorf("%d tokens of KV cache, requests of up to %d, want %d", r.KVTokens, r.MaxModelLen, s.first.generator.Limit())
	}
	s.first.model.Warm(t.Context())
	s.first.model.Promote(t.Context())
	s.first.report.start()
	ask(http.MethodPost, "/v1/completions", `{"model":"`+s.first.name+`","prompt":[1,2,3],"max_tokens":6,"ignore_eos":true}`)
	after := plan()
	for end := time.Now().Add(time.Minute); after.Predicted["tokens_per_second"] == nil && time.Now().Before(end); after = plan() {
		time.Sleep(10 * time.Millisecond)
	}
	if after.Predicted["tokens_per_second"] == nil {
		t.Error("nothing is predicted")
	}
	for _, field := range []string{"first_token_seconds", "tokens_per_second", "disk_bytes_per_token"} {
		if after.Measured[field] == nil {
			t.Errorf("measured %s is not known after a request", field)
		}
	}
}

// TestThePlanFollowsTheMemoryLimit: GET /plan showed the limit of the start whatever the server kept to since.
func TestThePlanFollowsTheMemoryLimit(t *testing.T) {
	s := demoService(t)
	plan := func() (r struct {
		Devices []devicemap.DevicePlan
	}) {
		t.Helper()
		w := httptest.NewRecorder()
		s.server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/plan", nil))
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	m, host := s.first.model, devicemap.Plan{Devices: plan().Devices}.Device(devicemap.CPU)
	least := m.SetMemoryLimit(0)
	m.SetMemoryLimit(least)
	if now := (devicemap.Plan{Devices: plan().Devices}).Device(devicemap.CPU); now.LimitBytes != least || now.Used() > least || now.WeightsBytes >= host.WeightsBytes {
		t.Errorf("under a limit of %d: %+v, at the start %+v", least, now, host)
	}
	m.SetMemoryLimit(host.LimitBytes)
	if now := (devicemap.Plan{Devices: plan().Devices}).Device(devicemap.CPU); now != host {
		t.Errorf("under the limit of the start: %+v, want %+v", now, host)
	}
}

// TestRequestsInterruptTheProbe: a probe that a request disturbs is broken off, and made
// again once the server is idle; GET /plan waits for none.
func TestRequestsInterruptTheProbe(t *testing.T) {
	s := demoService(t)
	var busy atomic.Bool
	r := s.first.report
	r.settle, r.busy = time.Millisecond, busy.Load
	probes, cut := make(chan struct{}), make(chan struct{}, 1)
	r.probe = func(ctx context.Context) (dispatch.MachineSpeed, error) {
		probes <- struct{}{}
		select {
		case <-ctx.Done():
			cut <- struct{}{}
			return dispatch.MachineSpeed{}, ctx.Err()
		case <-probes:
			return dispatch.MachineSpeed{MemoryBytes: 1e9}, nil
		}
	}
	r.start()
	<-probes
	r.now() // returns while the probe runs
	busy.Store(true)
	<-cut
	busy.Store(false)
	<-probes // the second time
	probes <- struct{}{}
	<-r.done
	if r.report.Predicted.TokensPerSecond == nil {
		t.Error("nothing is predicted after the second probe")
	}
}

func TestPredictedLineLeavesOutTheUnknown(t *testing.T) {
	some := func(v float64) *float64 { return &v }
	for want, r := range map[string]dispatch.ModelSpeed{
		"predicted for this machine: 2.00 KiB from the disk per token\n": {DiskBytesPerToken: some(2048)},
		"predicted for this machine: 0.0123 s to load, 12346 tokens/s\n": {LoadSeconds: some(0.01234), TokensPerSecond: some(12345.6), DiskBytesPerToken: some(0)},
		"": {DiskBytesPerToken: some(0)},
	} {
		if got := predictedLine(r); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
