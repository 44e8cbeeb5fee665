package meta

// mimoV2Flash is MiMoV2FlashForCausalLM. Layers with a window have twice the key/value heads,
// sinks and a rope of their own. Values are smaller than keys. All layers but the first have an
// MoE layer with sigmoid routing.
func mimoV2Flash(f *fields, b *Builder) {
	d := &deepseek{decoder: readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"), "MiMoV2Flash", decoderDefaults{
		vocab: 152576, hidden: 4096, inner: 16384, layers: 48, heads: 64, kvHeads: 4, headDim: 192,
		context: 131072, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 5e6, partial: 0.334, roundUp: true},
	})}
	m := &mimo{deepseek: d, bias: f.bool("attention_bias", false), value: f.count("v_head_dim", 128, 1, maxHeads)}
	if !f.null("attention_value_scale") {
		m.valueScale = float32(f.positive("attention_value_scale", 0.707))
	}
	m.window = f.size("sliding_window", 129)
	if f.has("sliding_window_size") {
		m.window = f.size("sliding_window_size", 0) + 1
	}
	m.sliding = d.sliding(f, func(i int) bool { return i > 0 && (i+1)%6 != 0 })
	m.readRopes(f)
	d.readMixture(f, mixtureDefaults{inner: 2048, count: f.expertsField(), experts: 256, topK: 8, scale: 1, groups: 1, topGroups: 1})
	d.shared, d.moe.Shared = 0, "" // the reference has none regardless of the config
	sparse := d.sparseByType(f)
	m.checkPublished(f, sparse)

	w := wiring{block: preNorm(), rotary: func(b *Builder) { b.layerRotary("MiMoV2FlashRotaryEmbedding", m.sliding, m.full, m.local) }}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		m.attention(b, i)
		if sparse[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	b.Ignore("model.mtp.**")
}

// mimo holds the part of the config that decoder does not hold.
type mimo struct {
	*deepseek
	bias        bool
	value       int // size of a value head
	valueScale  float32
	window      int
	sliding     []bool
	full, local *RopeSpec
}

// readRopes reads the ropes of the two kinds of layers. Like the reference, it only reads
// rope_parameters by layer type.
func (m *mimo) readRopes(f *fields) {
	if f.object("rope_scaling") != nil {
		f.fail("rope_scaling", "is not supported for this model_type; use rope_parameters with full_attention and sliding_attention")
	}
	params := f.object("rope_parameters")
	read := func(kind string, theta float64) *RopeSpec {
		def := ropeDefaults{theta: theta, partial: 0.334, roundUp: true, headDim: m.headDim, context: m.context}
		if params == nil {
			return f.without("rope_theta", "partial_rotary_factor").ropeFrom(nil, true, def)
		}
		p := params.object(kind)
		if p == nil {
			params.fail(kind, "missing, but there are layers of this type")
			return &RopeSpec{Dim: 2}
		}
		p.required("rope_theta")
		if kind := p.text("rope_type", p.text("type", "default")); kind != "default" && kind != "linear" {
			p.fail("rope_type", "%.40q is not supported for this model_type (supported: default, linear)", kind)
		} else if kind == "linear" {
			def.partial = 1
		}
		if share := p.float("partial_rotary_factor", def.partial); def.partial != 1 && share >= 0 && int(float64(m.headDim)*share) == 0 {
			return noRope
		}
		return f.without("rope_theta", "partial_rotary_factor").ropeFrom(p, true, def)
	}
	for _, s := range m.sliding {
		if s && m.local == nil {
			m.local = read("sliding_attention", 10000)
		} else if !s && m.full == nil {
			m.full = read("full_attention", 5e6)
		}
	}
	if m.local != nil && m.heads%(2*m.kvHeads) != 0 {
		f.fail("num_key_value_heads", "twice %d, which layers with a window have, does not divide the %d attention heads", m.kvHeads, m.heads)
	}
	if m.rope = m.full; m.rope == nil {
		m.rope = m.local
	}
}

// checkPublished rejects fields of published files that the reference ignores, if they contradict
// what it computes.
func (m *mimo) checkPublished(f *fields, sparse []bool) {
	if f.err() != nil {
		return
	}
	number := func(name string, want float64) {
		if got := f.float(name, want); got != want {
			f.fail(name, "%v instead of %v is not supported", got, want)
		}
	}
	truth := func(name string, want bool) {
		if got := f.bool(name, want); got != want {
			f.fail(name, "%v instead of %v is not supported", got, want)
		}
	}
	pattern := func(name string, want []bool) {
		list := f.list(name)
		for i, v := range list[:min(len(list), len(want))] {
			if n, ok := f.integer(name, v, 0, 1); ok && (n == 1) != want[i] {
				f.fail(name, "%d for layer %d contradicts the types of layers", n, i)
			}
		}
	}
	number("swa_num_key_value_heads", float64(2*m.kvHeads))
	number("swa_num_attention_heads", float64(m.heads))
	number("swa_head_dim", float64(m.headDim))
	number("swa_v_head_dim", float64(m.value))
	truth("add_swa_attention_sink_bias", true)
	truth("add_full_attention_sink_bias", false)
	pattern("hybrid_layer_pattern", m.sliding)
	pattern("moe_layer_freq", sparse[:m.layers])
	if m.full != nil && f.object("rope_parameters") == nil {
		number("rope_theta", m.full.Theta)
	}
	if m.local != nil && f.object("rope_parameters") == nil {
		number("swa_rope_theta", m.local.Theta)
	}
	if f.object("rope_parameters") == nil {
		number("partial_rotary_factor", 0.334)
	}
}

func (m *mimo) attention(b *Builder, i int) {
	rope := m.full
	if m.sliding[i] {
		rope = m.local
	}
	spec := m.attentionSpec(AttentionSpec{Layer: i, Rope: rope, ValueScale: m.valueScale})
	if m.sliding[i] {
		spec.KVHeads, spec.Window, spec.Sinks = 2*m.kvHeads, m.window, "sinks"
	}
	spec.ValueDim = m.value
	spec.Q, spec.K, spec.V, spec.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", m.class+"Attention").Runs(KindAttention, spec)
	if m.sliding[i] {
		own := []TensorSource{{Tensor: a.path + ".sinks"}}
		a.ParamFrom("sinks", []int{m.heads}, []TensorSource{{Tensor: a.path + ".attention_sink_bias"}}, own)
	}
	a.Linear("q_proj", m.hidden, m.heads*m.headDim, m.bias)
	a.Linear("k_proj", m.hidden, spec.KVHeads*m.headDim, m.bias)
	a.Linear("v_proj", m.hidden, spec.KVHeads*m.value, m.bias)
	a.Linear("o_proj", m.heads*m.value, m.hidden, false)
}
