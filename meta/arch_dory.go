package meta

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// dory is DoryForCausalLM: a normalised transformer (nGPT), whose hidden states, queries and keys
// have length 1, and whose middle blocks run several times. Each of their runs begins with the
// result of the one before it plus that of the first blocks.
func dory(f *fields, b *Builder) {
	f = f.singleBlocks()
	d := readDecoder(f.without("rms_norm_eps"), "Dory", decoderDefaults{
		vocab: 131072, hidden: 2560, inner: 7168, layers: 36, heads: 16, kvHeads: 4, headDim: 256,
		context: 8192, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	d.normClass, d.normSpec.L2, d.bareNorms = "DoryL2Norm", true, true
	y := &doryLayers{decoder: d, bias: f.bool("attention_bias", false), mlpBias: f.bool("mlp_bias", false)}
	y.sliding = d.sliding(f, func(i int) bool { return (i+1)%4 != 0 })
	y.window = f.slidingWindow(1024, y.sliding)
	y.full, y.local = f.layerRopes(ropeDefaults{theta: 1e7, headDim: d.headDim, context: d.context}, ropeDefaults{theta: 10000, headDim: d.headDim, context: d.context})
	d.rope = y.full
	y.init = f.positive("initializer_range", 0.0177)
	y.rate = f.positive("ngpt_alpha_init", 0.05)
	path := b.tree.textPath()
	w := wiring{block: BlockSpec{
		AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
		MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm",
		NormedResidual: true, Carries: true, AttentionRate: y.scaled("lambda_1", y.rate, ScaleAbsolute), MLPRate: y.scaled("lambda_2", y.rate, ScaleAbsolute),
	}}
	w.rotary = func(b *Builder) { b.layerRotary("DoryRotaryEmbedding", y.sliding, y.full, y.local) }
	w.spec = CausalLMSpec{Runs: y.runs(f, path), Carry: d.hidden, LogitChannels: y.scaled("logit_scale", 1, ScalePlain)}
	w.headClass, w.head = "DoryLMHead", func(b *Builder) { b.Param("logit_scale", d.vocab) }
	b.publishes("model.embed_tokens.", "backbone.embeddings.", "model.", "backbone.", ".self_attn.gate_proj.", ".self_attn.g_proj.")
	d.causalLM(f, b, w, y.layer)
}

// singleBlocks returns the fields of a config that counts attention and MLP as two layers, as
// published, with blocks of both instead.
func (f *fields) singleBlocks() *fields {
	types := f.texts("layer_types")
	if !slices.Contains(types, "mlp") {
		return f
	}
	values := maps.Clone(f.values)
	var kept []any
	for i := 0; i < len(types); i += 2 {
		kept = append(kept, types[i])
	}
	values["layer_types"] = kept
	for name, def := range map[string]int{"num_hidden_layers": 36, "n_input_layers": 8, "n_output_layers": 8, "n_recurrent_layers": 0} {
		if name != "n_recurrent_layers" || f.has(name) && !f.null(name) {
			values[name] = json.Number(strconv.Itoa(f.count(name, def, 0, 2*maxLayers) / 2))
		}
	}
	return &fields{at: f.at, values: values, errs: f.errs}
}

// doryLayers holds properties of layers that decoder does not hold.
type doryLayers struct {
	*decoder
	bias, mlpBias bool
	sliding       []bool
	window        int
	full, local   *RopeSpec
	init, rate    float64 // first value of learned scales, and that of rates
}

// scaled returns the factors of a learned scale, of which the first value stands for value.
func (y *doryLayers) scaled(param string, value float64, form ScaleForm) *ChannelScaleSpec {
	return &ChannelScaleSpec{Param: param, Factor: float32(value / y.init), Form: form}
}

// runs returns the runs of the blocks: the first and the last ones once, the others in a loop.
func (y *doryLayers) runs(f *fields, path string) (runs []RunSpec) {
	first, last := f.count("n_input_layers", 8, 0, maxLayers), f.count("n_output_layers", 8, 0, maxLayers)
	looped := y.layers - first - last
	if f.has("n_recurrent_layers") && !f.null("n_recurrent_layers") {
		looped = f.count("n_recurrent_layers", looped, 0, maxLayers)
	}
	loops := f.count("n_recurrent_loops", 2, 1, 1<<10)
	if first+looped+last != y.layers || looped < 1 {
		f.fail("n_recurrent_layers", "%d between %d and %d layers, want 1 or more, and %d together", looped, first, last, y.layers)
	}
	if mode := f.text("recurrent_kv_cache_mode", "per_loop"); mode != "per_loop" && loops > 1 {
		f.fail("recurrent_kv_cache_mode", "%.40q is not supported, want per_loop: with one cache for all loops, answers depend on how a prompt is divided", mode)
	}
	add := func(from, to, offset int, entry *RunEntrySpec) {
		if from < to {
			runs = append(runs, RunSpec{Blocks: path + ".layers", From: from, To: to, Offset: offset, Entry: entry})
		}
	}
	add(0, first, 0, nil)
	for i := range loops {
		offset := 0
		if i > 0 {
			offset = y.layers - first + (i-1)*looped
		}
		add(first, first+looped, offset, &RunEntrySpec{Norm: path + ".norm", First: i == 0, Keeps: i == 0})
	}
	add(first+looped, y.layers, 0, nil)
	return runs
}

// published returns the path of a layer in published files, beside block b in the tree.
func (y *doryLayers) published(b *Builder, layer int) string {
	return strings.TrimSuffix(b.path, b.node.Name) + strconv.Itoa(layer)
}

// layer adds the contents of a block. Published files have its attention and its MLP as two layers.
func (y *doryLayers) layer(b *Builder, i int) {
	attention, mlp := y.published(b, 2*i), y.published(b, 2*i+1)
	for _, rate := range [][2]string{{"lambda_1", attention + ".attn_alpha"}, {"lambda_2", mlp + ".mlp_alpha"}} {
		b.ParamFrom(rate[0], []int{y.hidden}, []TensorSource{{Tensor: rate[1]}}, []TensorSource{{Tensor: Join(b.path, rate[0])}})
	}
	y.attend(b, attention+".mixer", i)
	y.feed(b, mlp+".mixer")
	y.norms(b, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
}

// attend adds the attention of block i, whose tensors published files have at a path.
func (y *doryLayers) attend(b *Builder, published string, i int) {
	heads, keys := y.heads*y.headDim, y.kvHeads*y.headDim
	s := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm", Gate: "gate_proj", OutNorm: "attn_sub_norm", Rope: y.full,
		QueryChannels: y.scaled("sqk", math.Sqrt(float64(y.headDim)), ScaleSquare), GateChannels: y.scaled("s_gate", math.Pow(float64(y.hidden), 0.25), ScaleSquare)}
	if y.sliding[i] {
		s.Window, s.Rope = y.window, y.local
	}
	spec := y.attentionSpec(s)
	spec.Q, spec.K, spec.V, spec.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", "DoryAttention").Published(published).Runs(KindAttention, spec)
	a.Param("sqk", heads)
	a.Param("s_gate", heads)
	a.Linear("q_proj", y.hidden, heads, y.bias)
	a.Linear("k_proj", y.hidden, keys, y.bias)
	a.Linear("v_proj", y.hidden, keys, y.bias)
	a.Linear("o_proj", heads, y.hidden, y.bias)
	y.norm(a, "q_norm", y.headDim)
	y.norm(a, "k_norm", y.headDim)
	a.Child("gate_proj", "Linear").Published(published+".g_proj").Runs(KindLinear, &LinearSpec{In: y.hidden, Out: heads}).Param("weight", heads, y.hidden)
	y.norm(a, "attn_sub_norm", heads)
}

// feed adds the MLP of a block, whose tensors published files have at a path.
func (y *doryLayers) feed(b *Builder, published string) {
	m := b.Child("mlp", "DoryMLP").Published(published)
	m.Param("suv_gate", y.inner)
	m.Param("suv_up", y.inner)
	y.gatedMLPIn(m, y.inner, y.mlpBias)
	spec, root := m.node.Spec.(*MLPSpec), float32(math.Sqrt(float64(y.hidden)))
	spec.GateChannels, spec.UpChannels = &ChannelScaleSpec{Param: "suv_gate", Factor: root}, &ChannelScaleSpec{Param: "suv_up", Factor: root}
	spec.InnerNorm = "ffn_sub_norm"
	y.norm(m, "ffn_sub_norm", y.inner)
}
