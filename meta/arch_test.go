package meta

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// attentionOf is the attention of one layer.
func attentionOf(t *testing.T, m *Model, path string) *AttentionSpec {
	t.Helper()
	node := m.Root.Find(path)
	if node == nil {
		t.Fatalf("no module %s", path)
	}
	return node.Spec.(*AttentionSpec)
}

// TestParsedValues checks what outputs hardly show, such as a norm's epsilon.
func TestParsedValues(t *testing.T) {
	for _, c := range []struct {
		config, norm string
		want         NormSpec
	}{
		{`{"model_type": "llama"}`, "model.norm", NormSpec{Dim: 4096, Eps: 1e-6}},
		{`{"model_type": "llama", "rms_norm_eps": 1e-05}`, "model.layers.31.input_layernorm", NormSpec{Dim: 4096, Eps: 1e-5}},
		{`{"model_type": "mistral"}`, "model.norm", NormSpec{Dim: 4096, Eps: 1e-6}},
		{`{"model_type": "mixtral"}`, "model.norm", NormSpec{Dim: 4096, Eps: 1e-5}},
		{`{"model_type": "qwen2"}`, "model.layers.0.post_attention_layernorm", NormSpec{Dim: 4096, Eps: 1e-6}},
		{`{"model_type": "qwen3", "rms_norm_eps": 1e-7}`, "model.layers.0.self_attn.k_norm", NormSpec{Dim: 128, Eps: 1e-7}},
		{`{"model_type": "gpt2"}`, "transformer.h.3.ln_2", NormSpec{Dim: 768, Eps: 1e-5, Layer: true}},
		{`{"model_type": "gpt2", "layer_norm_epsilon": 1e-12}`, "transformer.ln_f", NormSpec{Dim: 768, Eps: 1e-12, Layer: true}},
	} {
		got := *build(t, []byte(c.config)).Root.Find(c.norm).Spec.(*NormSpec)
		if got != c.want {
			t.Errorf("%s: %s: %+v, want %+v", c.config, c.norm, got, c.want)
		}
	}
	for config, want := range map[string]float64{
		`{"model_type": "llama"}`:                                   10000,
		`{"model_type": "mixtral"}`:                                 1e6,
		`{"model_type": "qwen2", "rope_theta": 1000000.0}`:          1e6,
		`{"model_type": "llama", "rope_theta": 500000}`:             500000,
		`{"model_type": "qwen3", "rope_parameters": {"a": "b"}}`:    10000,
		`{"model_type": "mistral", "rope_scaling": {"factor": 12}}`: 10000,
	} {
		r := ropeOf(t, build(t, []byte(config)))
		if r.Theta != want || r.Type != RopeDefault {
			t.Errorf("%s: %+v", config, r)
		}
	}
}

func TestAttentionSpecs(t *testing.T) {
	m := build(t, []byte(`{"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 32}`))
	got := *attentionOf(t, m, "model.layers.1.self_attn")
	want := AttentionSpec{Layer: 1, Heads: 4, KVHeads: 2, HeadDim: 32, ValueDim: 32, Q: "q_proj", K: "k_proj", V: "v_proj",
		Out: "o_proj", QNorm: "q_norm", KNorm: "k_norm", Scale: 0.17677669, Rope: got.Rope}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	// A head size of Qwen2's own is not in its class, but is obeyed.
	m = build(t, []byte(`{"model_type": "qwen2", "head_dim": 32, "num_hidden_layers": 1}`))
	if d := attentionOf(t, m, "model.layers.0.self_attn").HeadDim; d != 32 {
		t.Errorf("qwen2: head size %d", d)
	}
	m = build(t, []byte(`{"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true}`))
	if s := attentionOf(t, m, "transformer.h.3.attn"); s.Scale != 0.125/4 || s.Fused != "c_attn" || s.Rope != nil {
		t.Errorf("gpt2: %+v", s)
	}
	m = build(t, []byte(`{"model_type": "gpt2", "scale_attn_weights": false}`))
	if s := attentionOf(t, m, "transformer.h.0.attn"); s.Scale != 1 {
		t.Errorf("gpt2 unscaled: %+v", s)
	}
}

func TestWindows(t *testing.T) {
	const four = `"num_hidden_layers": 4, `
	for _, c := range []struct {
		config string
		want   []int
	}{
		{`{` + four + `"model_type": "mistral"}`, []int{4096, 4096, 4096, 4096}},
		{`{` + four + `"model_type": "mistral", "sliding_window": null}`, []int{0, 0, 0, 0}},
		{`{` + four + `"model_type": "mistral", "sliding_window": 8}`, []int{8, 8, 8, 8}},
		{`{` + four + `"model_type": "mixtral"}`, []int{0, 0, 0, 0}},
		{`{` + four + `"model_type": "mixtral", "sliding_window": 16}`, []int{16, 16, 16, 16}},
		{`{` + four + `"model_type": "llama", "sliding_window": 16}`, []int{0, 0, 0, 0}},
		{`{` + four + `"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 2}`, []int{0, 0, 0, 0}},
		{`{` + four + `"model_type": "qwen2", "sliding_window": 16, "max_window_layers": 2, "use_sliding_window": true}`, []int{0, 0, 16, 16}},
		{`{` + four + `"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": true}`, []int{0, 0, 0, 0}},
		{`{` + four + `"model_type": "qwen3", "max_window_layers": 0, "use_sliding_window": true}`, []int{4096, 4096, 4096, 4096}},
		{`{` + four + `"model_type": "qwen3", "sliding_window": 16, "use_sliding_window": true,
			"layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]}`, []int{16, 0, 16, 0}},
		{`{` + four + `"model_type": "qwen3", "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]}`, []int{0, 0, 0, 0}},
	} {
		m := build(t, []byte(c.config))
		var got []int
		for i := range 4 {
			got = append(got, attentionOf(t, m, fmt.Sprintf("model.layers.%d.self_attn", i)).Window)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: windows %v, want %v", c.config, got, c.want)
		}
	}
}

func TestMixtureSpec(t *testing.T) {
	m := build(t, []byte(`{"model_type": "mixtral", "num_hidden_layers": 1, "num_local_experts": 4, "hidden_size": 64, "intermediate_size": 32,
		"num_attention_heads": 4, "num_key_value_heads": 4}`))
	moe := m.Root.Find("model.layers.0.mlp")
	want := &MoESpec{Router: "gate", Experts: "experts", Count: 4, TopK: 2, Score: ScoreSoftmax, Renormalise: true,
		GateUp: "gate_up_proj", Down: "down_proj", GateOrder: GateHalves, Act: ActSiLU}
	if !reflect.DeepEqual(moe.Spec, want) {
		t.Errorf("%+v", moe.Spec)
	}
	const at = "model.layers.0.block_sparse_moe."
	for name, want := range map[string][]TensorSource{
		"gate_up_proj": {
			{Tensor: at + "experts.{}.w1.weight", Stack: 4, Into: RowRange{0, 32}},
			{Tensor: at + "experts.{}.w3.weight", Stack: 4, Into: RowRange{32, 64}},
		},
		"down_proj": {{Tensor: at + "experts.{}.w2.weight", Stack: 4}},
	} {
		if got := moe.Child("experts").Param(name).Sources; !slices.Equal(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// fakeHeader is a checkpoint of given names, all of one dtype.
type fakeHeader map[string]DType

func (h fakeHeader) Tensor(name string) ([]int, DType, bool) {
	d, ok := h[name]
	return nil, d, ok
}

func TestHeaderDTypes(t *testing.T) {
	cfg, err := ReadConfig([]byte(`{"model_type": "llama", "num_hidden_layers": 1, "torch_dtype": "bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(cfg, fakeHeader{"model.norm.weight": Float32, "model.embed_tokens.weight": Float8E4M3})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]DType{"model.norm": Float32, "model.embed_tokens": Float8E4M3, "lm_head": BFloat16} {
		if got := m.Root.Find(path).Param("weight").DType; got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// TestHeaderNames: sources are the names that stand in the file.
func TestHeaderNames(t *testing.T) {
	const experts = "model.layers.0.mlp.experts."
	for _, c := range []struct {
		what, config string
		header       fakeHeader
		module       string
		param        string
		want         []TensorSource
	}{
		{"gpt2 as published", `{"model_type": "gpt2"}`, fakeHeader{"h.2.attn.c_attn.weight": Float32},
			"transformer.h.2.attn.c_attn", "weight", []TensorSource{{Tensor: "h.2.attn.c_attn.weight"}}},
		{"gpt2 as saved", `{"model_type": "gpt2"}`, fakeHeader{"transformer.h.2.attn.c_attn.weight": Float32},
			"transformer.h.2.attn.c_attn", "weight", []TensorSource{{Tensor: "transformer.h.2.attn.c_attn.weight"}}},
		{"mixtral with fused experts", `{"model_type": "mixtral"}`, fakeHeader{experts + "gate_up_proj": Float32},
			"model.layers.0.mlp.experts", "gate_up_proj", []TensorSource{{Tensor: experts + "gate_up_proj"}}},
		{"mixtral with the module's name", `{"model_type": "mixtral"}`, fakeHeader{experts + "0.w2.weight": Float32},
			"model.layers.0.mlp.experts", "down_proj", []TensorSource{{Tensor: experts + "{}.w2.weight", Stack: 8}}},
		{"mixtral's router with the module's name", `{"model_type": "mixtral"}`, fakeHeader{"model.layers.0.mlp.gate.weight": Float32},
			"model.layers.0.mlp.gate", "weight", []TensorSource{{Tensor: "model.layers.0.mlp.gate.weight"}}},
		{"gpt_neox as published", `{"model_type": "gpt_neox"}`, fakeHeader{"embed_out.weight": Float16},
			"lm_head", "weight", []TensorSource{{Tensor: "embed_out.weight"}}},
		{"gpt_neox with the module's name", `{"model_type": "gpt_neox"}`, fakeHeader{"lm_head.weight": Float16},
			"lm_head", "weight", []TensorSource{{Tensor: "lm_head.weight"}}},
		{"tied under the head's name", `{"model_type": "llama", "tie_word_embeddings": true}`, fakeHeader{"lm_head.weight": Float16},
			"model.embed_tokens", "weight", []TensorSource{{Tensor: "lm_head.weight"}}},
	} {
		cfg, err := ReadConfig([]byte(c.config))
		if err != nil {
			t.Fatal(err)
		}
		m, err := New(cfg, c.header)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Root.Find(c.module).Param(c.param).Sources; !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
}

// TestTies: the head is the embedding where the config says so, but not where a
// checkpoint has both.
func TestTies(t *testing.T) {
	cfg, err := ReadConfig([]byte(`{"model_type": "llama", "tie_word_embeddings": true}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header CheckpointHeader
		tied   bool
	}{
		{nil, true},
		{fakeHeader{"model.embed_tokens.weight": Float32}, true},
		{fakeHeader{"lm_head.weight": Float32}, true},
		{fakeHeader{"model.embed_tokens.weight": Float32, "lm_head.weight": Float32}, false},
	} {
		m, err := New(cfg, c.header)
		if err != nil {
			t.Fatal(err)
		}
		head := m.Root.Child("lm_head").Param("weight")
		if tied := head.Resolve() == m.Root.Find("model.embed_tokens").Param("weight"); tied != c.tied {
			t.Errorf("%v: tied is %v", c.header, tied)
		}
		if ignored := slices.Contains(m.Ignore, "lm_head.weight"); ignored != c.tied {
			t.Errorf("%v: ignored %v", c.header, m.Ignore)
		}
	}
}

func TestIgnore(t *testing.T) {
	m := build(t, []byte(`{"model_type": "gpt2"}`))
	want := []string{"lm_head.weight", "transformer.h.*.attn.bias", "h.*.attn.bias", "transformer.h.*.attn.masked_bias", "h.*.attn.masked_bias"}
	if !slices.Equal(m.Ignore, want) {
		t.Errorf("%q", m.Ignore)
	}
}

// bigMixture is a mixture of a trillion parameters.
const bigMixture = `{"model_type": "mixtral", "num_hidden_layers": 61, "num_local_experts": 384, "num_experts_per_tok": 8,
	"hidden_size": 7168, "intermediate_size": 2048, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 163840,
	"torch_dtype": "bfloat16"}`

const llama405B = `{"model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
	"num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16"}`

// TestSkeletonMemory: the memory of a skeleton does not depend on the number of
// parameters or experts.
func TestSkeletonMemory(t *testing.T) {
	for _, c := range []struct {
		config string
		least  int64
	}{{llama405B, 405e9}, {bigMixture, 1e12}} {
		if n := build(t, []byte(c.config)).Root.NumParameters(); n < c.least {
			t.Errorf("%d parameters, want %d", n, c.least)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		build(t, []byte(c.config))
		runtime.ReadMemStats(&after)
		if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 4<<20 {
			t.Errorf("%d bytes for a skeleton, want at most 4 MiB", bytes)
		}
	}
}

func benchmarkSkeleton(b *testing.B, config string) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := newFrom(config); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSkeletonLlama405B(b *testing.B)       { benchmarkSkeleton(b, llama405B) }
func BenchmarkSkeletonTrillionMixture(b *testing.B) { benchmarkSkeleton(b, bigMixture) }

// specOf is the spec of a module of a model built from a config.
func specOf[S any](t *testing.T, config, path string) S {
	t.Helper()
	node := build(t, []byte(config)).Root.Find(path)
	if node == nil {
		t.Fatalf("%s: no module %s", config, path)
	}
	spec, ok := node.Spec.(*S)
	if !ok {
		t.Fatalf("%s: %s runs by %T", config, path, node.Spec)
	}
	return *spec
}

func TestBlockSpecs(t *testing.T) {
	const two = `"num_hidden_layers": 2`
	for _, c := range []struct {
		config, path string
		want         BlockSpec
	}{
		{`{"model_type": "llama", ` + two + `}`, "model.layers.1", preNorm()},
		{`{"model_type": "olmo2", ` + two + `}`, "model.layers.1", BlockSpec{Attention: "self_attn",
			PostAttentionNorm: "post_attention_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm"}},
		{`{"model_type": "gemma2", ` + two + `}`, "model.layers.0", BlockSpec{AttentionNorm: "input_layernorm", Attention: "self_attn",
			PostAttentionNorm: "post_attention_layernorm", MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm"}},
		{`{"model_type": "gpt_neox", ` + two + `}`, "gpt_neox.layers.0", BlockSpec{Parallel: true, AttentionNorm: "input_layernorm",
			Attention: "attention", MLPNorm: "post_attention_layernorm", MLP: "mlp"}},
		{`{"model_type": "cohere", ` + two + `}`, "model.layers.0", BlockSpec{Parallel: true, AttentionNorm: "input_layernorm",
			Attention: "self_attn", MLPNorm: "input_layernorm", MLP: "mlp"}},
		{`{"model_type": "stablelm", "use_parallel_residual": true, ` + two + `}`, "model.layers.0", BlockSpec{Parallel: true,
			AttentionNorm: "input_layernorm", Attention: "self_attn", MLPNorm: "input_layernorm", MLP: "mlp"}},
		{`{"model_type": "granite", "residual_multiplier": 0.25, ` + two + `}`, "model.layers.0", BlockSpec{AttentionNorm: "input_layernorm",
			Attention: "self_attn", MLPNorm: "post_attention_layernorm", MLP: "mlp", ResidualScale: 0.25}},
	} {
		if got := specOf[BlockSpec](t, c.config, c.path); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.config, got, c.want)
		}
	}
}

func TestScalesAndCaps(t *testing.T) {
	gemma := specOf[CausalLMSpec](t, `{"model_type": "gemma2", "hidden_size": 64}`, "")
	if gemma.EmbedScale != 8 || gemma.LogitSoftcap != 30 {
		t.Errorf("gemma2: %+v", gemma)
	}
	granite := specOf[CausalLMSpec](t, `{"model_type": "granite", "embedding_multiplier": 12, "logits_scaling": 8}`, "")
	if granite.EmbedScale != 12 || granite.LogitScale != 0.125 {
		t.Errorf("granite: %+v", granite)
	}
	if s := specOf[CausalLMSpec](t, `{"model_type": "cohere"}`, ""); s.LogitScale != 0.0625 {
		t.Errorf("cohere: %+v", s)
	}
	a := specOf[AttentionSpec](t, `{"model_type": "gemma2", "query_pre_attn_scalar": 144, "attn_logit_softcapping": 2.5}`, "model.layers.1.self_attn")
	if a.Scale != float32(1)/12 || a.Softcap != 2.5 || a.Window != 0 {
		t.Errorf("gemma2: %+v", a)
	}
	a = specOf[AttentionSpec](t, `{"model_type": "gemma2", "attn_logit_softcapping": null}`, "model.layers.0.self_attn")
	if a.Softcap != 0 || a.Window != 4096 {
		t.Errorf("gemma2 without caps: %+v", a)
	}
	if a := specOf[AttentionSpec](t, `{"model_type": "cohere"}`, "model.layers.0.self_attn"); !a.Rope.Interleaved {
		t.Errorf("cohere: %+v", a.Rope)
	}
	if a := specOf[AttentionSpec](t, `{"model_type": "gemma3_text", "attn_logit_softcapping": 2}`, "model.layers.0.self_attn"); a.Softcap != 0 {
		t.Errorf("gemma3, whose attention has no cap in the reference: %+v", a)
	}
	if n := specOf[NormSpec](t, `{"model_type": "gemma3_text"}`, "model.layers.0.self_attn.q_norm"); n.Offset != 1 || n.Dim != 256 {
		t.Errorf("gemma3: %+v", n)
	}
}

// TestGemma3Ropes: full layers have the scaled rope, the others the local one.
func TestGemma3Ropes(t *testing.T) {
	for _, config := range []string{
		`{"model_type": "gemma3_text", "sliding_window_pattern": 2, "rope_theta": 5e5, "rope_local_base_freq": 5000,
			"rope_scaling": {"rope_type": "linear", "factor": 8.0}}`,
		`{"model_type": "gemma3_text", "sliding_window_pattern": 2, "rope_parameters": {
			"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 500000},
			"sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}}}`,
	} {
		local := specOf[AttentionSpec](t, config, "model.layers.0.self_attn")
		full := specOf[AttentionSpec](t, config, "model.layers.1.self_attn")
		if local.Window != 4096 || local.Rope.Type != RopeDefault || local.Rope.Theta != 5000 {
			t.Errorf("%s: local %+v %+v", config, local, local.Rope)
		}
		if full.Window != 0 || full.Rope.Type != RopeLinear || full.Rope.Theta != 500000 || full.Rope.Factor != 8 {
			t.Errorf("%s: full %+v %+v", config, full, full.Rope)
		}
	}
}

func TestPhi3LongRope(t *testing.T) {
	const config = `{"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 4, "max_position_embeddings": 512,
		"original_max_position_embeddings": 32, "rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [1, 4]}}`
	r := specOf[AttentionSpec](t, config, "model.layers.0.self_attn").Rope
	if r.Type != RopeLongRope || r.Original != 32 || r.Factor != 16 {
		t.Fatalf("%+v", r)
	}
	short, scale := r.Frequencies(32)
	long, _ := r.Frequencies(33)
	if short[1] != 2*long[1] || short[0] != long[0] || scale <= 1 {
		t.Errorf("%v, %v, %v", short, long, scale)
	}
}

func TestDeepseekSpecs(t *testing.T) {
	const config = `{"model_type": "deepseek_v3", "num_hidden_layers": 5, "rms_norm_eps": 1e-5, "rope_scaling": {"type": "yarn", "factor": 40,
		"mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096}}`
	a := specOf[AttentionSpec](t, config, "model.layers.0.self_attn")
	want := MLASpec{QDown: "q_a_proj", QNorm: "q_a_layernorm", QUp: "q_b_proj", KVDown: "kv_a_proj_with_mqa",
		KVNorm: "kv_a_layernorm", KVUp: "kv_b_proj", LoraRank: 512, RopeDim: 64, NopeDim: 128}
	if *a.MLA != want || a.HeadDim != 192 || a.ValueDim != 128 || a.Rope.Dim != 64 || !a.Rope.Interleaved || a.Scale != 0.1352337788608801 {
		t.Errorf("%+v %+v %+v", a, a.MLA, a.Rope)
	}
	if n := specOf[NormSpec](t, config, "model.layers.0.self_attn.kv_a_layernorm"); n.Eps != 1e-6 {
		t.Errorf("latent norm: %+v", n)
	}
	if n := specOf[NormSpec](t, config, "model.layers.0.input_layernorm"); n.Eps != 1e-5 {
		t.Errorf("norm: %+v", n)
	}
	moe := specOf[MoESpec](t, config, "model.layers.3.mlp")
	wantMoE := MoESpec{Router: "gate", Experts: "experts", Shared: "shared_experts", Count: 256, TopK: 8, Score: ScoreSigmoid,
		Renormalise: true, Scale: 2.5, Correction: "e_score_correction_bias", Groups: 8, TopGroups: 4, GroupsByTwo: true,
		GateUp: "gate_up_proj", Down: "down_proj", Act: ActSiLU}
	if moe != wantMoE {
		t.Errorf("%+v", moe)
	}
	if _, dense := build(t, []byte(config)).Root.Find("model.layers.2.mlp").Spec.(*MLPSpec); !dense {
		t.Error("layer 2 is not dense")
	}
	if m := specOf[AttentionSpec](t, `{"model_type": "deepseek_v3", "q_lora_rank": null}`, "model.layers.0.self_attn").MLA; m.QDown != "" || m.QUp != "q_proj" {
		t.Errorf("without a query rank: %+v", m)
	}
}

func TestGptOSSSpecs(t *testing.T) {
	a := specOf[AttentionSpec](t, `{"model_type": "gpt_oss"}`, "model.layers.0.self_attn")
	if a.Sinks != "sinks" || a.Window != 128 || a.Rope.Type != RopeYarn || a.Rope.Factor != 32 || !a.Rope.NoTruncate || a.Rope.Theta != 150000 {
		t.Errorf("%+v %+v", a, a.Rope)
	}
	moe := specOf[MoESpec](t, `{"model_type": "gpt_oss"}`, "model.layers.0.mlp")
	want := MoESpec{Router: "router", Experts: "experts", Count: 128, TopK: 4, Score: ScoreTopKSoftmax, GateUp: "gate_up_proj", Down: "down_proj",
		GateUpBias: "gate_up_proj_bias", DownBias: "down_proj_bias", Transposed: true, GateOrder: GateInterleaved, Act: ActClampedSwiGLU, Limit: 7}
	if moe != want {
		t.Errorf("%+v", moe)
	}
}

func TestQwen3MoELayers(t *testing.T) {
	m := build(t, []byte(`{"model_type": "qwen3_moe", "num_hidden_layers": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3]}`))
	var kinds []Kind
	for i := range 4 {
		kinds = append(kinds, m.Root.Find(fmt.Sprintf("model.layers.%d.mlp", i)).Kind)
	}
	if want := []Kind{KindMLP, KindMoE, KindMLP, KindMLP}; !slices.Equal(kinds, want) {
		t.Errorf("%v, want %v", kinds, want)
	}
}

// TestGroupsWithoutMixturesAreUnread: a model all of whose layers are dense may have groups of experts that no mixture could have,
// such as the default of topk_group with n_group 1; with experts they are an error.
func TestGroupsWithoutMixturesAreUnread(t *testing.T) {
	const fields = `{"model_type": "deepseek_v3", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100, "n_group": 1, "first_k_dense_replace": `
	build(t, []byte(fields+"2}"))
	cfg, err := ReadConfig([]byte(fields + "1}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg, nil); err == nil || !strings.Contains(err.Error(), "topk_group: 4 of 1 groups") {
		t.Errorf("with a mixture: got %v", err)
	}
}

// TestPublishedTypesHaveTheTreesOfTransformers: the config of Kimi K2 has a model_type of its own and is otherwise
// DeepSeek-V3's, that of HyperCLOVA X with images says "vlm", and ERNIE's has lists for text and images. Each gives the tree of the type that transformers has.
func TestPublishedTypesHaveTheTreesOfTransformers(t *testing.T) {
	const deepseek = `"architectures": ["DeepseekV3ForCausalLM"], "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 8, "n_group": 1, "topk_group": 1, "hidden_size": 64, "vocab_size": 100}`
	const clova = `"architectures": ["HCXVisionV2ForCausalLM"], "text_config": {"model_type": "hyperclovax", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100, "logits_scaling": 0.5}}`
	const ernie, ernieText = `"num_hidden_layers": 5, "hidden_size": 64, "vocab_size": 100, "num_attention_heads": 4, `, `"moe_num_experts": 3, "moe_intermediate_size": [32, 16], "moe_k": 2, "moe_num_shared_experts": 1`
	const nemotron = `"num_hidden_layers": 4, "hybrid_override_pattern": "M*-M", "hidden_size": 64, "vocab_size": 100}}`
	for _, c := range []struct{ published, fields, known, knownFields string }{
		{"kimi_k2", deepseek, "deepseek_v3", deepseek},
		{"vlm", clova, "hyperclovax_vision_v2", clova},
		{"ernie4_5_moe_vl", ernie + `"moe_num_experts": [3, 3], "moe_intermediate_size": [32, 16], "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": [2, 1], "moe_layer_end_index": [3, 3], "moe_layer_interval": 2}`,
			"ernie4_5_vl_moe", `"text_config": {` + ernie + `"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "dense"], ` + ernieText + `}}`},
		{"ernie4_5_moe_vl", ernie + `"moe_num_experts": [3, 3], "moe_intermediate_size": [32, 16], "moe_k": 2, "moe_num_shared_experts": 1, "moe_layer_start_index": 2, "moe_layer_end_index": 29}`,
			"ernie4_5_vl_moe", `"text_config": {` + ernie + `"mlp_layer_types": ["dense", "dense", "sparse", "sparse", "sparse"], ` + ernieText + `}}`},
		{"NemotronH_Nano_Omni_Reasoning_V3", `"llm_config": {"model_type": "nemotron_h", ` + nemotron, "nemotron_h_omni", `"text_config": {"model_type": "nemotron_h", ` + nemotron},
	} {
		root := func(name, fields string) *Module { return build(t, []byte(`{"model_type": "`+name+`", `+fields)).Root }
		if !reflect.DeepEqual(root(c.published, c.fields), root(c.known, c.knownFields)) {
			t.Errorf("the tree of %s is not that of %s", c.published, c.known)
		}
	}
	cfg, err := ReadConfig([]byte(`{"architectures": ["DeepseekV3ForCausalLM"]}`))
	if err != nil || cfg.ModelType != "deepseek_v3" {
		t.Errorf("without a model_type: %v, %v", cfg, err)
	}
}
