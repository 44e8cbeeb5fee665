package meta

import (
	"math"
	"strconv"
)

// gemma3n is Gemma3nForCausalLM: per-layer inputs and shared keys and values as in small models
// of gemma4, several residual streams (AltUp), a low-rank branch parallel to the attention
// (LAuReL), and MLPs with sparse gates.
func gemma3n(f *fields, b *Builder) {
	def := gemmaDefaults(262400, 32768)
	def.hidden, def.layers, def.kvHeads = 2048, 35, 2
	d := readDecoder(f.without("intermediate_size", "rope_parameters", "rope_scaling"), "Gemma3nText", def)
	d.normClass = "Gemma3nRMSNorm"
	g := &gemma3nLayers{gemma4Layers: gemma4Layers{
		decoder: d, bias: f.bool("attention_bias", false), window: f.size("sliding_window", 512), clips: true,
		perLayer: f.size("hidden_size_per_layer_input", 256),
	}}
	g.read(f)
	w := wiring{
		block: BlockSpec{
			AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
			MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm",
			AltUp: &g.altUp, Laurel: &LaurelSpec{Child: "laurel", Down: "linear_left", Up: "linear_right", Norm: "post_laurel_norm"},
		},
		spec:       CausalLMSpec{EmbedScale: float32(math.Sqrt(float64(d.hidden))), LogitSoftcap: f.cap("final_logit_softcapping", 30)},
		wrapped:    true,
		embedClass: "Gemma3nTextScaledWordEmbedding",
		embed:      func(b *Builder) { b.Buffer("embed_scale", b.tree.dtype, false) },
		rotary:     func(b *Builder) { b.layerRotary("Gemma3nRotaryEmbedding", g.sliding, g.full.rope, g.local.rope) },
	}
	path := b.tree.textPath()
	streams := g.altUp
	streams.In, streams.Out = path+".altup_projections", path+".altup_unembed_projections"
	w.spec.AltUp = &streams
	var inputs func(*Builder)
	w.spec.PerLayer, inputs = g.inputs(f, path)
	w.inputs = func(b *Builder) {
		inputs(b)
		for _, name := range []string{"altup_projections", "altup_unembed_projections"} {
			list := b.Child(name, "ModuleList")
			for i := range g.altUp.Count - 1 {
				list.Linear(strconv.Itoa(i), g.hidden, g.hidden, false)
			}
		}
		b.Buffer("per_layer_projection_scale", b.tree.dtype, false)
		b.Buffer("per_layer_input_scale", b.tree.dtype, false)
	}
	d.causalLM(f, b, w, g.layer)
}

// gemma3nLayers holds properties of layers that gemma4 does not have.
type gemma3nLayers struct {
	gemma4Layers
	altUp    AltUpSpec
	rank     int       // of the low-rank branch
	inners   []int     // widths of the MLPs
	sparsity []float64 // of the gates
}

func (g *gemma3nLayers) read(f *fields) {
	f.causalOnly()
	g.sliding = g.decoder.sliding(f, func(i int) bool { return (i+1)%5 != 0 })
	g.local = gemma4Heads{dim: g.headDim, keys: g.kvHeads}
	g.full = g.local
	g.full.rope, g.local.rope = f.layerRopes(ropeDefaults{theta: 1e6, headDim: g.headDim, context: g.context},
		ropeDefaults{theta: 10000, thetaField: "rope_local_base_freq", headDim: g.headDim, context: g.context})
	g.rope = g.full.rope
	g.readShared(f, 15)
	g.rank = f.size("laurel_rank", 64)
	g.altUp = AltUpSpec{
		Count: f.count("altup_num_inputs", 4, 1, 64), Child: "altup", RouterNorm: "router_norm", Router: "modality_router",
		Predict: "prediction_coefs", Correct: "correction_coefs",
	}
	g.altUp.Active = f.count("altup_active_idx", 0, 0, g.altUp.Count-1)
	if f.bool("altup_correct_scale", true) {
		g.altUp.Scale = "correct_output_scale"
	}
	g.readMLPs(f)
}

// readMLPs reads the widths of the MLPs, one for all or one per layer, and the share of each
// MLP's gates that is 0.
func (g *gemma3nLayers) readMLPs(f *fields) {
	const width, share = "intermediate_size", "activation_sparsity_pattern"
	if list, ok := f.values[width].([]any); ok {
		for i, v := range list {
			n, _ := f.integer(width+"["+strconv.Itoa(i)+"]", v, 1, maxSize)
			g.inners = append(g.inners, n)
		}
		if len(list) != g.layers {
			f.fail(width, "%d widths for %d layers", len(list), g.layers)
		}
	} else {
		for inner := f.size(width, 16384); len(g.inners) < g.layers; {
			g.inners = append(g.inners, inner)
		}
	}
	if f.has(share) {
		g.sparsity = f.floats(share)
	} else {
		for i := range g.layers {
			g.sparsity = append(g.sparsity, 0)
			if i < 10 && g.layers > 10 {
				g.sparsity[i] = 0.95
			}
		}
	}
	if len(g.sparsity) != g.layers {
		f.fail(share, "%d shares for %d layers", len(g.sparsity), g.layers)
	}
	for _, s := range g.sparsity {
		if s >= 1 {
			f.fail(share, "%v: got a share of 1 or more, want less", s)
		}
	}
}

// layer adds the contents of block i.
func (g *gemma3nLayers) layer(b *Builder, i int) {
	block := *b.node.Spec.(*BlockSpec)
	b.node.Spec = &block
	g.attention(b, i)
	g.gatedMLP(b, "mlp", g.inners[i], false)
	if share := g.sparsity[i]; share > 0 {
		mlp := b.node.Find("mlp").Spec.(*MLPSpec)
		mlp.Sparse, mlp.Cutoff = true, float32(math.Sqrt2*math.Erfinv(2*float64(float32(share))-1))
	}
	g.norms(b, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
	block.Input = &LayerInputSpec{
		Gate: "per_layer_input_gate", Projection: "per_layer_projection", Norm: "post_per_layer_input_norm",
		Index: i, Width: g.perLayer, Act: g.act.act,
	}
	b.Activation("act_fn", g.act.class, g.act.act)
	n := g.altUp.Count
	a := b.Child("altup", g.class+"AltUp")
	a.Param("correct_output_scale", g.hidden)
	a.Buffer("router_input_scale", b.tree.dtype, false)
	a.Linear("correction_coefs", n, n, false)
	a.Linear("prediction_coefs", n, n*n, false)
	a.Linear("modality_router", g.hidden, n, false)
	g.norm(a, "router_norm", g.hidden)
	l := b.Child("laurel", g.class+"LaurelBlock")
	l.Linear("linear_left", g.hidden, g.rank, false)
	l.Linear("linear_right", g.rank, g.hidden, false)
	g.norm(l, "post_laurel_norm", g.hidden)
	b.Linear("per_layer_input_gate", g.hidden, g.perLayer, false)
	b.Linear("per_layer_projection", g.perLayer, g.hidden, false)
	g.norms(b, "post_per_layer_input_norm")
}

func (g *gemma3nLayers) attention(b *Builder, i int) {
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
		a.Linear("k_proj", g.hidden, of.keys*of.dim, g.bias)
		a.Linear("v_proj", g.hidden, of.keys*of.dim, g.bias)
		g.norm(a, "k_norm", of.dim)
		a.Child("v_norm", g.normClass).Runs(KindNorm, &NormSpec{Dim: of.dim, Eps: g.normSpec.Eps})
	} else {
		g.shares(b, a, spec, i)
	}
	a.Linear("o_proj", g.heads*of.dim, g.hidden, g.bias)
}
