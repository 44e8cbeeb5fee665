package disk_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// inputsFirst writes a checkpoint of random weights whose matrices are stored with inputs first: by AWQ, or by GPTQ
// with groups in order or by an index.
func inputsFirst(t *testing.T, method string, index bool) (dir string) {
	t.Helper()
	const width, inner, vocab, group = 1024, 2048, 512, 64
	dir = t.TempDir()
	config := fmt.Sprintf(`{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "float16", "hidden_size": %d,
		"intermediate_size": %d, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": %d,
		"max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": false, "quantization_config":
		{"quant_method": %q, "bits": 4, "group_size": %d, "desc_act": %v, "sym": false, "zero_point": true, "version": "gemm"}}`, width, inner, vocab, method, group, index)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 14))
	var tensors []loader.NamedTensor
	add := func(name string, d meta.DType, element func(b []byte, i int) []byte, shape ...int) {
		var b []byte
		for i := range meta.Elements(shape) {
			b = element(b, int(i))
		}
		tensors = append(tensors, loader.NamedTensor{Name: name, DType: d, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }})
	}
	half := func(centre, spread float64) func([]byte, int) []byte { return normal(rng, centre, spread) }
	codes := func(b []byte, _ int) []byte { return binary.LittleEndian.AppendUint32(b, rng.Uint32()) }
	matrix := func(name string, in, out int) {
		rows, columns := in/8, out
		if method == "awq" {
			rows, columns = in, out/8
		}
		add(name+".qweight", meta.Int32, codes, rows, columns)
		add(name+".qzeros", meta.Int32, codes, in/group, out/8)
		add(name+".scales", meta.Float16, half(0.01, 0.003), in/group, out)
		if method == "gptq" {
			of := rng.Perm(in)
			add(name+".g_idx", meta.Int32, func(b []byte, i int) []byte {
				if index {
					i = of[i]
				}
				return binary.LittleEndian.AppendUint32(b, uint32(i/group))
			}, in)
		}
	}
	add("model.embed_tokens.weight", meta.Float16, half(0, 0.1), vocab, width)
	const layer = "model.layers.0."
	for _, name := range []string{"q", "k", "v", "o"} {
		matrix(layer+"self_attn."+name+"_proj", width, width)
	}
	matrix(layer+"mlp.gate_proj", width, inner)
	matrix(layer+"mlp.up_proj", width, inner)
	matrix(layer+"mlp.down_proj", inner, width)
	add(layer+"input_layernorm.weight", meta.Float16, half(1, 0.1), width)
	add(layer+"post_attention_layernorm.weight", meta.Float16, half(1, 0.1), width)
	add("model.norm.weight", meta.Float16, half(1, 0.1), width)
	add("lm_head.weight", meta.Float16, half(0, 0.1), vocab, width)
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// normal appends random numbers in half precision.
func normal(rng *rand.Rand, centre, spread float64) func(b []byte, i int) []byte {
	return func(b []byte, _ int) []byte {
		return binary.LittleEndian.AppendUint16(b, mat.ToFloat16(float32(centre+spread*rng.NormFloat64())))
	}
}

// TestMatricesWithInputsFirstStreamInBands: a matrix of GPTQ or AWQ passed whole, twice with the one that is read
// ahead, so that the largest was the minimum. Bands of its outputs change no bit, and the limit holds.
func TestMatricesWithInputsFirstStreamInBands(t *testing.T) {
	ids := []int32{17, 99, 4, 312, 500, 77, 1, 2, 3}
	for _, c := range []struct {
		method string
		index  bool
	}{{"gptq", false}, {"gptq", true}, {"awq", false}} {
		dir := inputsFirst(t, c.method, c.index)
		for _, precision := range []dispatch.Precision{dispatch.PrecisionAuto, dispatch.PrecisionHigh} {
			o := dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: precision, Context: 16, MaxBatchTokens: 8, MaxSequences: 1}
			whole := dispatchtest.OpenModel(t, dir, o)
			want := dispatchtest.ForcedLogits(t, whole, ids, 7, 4)
			whole.Close()
			if precision == dispatch.PrecisionAuto {
				m := dispatchtest.OnDisk(t, dir, dispatchtest.InColumns(o, 1))
				dispatchtest.SameLogits(t, fmt.Sprintf("%v in the smallest bands", c), dispatchtest.ForcedLogits(t, m, ids, 7, 4), want)
				m.Close()
			}
			skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
			o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 4096}}
			least, _, err := dispatch.Plan(skeleton, o)
			if err != nil {
				t.Fatal(err)
			}
			o.MaxMemory[0].Bytes = float64(least.Least)
			plan, narrow, err := dispatch.Plan(skeleton, o)
			if err != nil || plan.BelowLeast || !narrowly(&plan) {
				t.Fatalf("%v: %v: a plan of the minimum\n%s", c, err, plan.Explain())
			}
			o.MaxMemory[0].Bytes = 1 << 29
			if plenty, _, err := dispatch.Plan(skeleton, o); err != nil || plenty.Least != plan.Least || narrowly(&plenty) {
				t.Errorf("%v: %v: the minimum of a plan with room is %d, want %d\n%s", c, err, plenty.Least, plan.Least, plenty.Explain())
			}
			var largest int64
			for _, p := range skeleton.Root.AllParams() {
				if len(p.Sources) > 0 && p.Sources[0].Quant != nil {
					largest = max(largest, p.Bytes())
				}
			}
			if staging := plan.Device(devicemap.CPU).StagingBytes; staging >= 2*largest {
				t.Errorf("%v: staging takes %d bytes, want less than two matrices of %d", c, staging, largest)
			}
			narrow.Ledger = new(dispatch.Ledger)
			m, err := dispatch.New(skeleton, checkpoint, plan.Map, narrow)
			if err != nil {
				t.Fatal(err)
			}
			dispatchtest.SameLogits(t, "the minimum", dispatchtest.ForcedLogits(t, m, ids, 7, 4), want)
			if held := narrow.Ledger.Held()["staging"]; held > plan.Device(devicemap.CPU).StagingBytes+1<<16 { // whole pages of direct reads
				t.Errorf("%v: the bands take %d bytes\n%s", c, held, plan.Explain())
			}
			if held := narrow.Ledger.Held()["activations"]; held > plan.Device(devicemap.CPU).ActivationBytes {
				t.Errorf("%v: activations take %d bytes\n%s", c, held, plan.Explain())
			}
			m.Close()
		}
	}
}

// narrowly reports whether a plan warns that matrices are read in narrow parts.
func narrowly(plan *devicemap.Plan) bool {
	return strings.Contains(strings.Join(plan.Warnings, "\n"), "narrow parts")
}
