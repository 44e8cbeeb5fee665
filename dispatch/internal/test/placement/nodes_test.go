package placement_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/meta"
)

// twoNodes is this machine as if its processors were on two nodes of memory, by turns.
func twoNodes() *topology.Machine {
	m := &topology.Machine{Memory: []topology.Node{{ID: 0, Memory: true}, {ID: 1, Memory: true}}}
	here := topology.Here()
	for i := range max(2, len(here.CPUs)) {
		id := here.CPUs[i%len(here.CPUs)].ID
		m.CPUs = append(m.CPUs, topology.CPU{ID: id, Core: i, Node: i % 2, Speed: 1})
	}
	return m
}

// TestThreadsThatRunAtOnce: of far more threads than Go runs at once no more are started, as
// these would hold each other up.
func TestThreadsThatRunAtOnce(t *testing.T) {
	m := dispatchtest.OpenModel(t, dispatchtest.LawFolder(t), dispatch.Options{Threads: 64 * runtime.GOMAXPROCS(0)})
	if threads := m.Kernels().Threads; threads != runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads, where Go runs %d at once", threads, runtime.GOMAXPROCS(0))
	}
}

// TestNodesChangeNoAnswer: on a machine of two nodes, with threads that keep to theirs and
// weights that are placed near them, logits have the bits of one thread.
func TestNodesChangeNoAnswer(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	dispatchtest.RunAtOnce(t, 8)
	ids, prompt := dispatchtest.LawIDs()
	for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4} {
		alone := dispatchtest.ForcedLogits(t, dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1, Quantize: format}), ids, prompt, prompt)
		for _, threads := range []int{2, 3, 8} {
			m := dispatchtest.OpenModel(t, dir, dispatchtest.On(dispatch.Options{Threads: threads, Quantize: format}, twoNodes()))
			dispatchtest.SameLogits(t, fmt.Sprintf("%v, %d threads", format, threads), dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), alone)
			m.Warm(context.Background())
			m.Promote(context.Background())
			dispatchtest.AwaitConversion(t, m)
			dispatchtest.SameLogits(t, fmt.Sprintf("%v, %d threads, promoted", format, threads), dispatchtest.ForcedLogits(t, m, ids, prompt, 5), alone)
		}
	}
}
