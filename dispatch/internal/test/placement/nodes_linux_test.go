package placement_test

import (
	"bytes"
	"context"
	"os"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// preferring counts the ranges of this process's memory that want to be on a certain node.
func preferring(t *testing.T) int {
	t.Helper()
	ranges, err := os.ReadFile("/proc/self/numa_maps")
	testenv.Need(t, "numa", err == nil, "a kernel that places memory on nodes")
	return bytes.Count(ranges, []byte(" prefer"))
}

// TestWeightsAreSettled: on a machine of two nodes the system is asked for memory near the
// threads, for weights that are promoted and for those that are converted. Both nodes' threads
// have node 0 as their home, which every machine has.
func TestWeightsAreSettled(t *testing.T) {
	dispatchtest.RunAtOnce(t, 2)
	machine := twoNodes()
	machine.Memory[1].Memory = false
	const size = 2048
	dir, weights := t.TempDir(), make([]byte, 2*size*size)
	tensors := []loader.NamedTensor{{Name: "fc.weight", DType: meta.BFloat16, Shape: []int{size, size}, Bytes: func() ([]byte, error) { return weights, nil }}}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	for _, format := range []meta.QuantFormat{meta.QuantNone, meta.QuantQ8} {
		root := &meta.Module{Class: "Net", Kind: meta.KindSequential, Children: []*meta.Module{
			{Name: "fc", Class: "Linear", Kind: meta.KindLinear, Spec: &meta.LinearSpec{In: size, Out: size},
				Params: []*meta.Param{{Name: "weight", Shape: []int{size, size}, DType: meta.BFloat16}}}}}
		before := preferring(t)
		m, err := dispatch.CPUOffload(&meta.Model{Root: root}, checkpoint, dispatchtest.On(dispatch.Options{Threads: 2, Quantize: format}, machine))
		if err != nil {
			t.Fatal(err)
		}
		m.Warm(context.Background())
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
		if _, err := m.Apply(context.Background(), make([]float32, size), size); err != nil {
			t.Error(err)
		}
		if preferring(t) <= before {
			t.Errorf("%v: no memory is asked for near the threads", format)
		}
		m.Close()
		one, err := dispatch.CPUOffload(&meta.Model{Root: root}, checkpoint, dispatch.Options{Threads: 2, Quantize: format})
		if err != nil {
			t.Fatal(err)
		}
		one.Promote(context.Background())
		for !one.Status().Promoted && one.Status().PromoteErr == nil {
		}
		if now := preferring(t); now > before && len(dispatch.DescribeHost().Nodes) < 2 {
			t.Errorf("%v: with one node %d ranges of memory are asked for on one", format, now-before)
		}
		one.Close()
	}
}
