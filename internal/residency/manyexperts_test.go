package residency

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// manyExperts is a mixture with 2 stacks of 2,100 experts in separate tensors.
const manyExperts = `{"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 32,
	"intermediate_size": 32, "moe_intermediate_size": 8, "num_experts": 2100, "num_experts_per_tok": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
	"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 64}`

// boundZeros returns the skeleton of a config.json, bound to a checkpoint of zeros.
func boundZeros(t *testing.T, text string) (*meta.Model, *loader.Binding) {
	t.Helper()
	dir := t.TempDir()
	config, err := meta.ReadConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	var tensors []loader.NamedTensor
	for _, e := range skeleton.Root.CheckpointEntries() {
		zeros := make([]byte, meta.BFloat16.Bytes(meta.Elements(e.Shape)))
		tensors = append(tensors, loader.NamedTensor{Name: e.Name, DType: meta.BFloat16, Shape: e.Shape, Bytes: func() ([]byte, error) { return zeros, nil }})
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	checkpoint, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	binding, err := loader.Bind(checkpoint, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	return skeleton, binding
}

// TestTheFirstUseOfAnExpertAllocated: models with more than 4,096 experts created what reads an expert when a token
// requested it first, and plans did not count it.
func TestTheFirstUseOfAnExpertAllocated(t *testing.T) {
	skeleton, binding := boundZeros(t, manyExperts)
	unit := Unit{Path: "all"}
	for path, node := range skeleton.Root.Walk() {
		if spec, ok := node.Spec.(*meta.MoESpec); ok {
			for _, stack := range node.ExpertStacks(spec) {
				unit.Experts = append(unit.Experts, Node{meta.Join(path, spec.Experts), stack})
			}
		}
	}
	unit.Modules = unit.Experts
	s, err := New(skeleton.Root, []Unit{unit}, binding, devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}), Options{Staging: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s.prepareExperts(t.Context())
	runtime.GC()
	runtime.ReadMemStats(&after)
	n := s.expertLoads()
	if n != 4200 || slices.Contains(s.experts.loads, nil) {
		t.Errorf("%d experts, and some have no load; want 4200 with loads", n)
	}
	if each := int64(after.HeapAlloc-before.HeapAlloc) / int64(n); each > 1536 {
		t.Errorf("an expert takes %d bytes, plans count 1536", each)
	} else {
		t.Logf("an expert takes %d bytes", each)
	}
}
