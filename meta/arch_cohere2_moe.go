package meta

// cohere2MoE is Cohere2MoeForCausalLM: cohere2 with MoE layers, in all layers or after some dense
// ones.
func cohere2MoE(f *fields, b *Builder) {
	d := readDecoder(f, "Cohere2Moe", decoderDefaults{
		vocab: 256000, hidden: 8192, inner: 22528, layers: 40, heads: 64, headDim: 128,
		context: 8192, eps: 1e-5, epsField: "layer_norm_eps", act: "silu", tied: true,
		rope: ropeDefaults{theta: 10000, interleaved: true},
	})
	if p := f.object("rope_scaling"); p != nil && p.ropeType() != "default" {
		f.fail("rope_scaling", "is not supported for this model_type; use rope_parameters")
	}
	d.normClass, d.normSpec.Layer = "Cohere2MoeLayerNorm", true
	if f.has("rms_norm_eps") {
		d.normClass, d.normSpec = "Cohere2MoeRMSNorm", NormSpec{Eps: float32(f.positive("rms_norm_eps", 1e-5))}
	}
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 4096)
	first, prefix, pattern := f.count("first_k_dense_replace", 0, 0, maxLayers), f.size("prefix_dense_sliding_window_pattern", 1), f.size("sliding_window_pattern", 4)
	sliding := d.sliding(f, func(i int) bool {
		if i < first {
			return (i+1)%prefix != 0
		}
		return (i-first+1)%pattern != 0
	})
	sparse := d.layersWithMixture(f, func(i int) bool { return i >= first })
	m := d.cohereExperts(f)
	m.dense(f, sparse)
	w := wiring{
		block: BlockSpec{
			Parallel: true, AttentionNorm: "input_layernorm", Attention: "self_attn",
			MLPNorm: "input_layernorm", MLP: "mlp",
		},
		spec: CausalLMSpec{LogitScale: float32(f.positive("logit_scale", 0.0625))},
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i, Window: windowIf(sliding[i], window)}
		if spec.Window == 0 && (sparse[i] || prefix != 1) {
			spec.Rope = noRope
		}
		d.attention(b, bias, bias, spec)
		if sparse[i] {
			if block := w.block; m.average {
				block.MLPOut = 0.5
				b.Runs(KindBlock, &block)
			}
			m.add(b)
		} else {
			d.gatedMLP(b, "mlp", m.denseInner, false)
		}
		d.norms(b, "input_layernorm")
	})
}

// cohereMixture is an MoE layer with shared experts, and the width of layers without one.
type cohereMixture struct {
	*decoder
	spec       *MoESpec
	shared     int // width of the shared experts together
	average    bool
	denseInner int
}

func (d *decoder) cohereExperts(f *fields) *cohereMixture {
	m := &cohereMixture{decoder: d, spec: f.experts("num_experts", 8, "num_experts_per_tok", 2)}
	s := m.spec
	s.Router, s.Experts, s.Act = "gate", "experts", d.act.act
	switch score := f.text("expert_selection_fn", "softmax"); score {
	case "softmax":
		s.Score = ScoreTopKSoftmax
	case "sigmoid":
		s.Score, s.Renormalise = ScoreTopKSigmoid, f.bool("norm_topk_prob", true)
	default:
		f.fail("expert_selection_fn", "%.40q is not supported (supported: softmax, sigmoid)", score)
	}
	if m.shared = d.inner * f.count("num_shared_experts", 0, 0, maxExperts); m.shared == 0 {
		return m
	}
	s.Shared = "shared_experts"
	switch how := f.text("shared_expert_combination_strategy", "average"); how {
	case "average":
		m.average = true
	case "sum":
	default:
		f.fail("shared_expert_combination_strategy", "%.40q is not supported (supported: sum, average)", how)
	}
	return m
}

// dense reads the width of layers without an MoE layer, if there are some.
func (m *cohereMixture) dense(f *fields, sparse []bool) {
	const name = "prefix_dense_intermediate_size"
	for _, s := range sparse[:m.layers] {
		if !s && !f.has(name) {
			f.fail(name, "missing, but there are dense layers")
		}
	}
	m.denseInner = f.size(name, 1)
}

func (m *cohereMixture) add(b *Builder) {
	n := m.routedMixture(b, m.spec, m.inner)
	if m.shared > 0 {
		m.gatedMLP(n, "shared_experts", m.shared, false)
	}
}
