package routing_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestTheUsualCurveOutlivedMeasurements: without a recorded routing, plans predicted hits from the
// usual curve however often the model had run. Now they predict what the last run measured.
func TestTheUsualCurveOutlivedMeasurements(t *testing.T) {
	dir, folder := dispatchtest.MixtureFolder(t, 1030), filepath.Join(t.TempDir(), "kept")
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 1, Context: 128, MaxBatchTokens: 32, MaxSequences: 1}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)/2 - need.Runtime)}}
	usual, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, usual.Map, planned)
	if err != nil {
		t.Fatal(err)
	}
	m.KeepRouting(folder, func(err error) { t.Error(err) })
	runRandomTokensAlone(t, m, 200)
	before := m.Status()
	runRandomTokensAlone(t, m, 300)
	got := float64(m.Status().TierReadBytes-before.TierReadBytes) / 300
	m.Close()

	path := dispatch.ExpertHitsFile(folder, skeleton)
	if o.ExpertHits, err = dispatch.ReadExpertHits(path); err != nil || o.ExpertHits == nil {
		t.Fatalf("kept %v, error %v", o.ExpertHits, err)
	}
	plan, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(plan.DiskBytesPerToken); got < 0.9*want || got > 1.1*want {
		t.Errorf("a token read %.0f bytes, the next plan predicts %.0f, the usual curve %d", got, want, usual.DiskBytesPerToken)
	}
	if !strings.Contains(plan.ExpertHitsFrom, "an earlier run measured with this cache") {
		t.Errorf("the plan predicts hits from %q", plan.ExpertHitsFrom)
	}
	o.MaxMemory[0].Bytes = float64(need.Least - need.Runtime)
	if plan, _, err = dispatch.Plan(skeleton, o); err != nil || !strings.Contains(plan.ExpertHitsFrom, "% of the experts, and the curve of usual routings") {
		t.Errorf("with less memory the plan predicts hits from %q, error %v", plan.ExpertHitsFrom, err)
	}
	for text, damaged := range map[string]bool{"": true, `{"version": 1}`: true, `{"version": 1, "points": [{"share": 2, "hits": 0.5}]}`: true,
		`{"version": 0, "points": []}`: false, `{"version": 1, "points": [` + strings.Repeat(`{"share": 0.5, "hits": 0.5},`, 16) + `{"share": 0.5, "hits": 0.5}]}`: true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, err := dispatch.ReadExpertHits(path); h != nil || (err != nil) != damaged {
			t.Errorf("%q: got %v, error %v", text, h, err)
		}
	}
	if h, err := dispatch.ReadExpertHits(filepath.Join(folder, "none")); h != nil || err != nil {
		t.Errorf("without a file: %v, error %v", h, err)
	}
}
