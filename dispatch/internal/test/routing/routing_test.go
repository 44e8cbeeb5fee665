package routing_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestHitsAreThoseOfTheReplay: the experts' cache reads exactly the experts that a replay of the same requests misses,
// with room for few experts and for many.
func TestHitsAreThoseOfTheReplay(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxBatchTokens: 32, MaxSequences: 3}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for part := range int64(7) {
		o := o
		o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)*part/8 - need.Runtime)}}
		m := dispatchtest.OpenModel(t, dir, o)
		if err := m.RecordRouting(); err != nil {
			t.Fatal(err)
		}
		dispatchtest.RunRandomTokens(t, m, 150)
		slots, want := dispatchtest.Replay(m)
		if got := m.Status().Experts; got != want {
			t.Errorf("room for %d experts: counted %+v, want %+v", slots, got, want)
		}
		if lru := dispatchtest.ReplayLRU(m); want.Misses > lru.Misses+lru.Misses/50 {
			t.Errorf("room for %d experts: %d misses, and %d with the least recently used evicted", slots, want.Misses, lru.Misses)
		}
		seen[slots] = true
		m.Close()
	}
	if len(seen) < 4 {
		t.Errorf("the test ran with room for %v experts, want 4 sizes", seen)
	}
}

func TestRoutingIsReadAsSaved(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	m := dispatchtest.OnDisk(t, dir, dispatch.Options{Threads: 1})
	if _, err := m.Routing(); err == nil {
		t.Error("a routing that was not recorded")
	}
	if err := m.RecordRouting(); err != nil {
		t.Fatal(err)
	}
	dispatchtest.RunRandomTokens(t, m, 150)
	saved, err := m.Routing()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "routing.trace")
	if err := saved.Save(path); err != nil {
		t.Fatal(err)
	}
	read, err := dispatch.ReadRouting(path, m.Skeleton())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(read.Curve(), read.Passes()), fmt.Sprint(saved.Curve(), saved.Passes()); got != want {
		t.Errorf("read %s, want %s", got, want)
	}
	last := dispatch.RoutingHits{}
	for _, h := range read.Curve() {
		if h.LRU > h.Belady || h.Heft > h.Belady || h.Heft < last.Heft-0.02 || h.Belady < last.Belady {
			t.Errorf("hits %+v after %+v", h, last)
		}
		last = h
	}
	if _, err := dispatch.ReadRouting(path, dispatchtest.Trillion(t, "")); err == nil {
		t.Error("the routing of a model with other experts is read")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dispatch.ReadRouting(path, m.Skeleton()); err == nil {
		t.Error("a damaged routing is read")
	}
}

// TestThePlanPredictsHits: with a recorded routing the plan's bytes per token are those measured.
func TestThePlanPredictsHits(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 1030)
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	recorded := dispatchtest.OnDisk(t, dir, dispatch.Options{Threads: 1})
	if err := recorded.RecordRouting(); err != nil {
		t.Fatal(err)
	}
	runRandomTokensAlone(t, recorded, 400)
	routing, err := recorded.Routing()
	if err != nil {
		t.Fatal(err)
	}
	o := dispatch.Options{Threads: 1, Context: 128, MaxBatchTokens: 32, MaxSequences: 1, Routing: routing}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, tenths := range []int64{3, 5, 7} {
		o := o
		limit := need.Least + (need.All-need.Least)*tenths/10 - need.Runtime
		o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
		plan, o, err := dispatch.Plan(skeleton, o)
		if err != nil {
			t.Fatal(err)
		}
		if plan.ExpertHitRate <= 0 || plan.ExpertHitRate >= 1 {
			t.Errorf("the plan expects %v hits", plan.ExpertHitRate)
			continue
		}
		m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
		if err != nil {
			t.Fatal(err)
		}
		runRandomTokensAlone(t, m, 100)
		before := m.Status()
		runRandomTokensAlone(t, m, 300)
		got := float64(m.Status().TierReadBytes-before.TierReadBytes) / 300
		if want := float64(plan.DiskBytesPerToken); got < 0.93*want || got > 1.07*want {
			t.Errorf("a token reads %.0f bytes, want %.0f within 7 %%: %+v\n%s", got, want, m.Status().Experts, plan.Explain())
		}
		m.Close()
	}
}

// runRandomTokensAlone generates random tokens with one sequence at a time.
func runRandomTokensAlone(t *testing.T, m *dispatch.Model, passes int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(9, 9))
	var s *dispatch.Sequence
	for pass := range passes {
		if pass%100 == 0 {
			if s != nil {
				s.Free()
			}
			s = m.NewSequence()
		}
		row := dispatch.BatchRow{Sequence: s, Tokens: []int32{int32(rng.IntN(m.Vocab()))}, PromptLen: 1, Logits: dispatch.LogitsLast}
		if _, err := m.Forward(t.Context(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Free()
}

// TestRoutingIsKeptWhileServing: only bench --trace kept one, so plans of models that were served for
// days predicted hits from the usual curve. Close keeps a short recording, a damaged file is an error,
// and a plan names the source of its prediction.
func TestRoutingIsKeptWhileServing(t *testing.T) {
	dir, folder := dispatchtest.MixtureFolder(t, 77), filepath.Join(t.TempDir(), "kept")
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o := dispatch.Options{Threads: 2, Context: 128, MaxBatchTokens: 32, MaxSequences: 3}
	failed := func(err error) { t.Error(err) }
	serve := func(passes int) {
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o)
		if err != nil {
			t.Fatal(err)
		}
		m.KeepRouting(folder, failed)
		dispatchtest.RunRandomTokens(t, m, passes)
		m.Close()
	}
	path := dispatch.RoutingFile(folder, skeleton)
	if serve(3); exists(path) {
		t.Error("a routing of 3 passes was kept")
	}
	serve(300)
	routing, err := dispatch.ReadRouting(path, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	if n := routing.Passes(); n < 200 {
		t.Errorf("the kept routing has %d passes, want the 300 that were run or so", n)
	}
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least - need.Runtime)}}
	usual, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Routing = routing
	plan, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d recorded passes", routing.Passes()); plan.ExpertHitsFrom != want || usual.ExpertHitsFrom == want || usual.ExpertHitsFrom == "" {
		t.Errorf("hits are predicted from %q, and without a routing from %q", plan.ExpertHitsFrom, usual.ExpertHitsFrom)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := dispatch.ReadRouting(path, skeleton); err == nil {
		t.Error("a damaged routing was read")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
