package placement_test

import (
	"fmt"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestExpertsReadEarlyChangeNoAnswer: the experts of the next block are read before its router has chosen them, the
// right and the wrong ones, whatever they displace.
func TestExpertsReadEarlyChangeNoAnswer(t *testing.T) {
	dir := dispatchtest.MixtureFolder(t, 77)
	ids := dispatchtest.Scattered(40)
	const prompt = 5
	o := dispatch.Options{Threads: 2, Context: 128, MaxBatchTokens: 32}
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, prompt, prompt)
	whole.Close()
	skeleton, _ := dispatchtest.OpenCheckpoint(t, dir)
	need, err := dispatch.EstimateMemory(skeleton, o, "")
	if err != nil {
		t.Fatal(err)
	}
	early := int64(0)
	for part := range int64(7) {
		o := o
		o.Ledger = new(dispatch.Ledger)
		dispatchtest.EvictAtRandom(o.Ledger, uint64(part)) // and all guesses are read
		o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(need.Least + (need.All-need.Least)*part/8 - need.Runtime)}}
		m := dispatchtest.OpenModel(t, dir, o)
		dispatchtest.SameLogits(t, fmt.Sprintf("%d of 8 parts in memory", part), dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
		n := m.Status().Experts
		if early += n.Early; n.Early > n.Misses {
			t.Errorf("%d of 8 parts in memory: %+v, want fewer early misses than misses", part, n)
		}
		m.Close()
	}
	if early == 0 {
		t.Error("no experts were read early")
	}
}
