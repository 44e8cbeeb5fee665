package disk_test

import (
	"encoding/binary"
	"fmt"
	"math"
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
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// latentFolder writes a checkpoint with latent attention whose expansion is larger than the rest of its block: in
// bfloat16, in "fp8", or as "noise", which coding does not make smaller.
func latentFolder(t *testing.T, heads int, kind string) (dir string, expansion int64) {
	t.Helper()
	const hidden, rope, rank, down, vocab = 128, 16, 256, 32, 300
	nope, value, format := 64, 48, ""
	if kind == "fp8" {
		nope, value = 128, 128
		format = `"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}, `
	}
	dir = t.TempDir()
	config := fmt.Sprintf(`{%s"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": %d,
		"intermediate_size": 64, "moe_intermediate_size": 64, "num_hidden_layers": 2, "first_k_dense_replace": 2, "n_routed_experts": 4,
		"n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
		"num_attention_heads": %d, "num_key_value_heads": %d, "q_lora_rank": %d, "kv_lora_rank": %d, "qk_nope_head_dim": %d,
		"qk_rope_head_dim": %d, "v_head_dim": %d, "vocab_size": %d, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000,
		"tie_word_embeddings": false}`, format, hidden, heads, heads, down, rank, nope, rope, value, vocab)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(8, 9))
	var tensors []loader.NamedTensor
	add := func(name string, shape ...int) { tensors = append(tensors, bfloats(rng, name, shape...)) }
	add("model.embed_tokens.weight", vocab, hidden)
	for i := range 2 {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"self_attn.q_a_proj.weight", down, hidden)
		add(at+"self_attn.q_a_layernorm.weight", down)
		add(at+"self_attn.q_b_proj.weight", heads*(nope+rope), down)
		add(at+"self_attn.kv_a_proj_with_mqa.weight", rank+rope, hidden)
		add(at+"self_attn.kv_a_layernorm.weight", rank)
		switch name := at + "self_attn.kv_b_proj.weight"; kind {
		case "fp8":
			tensors = append(tensors, fp8Matrix(rng, name, heads*(nope+value), rank)...)
		case "noise":
			tensors = append(tensors, noise(rng, name, heads*(nope+value), rank))
		default:
			add(name, heads*(nope+value), rank)
		}
		add(at+"self_attn.o_proj.weight", hidden, heads*value)
		add(at+"mlp.gate_proj.weight", 64, hidden)
		add(at+"mlp.up_proj.weight", 64, hidden)
		add(at+"mlp.down_proj.weight", hidden, 64)
		add(at+"input_layernorm.weight", hidden)
		add(at+"post_attention_layernorm.weight", hidden)
	}
	add("model.norm.weight", hidden)
	add("lm_head.weight", vocab, hidden)
	if err := loader.Save(dir, slices.Values(tensors), loader.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if kind == "fp8" {
		return dir, int64(heads * (nope + value) * rank)
	}
	return dir, int64(2 * heads * (nope + value) * rank)
}

// bfloats is a tensor of small numbers, around 1 if it is a norm.
func bfloats(rng *rand.Rand, name string, shape ...int) loader.NamedTensor {
	var b []byte
	centre := float64(2 - len(shape))
	for range meta.Elements(shape) {
		b = binary.LittleEndian.AppendUint16(b, mat.ToBFloat16(float32(centre+0.1*rng.NormFloat64())))
	}
	return loader.NamedTensor{Name: name, DType: meta.BFloat16, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }}
}

// noise is a matrix of all exponents up to that of 1/8.
func noise(rng *rand.Rand, name string, shape ...int) loader.NamedTensor {
	var b []byte
	for range meta.Elements(shape) {
		b = binary.LittleEndian.AppendUint16(b, uint16(rng.IntN(2)<<15|rng.IntN(0x3e00)))
	}
	return loader.NamedTensor{Name: name, DType: meta.BFloat16, Shape: shape, Bytes: func() ([]byte, error) { return b, nil }}
}

// fp8Matrix is a matrix in FP8 with a scale for each block of 128 by 128.
func fp8Matrix(rng *rand.Rand, name string, rows, cols int) []loader.NamedTensor {
	codes := make([]byte, rows*cols)
	for i := range codes {
		codes[i] = byte(rng.IntN(256)) &^ 8 // no NaN
	}
	blocks := []int{rows / 128, cols / 128}
	var scales []byte
	for range meta.Elements(blocks) {
		scales = binary.LittleEndian.AppendUint32(scales, math.Float32bits(0.0005+0.001*rng.Float32()))
	}
	return []loader.NamedTensor{
		{Name: name, DType: meta.Float8E4M3, Shape: []int{rows, cols}, Bytes: func() ([]byte, error) { return codes, nil }},
		{Name: name + "_scale_inv", DType: meta.Float32, Shape: blocks, Bytes: func() ([]byte, error) { return scales, nil }},
	}
}

// TestAnExpansionStreamsInHalves: the expansion of latent attention passed whole, as its heads have rows of keys and of
// values, which a pass uses at different times. It streams as the keys of some heads at a time, then as the values:
// logits are those of all weights in memory, each byte is read once, and the minimum has no room for an expansion.
func TestAnExpansionStreamsInHalves(t *testing.T) {
	t.Run("bfloat16", func(t *testing.T) { streamsInHalves(t, "", dispatch.Options{}) })
	t.Run("fp8", func(t *testing.T) { streamsInHalves(t, "fp8", dispatch.Options{}) })
	t.Run("converted to q8_0", func(t *testing.T) { streamsInHalves(t, "", dispatch.Options{Quantize: meta.QuantQ8}) })
	t.Run("converted to q4_0", func(t *testing.T) { streamsInHalves(t, "", dispatch.Options{Quantize: meta.QuantQ4}) })
	t.Run("coded", func(t *testing.T) { streamsInHalves(t, "", dispatch.Options{Compress: dispatch.CompressExact}) })
}

// latentFor is latentFolder for options, with the size of an expansion when it is loaded.
func latentFor(t *testing.T, kind string, o dispatch.Options) (dir string, expansion int64) {
	heads := 32
	if o.Quantize != meta.QuantNone || o.Compress != dispatch.CompressNone {
		heads = 128 // scratch memory of reads does not become smaller with converted weights
	}
	dir, expansion = latentFolder(t, heads, kind)
	switch {
	case o.Quantize == meta.QuantQ8:
		expansion = expansion * 34 / 64
	case o.Quantize == meta.QuantQ4:
		expansion = expansion * 18 / 64
	case o.Compress == dispatch.CompressExact:
		expansion = expansion * 3 / 4
	}
	return dir, expansion
}

func streamsInHalves(t *testing.T, kind string, o dispatch.Options) {
	dir, expansion := latentFor(t, kind, o)
	ids := []int32{17, 99, 4, 81, 50, 77, 3, 3, 250, 12}
	o.Threads, o.Context, o.MaxBatchTokens, o.MaxSequences, o.CacheDir = 2, 16, 8, 1, t.TempDir()
	whole := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, whole, ids, 5, 5)
	whole.Close()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1}}
	least, _, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxMemory[0].Bytes = float64(least.Least)
	plan, planned, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if beside := plan.Least - plan.Device(devicemap.CPU).ActivationBytes; plan.BelowLeast || beside >= expansion/2 {
		t.Fatalf("the minimum without activations is %d bytes, want less than half of the %d of an expansion\n%s", beside, expansion, plan.Explain())
	}
	disk, _ := devicemap.ParsePolicy("disk")
	o.DeviceMap, o.MaxMemory = disk, nil
	onDisk, forDisk, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		plan devicemap.Plan
		o    dispatch.Options
	}{"small": {plan, planned}, "disk": {onDisk, forDisk}, "small bands": {onDisk, dispatchtest.InBands(forDisk, 4096)}} {
		c.o.Ledger = new(dispatch.Ledger)
		m, err := dispatch.New(skeleton, checkpoint, c.plan.Map, c.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, chunk := range []int{5, 2} {
			before := m.Status().TierReadBytes
			dispatchtest.SameLogits(t, fmt.Sprintf("%s, chunks of %d", what, chunk), dispatchtest.ForcedLogits(t, m, ids, 5, chunk), want)
			passes := int64(len(ids) - 5 + (5+chunk-1)/chunk)
			if read, per := m.Status().TierReadBytes-before, c.plan.DiskBytesPerToken; read > passes*(per+per/20)+c.plan.Device(devicemap.CPU).StagingBytes {
				t.Errorf("%s: %d passes read %d bytes, planned are %d for each", what, passes, read, per)
			}
		}
		var held int64
		for _, n := range c.o.Ledger.Held() {
			held += n
		}
		if limit := c.plan.Device(devicemap.CPU).LimitBytes; what == "small" && held > limit+1<<16 { // whole pages of direct reads
			t.Errorf("the model holds %d bytes, the limit is %d\n%s", held, limit, c.plan.Explain())
		}
		m.Close()
	}
}

// TestADamagedExpansionIsConvertedAgain: the next start verifies the tiles of each band of heads, which are parts of the
// file, and converts damaged ones again. An expansion that coding does not make smaller streams as stored, and in the
// first pass, whose bands are of the file, from the checkpoint.
func TestADamagedExpansionIsConvertedAgain(t *testing.T) {
	ids := []int32{17, 99, 4, 81, 50}
	for _, c := range []struct {
		kind string
		dispatch.Options
	}{{"", dispatch.Options{Quantize: meta.QuantQ8}}, {"noise", dispatch.Options{Compress: dispatch.CompressExact}}} {
		dir, _ := latentFolder(t, 64, c.kind)
		o := c.Options
		o.Threads, o.Context, o.MaxSequences, o.CacheDir = 2, 16, 1, t.TempDir()
		m := dispatchtest.OpenModel(t, dir, o)
		want := dispatchtest.ForcedLogits(t, m, ids, 5, 5)
		m.Close()
		o.DeviceMap, _ = devicemap.ParsePolicy("disk")
		run := func(when string) string {
			return dispatchtest.LogOf(func() {
				m := dispatchtest.OpenModel(t, dir, dispatchtest.InBands(o, 4096))
				dispatchtest.SameLogits(t, when, dispatchtest.ForcedLogits(t, m, ids, 5, 5), want)
				m.Warm(t.Context())
				dispatchtest.WaitForSidecar(t, o.CacheDir)
				dispatchtest.SameLogits(t, when+", again", dispatchtest.ForcedLogits(t, m, ids, 5, 2), want)
				m.Close()
			})
		}
		run("the first start")
		name, text := dispatchtest.WaitForSidecar(t, o.CacheDir)
		if log := run("the next start"); strings.Contains(log, "again") {
			t.Errorf("the next start: %s", log)
		}
		if c.kind == "noise" {
			continue
		}
		ck, err := loader.OpenBytes("whole", map[string][]byte{"model.safetensors": text})
		if err != nil {
			t.Fatal(err)
		}
		x, ok := ck.Lookup("model.layers.1.self_attn.kv_b_proj.weight/weight/0")
		if !ok {
			t.Fatal("there is no expansion in the file")
		}
		harmed := slices.Clone(text)
		harmed[x.Offset+x.Size*2/3] ^= 1
		if err := os.WriteFile(name, harmed, 0o600); err != nil {
			t.Fatal(err)
		}
		if log := run("damaged"); !strings.Contains(log, "converting a damaged matrix again") {
			t.Errorf("damaged: %s", log)
		}
		if now, err := os.ReadFile(name); err != nil || !slices.Equal(now, text) {
			t.Errorf("the file differs after the repair: %v", err)
		}
	}
}
