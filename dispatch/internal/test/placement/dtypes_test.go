package placement_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

const (
	tinyDeepSeek = `{"model_type": "MODEL", "architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24,
		"moe_intermediate_size": 8, "num_hidden_layers": 2, "first_k_dense_replace": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 8, "q_lora_rank": 8,
		"qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
		"max_position_embeddings": 64, "torch_dtype": "float32"}`
	correctionBias = "model.layers.1.mlp.gate.e_score_correction_bias"
)

// randomFolder writes a checkpoint of config whose tensors have the dtypes that dtype chooses.
// The values are multiples of 1/64, which every dtype from bfloat16 up holds, and small.
func randomFolder(t *testing.T, config string, dtype func(name string) meta.DType) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := meta.ReadConfig([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	var tensors []loader.NamedTensor
	for _, e := range m.Root.CheckpointEntries() {
		values := make([]float32, meta.Elements(e.Shape))
		for i := range values {
			values[i] = float32(r.IntN(65)-32) / 64
		}
		d := dtype(e.Name)
		b := make([]byte, d.Bytes(int64(len(values))))
		if d.Float() && d.Bits() >= 16 { // others stay zero
			if err := tensor.Narrow(b, values, d); err != nil {
				t.Fatal(err)
			}
		}
		tensors = append(tensors, loader.NamedTensor{Name: e.Name, DType: d, Shape: e.Shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func all(d meta.DType) func(string) meta.DType { return func(string) meta.DType { return d } }

// TestDeepSeekInFloat16Serves: the correction of DeepSeek's routers, a buffer, was read in float32
// and bfloat16 only. The same values in each dtype give the same answer.
func TestDeepSeekInFloat16Serves(t *testing.T) {
	only := func(d meta.DType) func(string) meta.DType {
		return func(name string) meta.DType {
			if name == correctionBias {
				return d
			}
			return meta.Float32
		}
	}
	ids := []int32{1, 9, 33, 7, 12}
	for _, model := range []string{"deepseek_v3", "kimi_k2"} {
		config := strings.Replace(tinyDeepSeek, "MODEL", model, 1)
		var want [][]float32
		for name, dtype := range map[string]func(string) meta.DType{"float32": all(meta.Float32), "float16": all(meta.Float16), "bfloat16": all(meta.BFloat16),
			"a correction in float64": only(meta.Float64), "a correction in float16": only(meta.Float16)} {
			m := dispatchtest.OpenModel(t, randomFolder(t, config, dtype), dispatch.Options{Precision: dispatch.PrecisionHigh})
			got := dispatchtest.ForcedLogits(t, m, ids, len(ids), len(ids))
			if want == nil {
				want = got
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) {
					t.Errorf("%s: %s: the logits of token %d differ", model, name, i)
				}
			}
		}
	}
}

// TestADTypeWithoutKernelsIsRefusedAtStart: weights in float64, in integers or in FP8 without
// scales were found out by the first request, which got a 503, as did all others. Opening the
// model now fails and names tensor and file.
func TestADTypeWithoutKernelsIsRefusedAtStart(t *testing.T) {
	const one = "model.layers.1.mlp.experts.5.up_proj.weight"
	config := strings.Replace(tinyDeepSeek, "MODEL", "deepseek_v3", 1)
	for _, d := range []meta.DType{meta.Float64, meta.Int8, meta.Float8E5M2, meta.Int32} {
		for name, dtype := range map[string]func(string) meta.DType{"all": all(d), "one expert": func(name string) meta.DType {
			if name == one {
				return d
			}
			return meta.BFloat16
		}} {
			if !d.Float() || d == meta.Float8E5M2 {
				chosen := dtype
				dtype = func(name string) meta.DType {
					if name == correctionBias {
						return meta.Float32
					}
					return chosen(name)
				}
			}
			dir := randomFolder(t, config, dtype)
			m, err := dispatch.Open(dir, dispatch.Options{})
			if err == nil {
				m.Close()
				t.Errorf("%v, %s: opened", d, name)
				continue
			}
			for _, want := range []string{d.String(), "model.safetensors", "want float32, bfloat16 or float16", ".weight"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, %s: %v does not say %q", d, name, err, want)
				}
			}
		}
	}
}
