package dispatch_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// unsampled is a model whose plan does not look at the weights, so that matrices turn out while they are coded not to
// get smaller.
func unsampled(t *testing.T, dir string, o dispatch.Options) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint := open(t, dir)
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPlansCountMatricesThatCannotBeCodedAsStored: plans counted three quarters of matrices that coding does not make
// smaller. Now the bytes of weights and of a token are those of the plan, also in the first start.
func TestPlansCountMatricesThatCannotBeCodedAsStored(t *testing.T) {
	dir := incompressible(t)
	ids, prompt := lawOf(300)
	policy, _ := devicemap.ParsePolicy("disk")
	o := dispatch.Options{Threads: 2, DeviceMap: policy, Compress: dispatch.CompressExact, CacheDir: t.TempDir()}.InBands(16 << 10)
	skeleton, checkpoint := open(t, dir)
	var stored int64 // of the two matrices
	for path, p := range skeleton.Root.AllParams() {
		if path == "model.layers.1.mlp.up_proj.weight" || path == "model.layers.0.self_attn.q_proj.weight" {
			stored += p.Bytes()
		}
	}
	blind, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	plan, _, err := dispatch.Plan(skeleton, o.SampleCoding(skeleton, checkpoint))
	if err != nil {
		t.Fatal(err)
	}
	if more := plan.DiskBytesPerToken - blind.DiskBytesPerToken; stored == 0 || more < stored/8 || more > stored/2 {
		t.Errorf("a token reads %d bytes by the plan that looks, %d by the other; two matrices have %d", plan.DiskBytesPerToken, blind.DiskBytesPerToken, stored)
	}
	for _, start := range []string{"first", "second"} {
		m := cpuModel(t, dir, o)
		m.Warm(context.Background())
		m.Promote(context.Background())
		await(t, m)
		forced(t, m, ids, prompt, prompt) // reads ahead
		const passes = 10
		before := m.Status().TierReadBytes
		for range passes {
			forced(t, m, ids[:1], 1, 1)
		}
		got := (m.Status().TierReadBytes - before) / passes
		if want := plan.DiskBytesPerToken; got < want-want/20 || got > want+want/20 {
			t.Errorf("%s start: a token reads %d bytes, the plan says %d", start, got, want)
		}
		m.Close()
	}
	o.DeviceMap = devicemap.Policy{}
	m := cpuModel(t, dir, o)
	m.Warm(context.Background())
	m.Promote(context.Background())
	await(t, m)
	if got, want := m.Status().Held["weights"], m.Plan().Device(devicemap.CPU).WeightsBytes; got < want-want/20 || got > want+want/20 {
		t.Errorf("the weights take %d bytes, the plan says %d", got, want)
	}
	if m.LoadedAs() != meta.QuantCoded {
		t.Error("the other weights are not coded")
	}
}
