package meta

import (
	"encoding/json"
	"math"
	"slices"
)

// gemma4 is Gemma4ForCausalLM: gemma3 whose full layers have heads of another size and may use
// their keys as values, and whose last layers may share keys and values. Some models have
// per-layer inputs and experts parallel to the MLP.
func gemma4(f *fields, b *Builder) {
	f.gemma4(b, "Gemma4", 131072, 512)
}

// gemma4Unified is Gemma4UnifiedForCausalLM: gemma4 without per-layer inputs and experts.
func gemma4Unified(f *fields, b *Builder) {
	g := f.without("vocab_size_per_layer_input", "enable_moe_block")
	g.values["hidden_size_per_layer_input"] = json.Number("0")
	g.gemma4(b, "Gemma4Unified", 262144, 1024)
}

// gemma4 builds a model whose classes have the given prefix. context and window are defaults.
func (f *fields) gemma4(b *Builder, prefix string, context, window int) {
	def := gemmaDefaults(262144, context)
	def.layers = 30
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta"), prefix+"Text", def)
	d.normClass = prefix + "RMSNorm"
	g := &gemma4Layers{decoder: d, bias: f.bool("attention_bias", false), window: f.size("sliding_window", window)}
	g.read(f)
	w := wiring{
		block: BlockSpec{
			AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
			MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm", Scalar: "layer_scalar",
		},
		spec:       CausalLMSpec{EmbedScale: float32(math.Sqrt(float64(d.hidden))), LogitSoftcap: f.cap("final_logit_softcapping", 0)},
		wrapped:    true,
		embedClass: prefix + "TextScaledWordEmbedding",
		embed:      func(b *Builder) { b.Buffer("embed_scale", b.tree.dtype, false) },
		rotary:     func(b *Builder) { b.layerRotary(prefix+"TextRotaryEmbedding", g.sliding, g.full.rope, g.local.rope) },
	}
	if g.perLayer > 0 {
		w.spec.PerLayer, w.inputs = g.inputs(f, b.tree.textPath())
	}
	d.causalLM(f, b, w, g.layer)
}

// gemma4Layers holds properties of layers that decoder does not hold.
type gemma4Layers struct {
	*decoder
	bias        bool
	window      int
	sliding     []bool
	full, local gemma4Heads
	keysToo     bool // of full layers
	shared      int  // so many layers at the end take keys and values of an earlier layer
	wide        bool // their MLPs have twice the width
	perLayer    int  // width of a layer's input; 0 for none
	clips       bool // tokens without an input of their own have that of token 0
	moe         *MoESpec
	moeInner    int
}

// gemma4Heads are the heads of a kind of layers.
type gemma4Heads struct {
	dim, keys int
	rope      *RopeSpec
}

func (g *gemma4Layers) read(f *fields) {
	if kind := f.text("use_bidirectional_attention", ""); kind != "" && kind != "vision" {
		f.fail("use_bidirectional_attention", "%.40q is not supported: attention to later tokens", kind)
	}
	g.sliding = g.decoder.sliding(f, func(i int) bool { return (i+1)%6 != 0 })
	g.sliding[len(g.sliding)-1] = false // as the reference
	g.keysToo = f.bool("attention_k_eq_v", false)
	g.readHeads(f)
	g.readShared(f, 0)
	g.wide = f.bool("use_double_wide_mlp", false)
	g.perLayer = f.count("hidden_size_per_layer_input", 256, 0, maxSize)
	if f.bool("enable_moe_block", false) {
		g.readExperts(f)
	}
}

// readShared reads how many layers reuse the keys and values of earlier ones.
func (g *gemma4Layers) readShared(f *fields, def int) {
	if g.shared = f.count("num_kv_shared_layers", def, 0, maxLayers); g.shared >= g.layers {
		f.fail("num_kv_shared_layers", "%d of %d layers", g.shared, g.layers)
		g.shared = 0
	}
	for i := g.layers - g.shared; g.shared > 0 && i < g.layers; i++ {
		if g.source(i) < 0 {
			f.fail("num_kv_shared_layers", "%d: no layer before them is of the type of layer %d", g.shared, i)
			break
		}
	}
}

// readHeads reads the heads of full layers. The config states them for all of these layers or, if
// transformers saved it, per layer.
func (g *gemma4Layers) readHeads(f *fields) {
	g.local = gemma4Heads{dim: g.headDim, keys: g.kvHeads}
	g.full = gemma4Heads{dim: f.count("global_head_dim", 512, 1, maxHeads), keys: g.kvHeads}
	if g.keysToo {
		g.full.keys = f.count("num_global_key_value_heads", g.kvHeads, 1, maxHeads)
	}
	if f.object("per_layer_config") != nil {
		g.readHeadsByLayer(f, f.byLayer("per_layer_config", len(g.sliding)))
	}
	for _, of := range []*gemma4Heads{&g.full, &g.local} {
		if g.heads%of.keys != 0 {
			f.fail("num_key_value_heads", "%d does not divide the %d attention heads", of.keys, g.heads)
		}
	}
	g.readRopes(f)
}

// readHeadsByLayer reads the heads of both types of layers from the config's fields per layer.
func (g *gemma4Layers) readHeadsByLayer(f *fields, layers map[int]*fields) {
	seen := map[bool]bool{}
	for i, sliding := range g.sliding {
		heads := gemma4Heads{dim: g.headDim, keys: g.kvHeads}
		if l := layers[i]; l != nil {
			heads = gemma4Heads{dim: l.count("head_dim", g.headDim, 1, maxHeads), keys: l.count("num_key_value_heads", g.kvHeads, 1, maxHeads)}
			for name := range l.values {
				if name != "head_dim" && name != "num_key_value_heads" {
					l.fail(name, "is not supported by layer")
				}
			}
		}
		of := &g.full
		if sliding {
			of = &g.local
		}
		if seen[sliding] && (of.dim != heads.dim || of.keys != heads.keys) {
			f.fail("per_layer_config", "layer %d has other heads than the layers of its type before it", i)
		}
		seen[sliding], of.dim, of.keys = true, heads.dim, heads.keys
	}
}

func (g *gemma4Layers) readRopes(f *fields) {
	if f.object("rope_scaling") != nil {
		f.fail("rope_scaling", "is not supported for this model_type; use rope_parameters with full_attention and sliding_attention")
	}
	params := f.object("rope_parameters")
	read := func(kind string, of *gemma4Heads, def map[string]any) {
		p := &fields{at: f.at + "rope_parameters." + kind + ".", values: def, errs: f.errs}
		if params != nil {
			if p = params.object(kind); p == nil {
				params.fail(kind, "missing, but there are layers of this type")
				p = &fields{errs: f.errs}
			}
		}
		p.required("rope_theta")
		of.rope = f.without("rope_theta").ropeFrom(p, true, ropeDefaults{theta: 10000, headDim: of.dim, context: g.context, proportional: true})
	}
	if slices.Contains(g.sliding, true) {
		read("sliding_attention", &g.local, map[string]any{"rope_type": "default", "rope_theta": json.Number("10000")})
	}
	read("full_attention", &g.full, map[string]any{"rope_type": "proportional", "partial_rotary_factor": json.Number("0.25"), "rope_theta": json.Number("1e6")})
	g.rope = g.full.rope
}

// source returns the layer whose keys and values layer i reuses, or -1.
func (g *gemma4Layers) source(i int) int {
	for j := g.layers - g.shared - 1; j >= 0; j-- {
		if g.sliding[j] == g.sliding[i] {
			return j
		}
	}
	return -1
}

func (g *gemma4Layers) readExperts(f *fields) {
	for _, name := range []string{"num_experts", "top_k_experts", "moe_intermediate_size"} {
		if !f.has(name) {
			f.fail(name, "missing, but enable_moe_block is set")
		}
	}
	g.moe = f.experts("num_experts", 1, "top_k_experts", 1)
	g.moe.Router, g.moe.Score, g.moe.Renormalise, g.moe.Act = "proj", ScoreSoftmax, true, g.act.act
	g.moeInner = f.size("moe_intermediate_size", 1)
}

// inputs returns the spec of the per-layer inputs, and a function that adds the modules that
// compute them.
func (g *gemma4Layers) inputs(f *fields, path string) (*PerLayerSpec, func(*Builder)) {
	rows := f.size("vocab_size_per_layer_input", 262144)
	if rows < g.vocab && !g.clips {
		f.fail("vocab_size_per_layer_input", "%d, less than the vocab_size of %d", rows, g.vocab)
	}
	all := g.layers * g.perLayer
	spec := &PerLayerSpec{
		Embed: path + ".embed_tokens_per_layer", Projection: path + ".per_layer_model_projection", Norm: path + ".per_layer_projection_norm",
		Layers: g.layers, Width: g.perLayer,
		Rows: rows, EmbedScale: float32(math.Sqrt(float64(g.perLayer))), Factor: rootScale(float64(g.hidden)), Scale: rootScale(2),
	}
	return spec, func(b *Builder) {
		b.Embedding("embed_tokens_per_layer", g.class+"ScaledWordEmbedding", rows, all).Buffer("embed_scale", b.tree.dtype, false)
		b.Linear("per_layer_model_projection", g.hidden, all, false)
		g.norm(b, "per_layer_projection_norm", g.perLayer)
	}
}

// layer adds the contents of block i.
func (g *gemma4Layers) layer(b *Builder, i int) {
	block := *b.node.Spec.(*BlockSpec)
	b.node.Spec = &block
	b.Buffer("layer_scalar", b.tree.dtype, true, 1)
	g.attention(b, i)
	inner := g.inner
	if g.wide && i >= g.layers-g.shared {
		inner *= 2
	}
	g.gatedMLP(b, "mlp", inner, false)
	g.norms(b, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
	if g.perLayer > 0 {
		block.Input = &LayerInputSpec{
			Gate: "per_layer_input_gate", Projection: "per_layer_projection", Norm: "post_per_layer_input_norm",
			Index: i, Width: g.perLayer, Act: g.act.act,
		}
		b.Activation("act_fn", g.act.class, g.act.act)
		b.Linear("per_layer_input_gate", g.hidden, g.perLayer, false)
		b.Linear("per_layer_projection", g.perLayer, g.hidden, false)
		g.norms(b, "post_per_layer_input_norm")
	}
	if g.moe != nil {
		block.Experts = &ExpertsSpec{
			Experts: "experts", In: "pre_feedforward_layernorm_2", Out: "post_feedforward_layernorm_2", MLPOut: "post_feedforward_layernorm_1",
			Router: "router", RouterScale: "scale", ExpertScale: "per_expert_scale",
			RouterEps: g.normSpec.Eps, RouterFactor: rootScale(float64(g.hidden)),
		}
		g.experts(b)
	}
}

func (g *gemma4Layers) experts(b *Builder) {
	router := b.Child("router", "Gemma4TextRouter")
	router.Param("scale", g.hidden)
	router.Param("per_expert_scale", g.moe.Count)
	router.Child("norm", g.normClass).Runs(KindNorm, &NormSpec{Dim: g.hidden, Eps: g.normSpec.Eps})
	router.Linear("proj", g.hidden, g.moe.Count, false)
	e := b.Child("experts", "Gemma4TextExperts").Runs(KindMoE, g.moe)
	e.stackedExperts(g.moe, expertNames{class: "Gemma4TextExperts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{e.path}}, g.hidden, g.moeInner, g.act)
	g.norms(b, "post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2")
}

func (g *gemma4Layers) attention(b *Builder, i int) {
	of, window := g.full, 0
	if g.sliding[i] {
		of, window = g.local, g.window
	}
	spec := &AttentionSpec{
		Layer: i, Heads: g.heads, KVHeads: of.keys, HeadDim: of.dim, ValueDim: of.dim, Q: "q_proj", Out: "o_proj",
		QNorm: "q_norm", Scale: 1, Window: window, Rope: of.rope,
	}
	a := b.Child("self_attn", g.class+"Attention").Runs(KindAttention, spec)
	a.Linear("q_proj", g.hidden, g.heads*of.dim, g.bias)
	g.norm(a, "q_norm", of.dim)
	if i < g.layers-g.shared {
		spec.K, spec.V, spec.KNorm, spec.VNorm = "k_proj", "v_proj", "k_norm", "v_norm"
		g.norm(a, "k_norm", of.dim)
		a.Child("v_norm", g.normClass).Runs(KindNorm, &NormSpec{Dim: of.dim, Eps: g.normSpec.Eps})
		a.Linear("k_proj", g.hidden, of.keys*of.dim, g.bias)
		if spec.KeysToo = g.keysToo && !g.sliding[i]; spec.KeysToo {
			spec.V = ""
		} else {
			a.Linear("v_proj", g.hidden, of.keys*of.dim, g.bias)
		}
	} else {
		g.shares(b, a, spec, i)
	}
	a.Linear("o_proj", g.heads*of.dim, g.hidden, g.bias)
}

// shares lets attention a of layer i reuse the keys and values of an earlier layer.
func (g *gemma4Layers) shares(b, a *Builder, spec *AttentionSpec, i int) {
	spec.Layer, spec.Shared = g.source(i), true
	for _, name := range []string{"k_proj.*", "v_proj.*", "k_norm.*", "v_norm.*"} {
		b.Ignore(a.path + "." + name)
	}
}
