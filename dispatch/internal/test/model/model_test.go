package model_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

func TestLoadCheckpointAndDispatchGenerates(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	var want []int32
	for _, text := range []string{"cpu", "disk", "auto", "model.layers.1=disk,lm_head=cpu"} {
		policy, err := devicemap.ParsePolicy(text)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{MaxTokens: 12})
		m.Close()
		if want == nil {
			want = got
		}
		if len(got) != 12 || !slices.Equal(got, want) {
			t.Errorf("%s: generated %v, want %v", text, got, want)
		}
	}
}

func TestGenerateHonoursStopSeedAndContext(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	all := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{})
	if len(all) != 13 {
		t.Errorf("%d tokens after a prompt of 3 in a context of 16", len(all))
	}
	if got := dispatchtest.Generate(t, m, []int32{1, 2, 3}, dispatch.GenerateOptions{Stop: []int32{all[4]}}); !slices.Equal(got, all[:slices.Index(all, all[4])+1]) {
		t.Errorf("with stop %d: %v", all[4], got)
	}
	sampled := dispatch.GenerateOptions{Temperature: 1, Seed: 5}
	if a, b := dispatchtest.Generate(t, m, []int32{7}, sampled), dispatchtest.Generate(t, m, []int32{7}, sampled); !slices.Equal(a, b) {
		t.Errorf("the same seed gave %v and %v", a, b)
	}
	for id, err := range m.Generate(context.Background(), []int32{5000}, dispatch.GenerateOptions{}) {
		if err == nil || !strings.Contains(err.Error(), "outside the vocabulary") {
			t.Errorf("prompt id 5000: token %d, error %v", id, err)
		}
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d pages are still used after all sequences ended", used)
	}
}

func TestForwardUndoesAFailedBatch(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{Context: 32, KVTokens: 48})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	a, b := m.NewSequence(), m.NewSequence()
	defer a.Free()
	defer b.Free()
	ids := make([]int32, 32)
	_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: a, Tokens: ids}, {Sequence: b, Tokens: ids}}})
	if !errors.Is(err, dispatch.ErrKVFull) {
		t.Fatalf("64 tokens in 48: %v", err)
	}
	if a.Len() != 0 || b.Len() != 0 {
		t.Errorf("the sequences hold %d and %d tokens after the failure", a.Len(), b.Len())
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := m.Forward(ctx, &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: a, Tokens: ids[:4]}}}); !errors.Is(err, context.Canceled) || a.Len() != 0 {
		t.Errorf("a cancelled pass: %v, %d tokens held", err, a.Len())
	}
}

// TestUserTree runs a tree that no architecture made: y = relu(x·Wᵀ + b).
func TestUserTree(t *testing.T) {
	root := &meta.Module{Class: "Net", Kind: meta.KindSequential, Children: []*meta.Module{
		{Name: "fc", Class: "Linear", Kind: meta.KindLinear, Spec: &meta.LinearSpec{In: 2, Out: 3}, Params: []*meta.Param{
			{Name: "weight", Shape: []int{3, 2}, DType: meta.Float32}, {Name: "bias", Shape: []int{3}, DType: meta.Float32}}},
		{Name: "act", Class: "ReLU", Kind: meta.KindActivation, Spec: &meta.ActivationSpec{Act: meta.ActReLU}},
	}}
	floats := func(v ...float32) func() ([]byte, error) {
		return func() ([]byte, error) {
			var b []byte
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			return b, nil
		}
	}
	dir := t.TempDir()
	tensors := []loader.NamedTensor{
		{Name: "fc.weight", DType: meta.Float32, Shape: []int{3, 2}, Bytes: floats(1, 2, 3, 4, -5, -6)},
		{Name: "fc.bias", DType: meta.Float32, Shape: []int{3}, Bytes: floats(0.5, -20, 1)},
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer checkpoint.Close()
	for name, offload := range map[string]func(*meta.Model, *loader.Checkpoint, dispatch.Options) (*dispatch.Model, error){
		"cpu": dispatch.CPUOffload, "disk": dispatch.DiskOffload,
	} {
		m, err := offload(&meta.Model{Root: root}, checkpoint, dispatch.Options{Threads: 1})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		y, err := m.Apply(context.Background(), []float32{1, 2, 3, 4}, 2)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := []float32{5.5, 0, 0, 11.5, 5, 0}; !slices.Equal(y, want) {
			t.Errorf("%s: %v, want %v", name, y, want)
		}
		m.Close()
	}
}

func TestPlacementErrorsNameThePlace(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	for text, want := range map[string]string{
		"model.layer.1=disk": "model.layers",
		"0":                  "device 0",
		`{"model": "cpu", "model.layers.0": 1, "lm_head": "cpu"}`: "device 1: model.layers.0 is placed there, but the devices are cpu, disk; there is no GPU: this build has no code for GPUs",
	} {
		policy, err := devicemap.ParsePolicy(text)
		if err == nil {
			_, err = dispatch.Open(dir, dispatch.Options{DeviceMap: policy})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one that says %q", text, err, want)
		}
	}
}

func TestStrictMemoryRefuses(t *testing.T) {
	limits, err := devicemap.ParseMaxMemory("cpu=100KB")
	if err != nil {
		t.Fatal(err)
	}
	dir := dispatchtest.DemoFolder(t)
	if _, err := dispatch.Open(dir, dispatch.Options{MaxMemory: limits, StrictMemory: true}); err == nil {
		t.Error("100 KB was enough with --strict-memory")
	}
	m, err := dispatch.Open(dir, dispatch.Options{MaxMemory: limits})
	if err != nil {
		t.Fatal(err)
	}
	dispatchtest.Generate(t, m, []int32{1}, dispatch.GenerateOptions{MaxTokens: 2})
	if m.Status().TierReadBytes == 0 {
		t.Error("nothing was streamed under a limit of 100 KB")
	}
	m.Close()
}

func TestWarmReadsTheCPUTier(t *testing.T) {
	m, err := dispatch.Open(dispatchtest.DemoFolder(t), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Warm(context.Background())
	for !m.Status().Loading.Done {
		if err := m.Status().Loading.Err; err != nil {
			t.Fatal(err)
		}
	}
	if l := m.Status().Loading; l.BytesDone != l.BytesTotal || l.BlocksDone != l.BlocksTotal || l.BytesTotal == 0 {
		t.Errorf("warmed: %+v", l)
	}
}
