package model

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/internal/gguf/gguftest"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// ggufOf writes a Llama as a GGUF file, whose rows of queries and keys are those of llama.cpp: of each
// head, row i+half behind row i.
func ggufOf(t *testing.T, m *Model) string {
	t.Helper()
	u := func(name string, v uint32) gguftest.Key { return gguftest.Key{Name: "llama." + name, Value: v} }
	keys := []gguftest.Key{{Name: "general.architecture", Value: "llama"}, u("block_count", 2), u("context_length", 64), u("embedding_length", 32),
		u("feed_forward_length", 48), u("attention.head_count", 4), u("attention.head_count_kv", 2), u("vocab_size", 64),
		{Name: "llama.attention.layer_norm_rms_epsilon", Value: float32(1e-5)}, {Name: "llama.rope.freq_base", Value: float32(10000)}}
	names := strings.NewReplacer("model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output", "model.layers.", "blk.",
		"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output",
		"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down", "input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm")
	var tensors []gguftest.Tensor
	for name, p := range m.Parameters() {
		values := slices.Clone(p.Data())
		if strings.Contains(name, "q_proj") || strings.Contains(name, "k_proj") {
			const head = 8
			cols := p.Shape()[1]
			for row := range p.Shape()[0] {
				to := row - row%head + 2*(row%head%(head/2)) + row%head/(head/2)
				copy(values[to*cols:(to+1)*cols], p.Data()[row*cols:])
			}
		}
		tensors = append(tensors, gguftest.Tensor{Name: names.Replace(name), Type: gguf.F32, Shape: p.Shape(), Data: floatBytes(values)})
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, gguftest.Write(keys, tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openGGUF(t *testing.T, path string) *Model {
	t.Helper()
	m, err := loadGGUF(t, path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// loadGGUF loads the model of a file, frozen. The error is that of Load.
func loadGGUF(t *testing.T, path string) (*Model, error) {
	t.Helper()
	ck, err := loader.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	config, err := meta.ReadConfigFS(ck.FS())
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, ck)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loader.Bind(ck, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	return Load(skeleton, b, Freeze(func(string) bool { return true }))
}

// TestAdaptersOfGGUFHadOtherRows: a GGUF file of a Llama has the rows of queries and keys in another
// order than an adapter, which was added as if it had them in the same.
func TestAdaptersOfGGUFHadOtherRows(t *testing.T) {
	dir := llamaModel(t)
	plain, err := openFile(t, dir, filepath.Join(dir, "init.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	file := openGGUF(t, ggufOf(t, plain))
	batch := Batch{IDs: []int{3, 9, 4, 8, 30, 12, 7}, Length: 7}
	if err := plain.AddLoRA(LoRAConfig{R: 4, Alpha: 16}, rng.New(1)); err != nil {
		t.Fatal(err)
	}
	random := rng.New(2)
	for i, p := range plain.adapter.params {
		if i%2 == 1 {
			random.Uniform(p.Data(), -0.5, 0.5)
		}
	}
	adapter, again := t.TempDir(), t.TempDir()
	if err := plain.SaveAdapter(adapter); err != nil {
		t.Fatal(err)
	}
	if err := file.LoadAdapter(adapter); err != nil {
		t.Fatal(err)
	}
	var losses []float32
	for _, m := range []*Model{plain, file} {
		tp := tensor.NewTape(tensor.Options{})
		tp.NoGrad(func() {
			losses = append(losses, item(t, m, tp, batch, Options{}), item(t, m, tp, batch, Options{Base: true}))
		})
	}
	for i, what := range []string{"with the adapter", "without it"} {
		if d := math.Abs(float64(losses[i] - losses[i+2])); !(d <= 1e-5) {
			t.Errorf("%s: loss %v of the GGUF file, want %v", what, losses[i+2], losses[i])
		}
	}
	if err := file.SaveAdapter(again); err != nil {
		t.Fatal(err)
	}
	const name = "adapter_model.safetensors"
	one, err1 := os.ReadFile(filepath.Join(adapter, name))
	two, err2 := os.ReadFile(filepath.Join(again, name))
	if fmt.Sprint(err1, err2) != "<nil> <nil>" || !slices.Equal(one, two) {
		t.Errorf("the adapter is saved with other rows (%v, %v)", err1, err2)
	}
}
