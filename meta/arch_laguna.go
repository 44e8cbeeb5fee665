package meta

// laguna is LagunaForCausalLM: attention with norms on query and key heads and a softplus gate, a
// number of query heads per layer, a rope per type of layer, and MoE layers with sigmoid routing.
func laguna(f *fields, b *Builder) {
	l := &lagunaLayers{decoder: readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"), "Laguna", decoderDefaults{
		vocab: 100352, hidden: 2048, inner: 8192, layers: 40, heads: 48, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})}
	l.bias = f.bool("attention_bias", false)
	l.window = f.size("sliding_window", 512)
	l.sliding = l.decoder.sliding(f, func(int) bool { return false })
	l.ropes = l.typedRopes(f, l.sliding, ropeDefaults{theta: 500000, partial: 0.5}, ropeDefaults{theta: 10000, partial: 1})
	l.readHeads(f)
	l.gateAct = ActSoftplus
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	spec := l.readMixture(f)
	sparse := l.layersWithMixture(f, func(i int) bool { return i > 0 })
	w := wiring{block: preNorm(), rotary: func(b *Builder) { b.layerRotary("LagunaRotaryEmbedding", l.sliding, l.ropes[0], l.ropes[1]) }}
	l.causalLM(f, b, w, func(b *Builder, i int) {
		l.attention(b, i)
		if sparse[i] {
			l.mixture(b, *spec, inner, shared)
		} else {
			l.gatedMLP(b, "mlp", l.inner, false)
		}
		l.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// lagunaLayers holds properties of layers that decoder does not hold.
type lagunaLayers struct {
	*decoder
	bias    bool
	window  int
	sliding []bool
	ropes   [2]*RopeSpec // of layers with full attention, and of those with a window
	queries []int        // heads of each layer
	byHead  bool         // a gate for each head, not for each of its channels
	gateAct Activation   // of gates; ActNone: a sigmoid
	scale   float32      // of scores; 0: the usual one
}

// readHeads reads the query heads of each layer, and their gates.
func (l *lagunaLayers) readHeads(f *fields) {
	const name = "num_attention_heads_per_layer"
	if f.has(name) && !f.null(name) {
		if l.queries = f.tokens(name); len(l.queries) != l.layers {
			f.fail(name, "%d numbers of heads for %d layers", len(l.queries), l.layers)
		}
	} else {
		for range l.layers {
			l.queries = append(l.queries, l.heads)
		}
	}
	l.checkQueries(f, name)
	l.readGating(f)
}

// checkQueries checks the heads of each layer, which the field called name states.
func (l *lagunaLayers) checkQueries(f *fields, name string) {
	for _, n := range l.queries {
		if n < 1 || n > maxHeads || n%l.kvHeads != 0 {
			f.fail(name, "%d is not a multiple of the %d key/value heads", n, l.kvHeads)
			break
		}
	}
}

// readGating reads whether a gate applies to a head or to a channel.
func (l *lagunaLayers) readGating(f *fields) {
	switch kind, _ := f.values["gating"].(string); kind {
	case "", "per-head":
		l.byHead = kind != "" || f.bool("gating", true)
	case "per-element":
	default:
		f.fail("gating", "%.40q is not supported", kind)
	}
}

func (l *lagunaLayers) readMixture(f *fields) *MoESpec {
	spec := f.experts("num_experts", 256, "num_experts_per_tok", 8)
	spec.Router, spec.Experts, spec.Shared, spec.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	spec.Score, spec.Renormalise, spec.Scale = ScoreSigmoid, true, float32(f.positive("moe_routed_scaling_factor", 1))
	if spec.Softcap = float32(f.float("moe_router_logit_softcapping", 0)); spec.Softcap < 0 {
		f.fail("moe_router_logit_softcapping", "%v is negative", spec.Softcap)
	}
	if f.bool("moe_apply_router_weight_on_input", false) {
		f.fail("moe_apply_router_weight_on_input", "true is not supported")
	}
	return spec
}

func (l *lagunaLayers) attention(b *Builder, i int) {
	d := *l.decoder
	d.heads = l.queries[i]
	s := AttentionSpec{Layer: i, Rope: l.ropes[0], QNorm: "q_norm", KNorm: "k_norm", Gate: "g_proj", GateAct: l.gateAct, GateByHead: l.byHead, Scale: l.scale}
	if l.sliding[i] {
		s.Rope, s.Window = l.ropes[1], l.window
	}
	a := d.attention(b, l.bias, l.bias, s)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
	width := d.heads * d.headDim
	if l.byHead {
		width = d.heads
	}
	a.Linear("g_proj", d.hidden, width, false)
}

// mixture adds an MoE layer. In published files the router's correction is among the experts, and
// the shared expert has another name.
func (l *lagunaLayers) mixture(b *Builder, spec MoESpec, inner, shared int) {
	m, router := l.mixtureAndRouter(b, spec, inner)
	router.ParamFrom(spec.Correction, []int{spec.Count}, []TensorSource{{Tensor: m.path + ".experts." + spec.Correction}},
		[]TensorSource{{Tensor: Join(router.path, spec.Correction)}})
	l.gatedMLPIn(m.Child("shared_experts", l.mlpClass).Published(m.path+".shared_expert"), shared, false)
}
