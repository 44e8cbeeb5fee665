package meta

// llama4 is Llama4ForCausalLM. Layers with rope attend within chunks of the sequence and
// normalise queries and keys after rope. Layers without rope attend to all tokens and scale
// queries by position. MoE layers have a shared expert, and the router's weights multiply the
// input of the routed experts.
func llama4(f *fields, b *Builder) {
	d := readDecoder(f, "Llama4Text", decoderDefaults{
		vocab: 202048, hidden: 5120, inner: 8192, layers: 48, heads: 40, kvHeads: 8, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 500000, interleaved: true},
	})
	d.actName = "activation_fn"
	l := &llama4Layers{decoder: d, bias: f.bool("attention_bias", false), norm: f.bool("use_qk_norm", true)}
	l.read(f)
	dense := f.size("intermediate_size_mlp", 16384)
	spec := f.experts("num_local_experts", 16, "num_experts_per_tok", 1)
	spec.Router, spec.Experts, spec.Shared = "router", "experts", "shared_expert"
	spec.Score, spec.ScaleInput, spec.Transposed, spec.Act = ScoreTopKSigmoid, true, true, d.act.act
	sparse := f.llama4Sparse(d.layers)
	block := preNorm()
	block.MLP = "feed_forward"
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		l.attention(b, i)
		if sparse[i] {
			m := b.Child("feed_forward", "Llama4TextMoe").Runs(KindMoE, spec)
			d.llama4Experts(m, *spec)
			m.Child("router", "Llama4Router").Param("weight", spec.Count, d.hidden)
			d.gatedMLP(m, "shared_expert", d.inner, false)
		} else {
			d.gatedMLP(b, "feed_forward", dense, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// llama4Experts adds the experts. GGUF files store them with outputs first.
func (d *decoder) llama4Experts(m *Builder, spec MoESpec) {
	if m.tree.conventions().SeparateGates {
		spec.Transposed = false
		m.Runs(KindMoE, &spec)
		m.stackedExperts(&spec, expertNames{class: "Llama4TextExperts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{m.path + ".experts"}}, d.hidden, d.inner, d.act)
		return
	}
	e := m.Child("experts", "Llama4TextExperts")
	e.Param("gate_up_proj", spec.Count, d.hidden, 2*d.inner)
	e.Param("down_proj", spec.Count, d.inner, d.hidden)
	e.Activation("act_fn", d.act.class, d.act.act)
}

// llama4Layers is what the layers' attention has beyond a decoder's.
type llama4Layers struct {
	*decoder
	bias, norm     bool
	roped, chunked []bool
	chunk          int
	queries        *RopeSpec // of layers without rope; nil if these do not scale them
}

func (l *llama4Layers) read(f *fields) {
	l.roped = f.flags("no_rope_layers", l.layers)
	if l.roped == nil {
		interval := f.size("no_rope_layer_interval", 4)
		for i := range l.layers {
			l.roped = append(l.roped, (i+1)%interval != 0)
		}
	}
	l.chunked = l.chunks(f)
	if l.chunk = f.window("attention_chunk_size", 8192); l.chunk == 0 {
		f.fail("attention_chunk_size", "null is not supported")
	}
	every, scale := f.size("floor_scale", 8192), f.float("attn_scale", 0.1)
	if f.bool("attn_temperature_tuning", true) && scale != 0 {
		l.queries = &RopeSpec{Type: RopeNone, Dim: l.headDim, Growth: scale, GrowthEvery: every, GrowthShift: 1}
	}
}

// chunks returns which layers attend within chunks: those that layer_types names, or else those
// with rope.
func (l *llama4Layers) chunks(f *fields) []bool {
	types := f.texts("layer_types")
	if types == nil {
		return l.roped
	}
	if len(types) != l.layers {
		f.fail("layer_types", "%d types for %d layers", len(types), l.layers)
		return l.roped
	}
	chunked := make([]bool, l.layers)
	for i, kind := range types {
		switch kind {
		case "chunked_attention":
			chunked[i] = true
		case "full_attention":
		default:
			f.fail("layer_types", "%.40q is not supported (supported: chunked_attention, full_attention)", kind)
		}
	}
	return chunked
}

// flags returns the first n of a list of numbers or booleans as booleans, or nil if there is none.
func (f *fields) flags(name string, n int) []bool {
	list := f.list(name)
	if len(list) == 0 {
		return nil
	}
	flags := make([]bool, n)
	if len(list) < n {
		f.fail(name, "%d values for %d layers", len(list), n)
		return flags
	}
	for i := range flags {
		if v, ok := list[i].(bool); ok {
			flags[i] = v
		} else if v, ok := f.integer(name, list[i], 0, maxSize); ok {
			flags[i] = v != 0
		}
	}
	return flags
}

// llama4Sparse returns which layers have an MoE layer: those that moe_layers names, else each
// interleave_moe_layer_step-th.
func (f *fields) llama4Sparse(layers int) []bool {
	const name = "moe_layers"
	sparse := make([]bool, layers)
	if f.has(name) {
		for _, v := range f.list(name) {
			if i, ok := f.integer(name, v, 0, maxLayers); ok && i < layers {
				sparse[i] = true
			}
		}
		return sparse
	}
	step := f.size("interleave_moe_layer_step", 1)
	for i := range sparse {
		sparse[i] = (i+1)%step == 0
	}
	return sparse
}

func (l *llama4Layers) attention(b *Builder, i int) {
	spec := AttentionSpec{Layer: i}
	if l.chunked[i] {
		spec.Chunk = l.chunk
	}
	if l.roped[i] && l.norm {
		spec.QNorm, spec.KNorm, spec.NormLast = "qk_norm", "qk_norm", true
	}
	if !l.roped[i] {
		spec.Rope, spec.QueryRope = noRope, l.queries
	}
	a := l.decoder.attention(b, l.bias, l.bias, spec)
	if l.roped[i] && l.norm {
		a.Child("qk_norm", "Llama4TextL2Norm").Runs(KindNorm, &NormSpec{Dim: l.headDim, Eps: l.normSpec.Eps})
	}
}
