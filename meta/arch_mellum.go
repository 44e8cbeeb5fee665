package meta

// mellum is MellumForCausalLM: qwen3_moe with windows in some layers, and a rope of its own for each of the
// two kinds.
func mellum(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"), "Mellum", decoderDefaults{
		vocab: 98304, hidden: 2304, inner: 7168, layers: 28, heads: 32, kvHeads: 4, headDim: 128,
		context: 131072, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	window := f.window("sliding_window", 1024)
	sliding := d.sliding(f, func(int) bool { return false })
	ahead, dense := f.mellumNext()
	known := sliding
	if b.tree.next > 0 {
		known = append([]bool{ahead}, sliding...)
	}
	ropes := d.typedRopes(f, known, ropeDefaults{theta: 500000, partial: 1}, ropeDefaults{theta: 10000, partial: 1})
	inner := f.size("moe_intermediate_size", 896)
	spec, _ := f.sparseLayers(64, 8)
	spec.Renormalise = f.bool("norm_topk_prob", true)
	sparse := d.layersWithMixture(f, func(int) bool { return spec.Count > 0 })
	w := wiring{block: preNorm(), rotary: func(b *Builder) { b.layerRotary("MellumRotaryEmbedding", sliding, ropes[0], ropes[1]) }}
	layer := func(b *Builder, at int, windowed, sparse bool) {
		s := AttentionSpec{Layer: at, Rope: ropes[0]}
		if windowed {
			s.Window, s.Rope = window, ropes[1]
		}
		d.qkNormAttention(b, bias, s)
		if sparse {
			d.mixture(b, *spec, inner)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	}
	d.causalLMWithMTP(f, b, w, func(b *Builder, i int) { layer(b, i, sliding[i], sparse[i]) },
		func(b *Builder) { layer(b, 0, ahead, !dense) })
}

// mellumNext reads the type of the layer for multi-token prediction. By default it has a window
// and an MoE layer.
func (f *fields) mellumNext() (sliding, dense bool) {
	first := func(name, usual, other string) bool {
		types := f.texts(name)
		switch {
		case len(types) == 0 || types[0] == usual:
			return true
		case types[0] != other:
			f.fail(name, "%.40q is not supported", types[0])
		}
		return false
	}
	return first("mtp_layer_types", "sliding_attention", "full_attention"), !first("mtp_mlp_layer_types", "sparse", "dense")
}

// typedRopes returns the ropes of layers with full attention and of those with a window, which
// rope_parameters states by layer type. A rope without layers is nil.
func (d *decoder) typedRopes(f *fields, sliding []bool, full, local ropeDefaults) (ropes [2]*RopeSpec) {
	if f.object("rope_scaling") != nil {
		f.fail("rope_scaling", "is not supported for this model_type; use rope_parameters with full_attention and sliding_attention")
	}
	params := f.object("rope_parameters")
	for i, def := range []ropeDefaults{full, local} {
		def.headDim, def.context = d.headDim, d.context
		for _, s := range sliding {
			if s == (i == 1) && ropes[i] == nil {
				ropes[i] = f.typedRope(params, [...]string{"full_attention", "sliding_attention"}[i], def)
			}
		}
	}
	if d.rope = ropes[0]; d.rope == nil {
		d.rope = ropes[1]
	}
	return ropes
}

// typedRope reads the rope of a type of layers. Without parameters it is the default.
func (f *fields) typedRope(params *fields, kind string, def ropeDefaults) *RopeSpec {
	alone := f.without("rope_theta", "partial_rotary_factor")
	if params == nil {
		return alone.ropeFrom(nil, true, def)
	}
	p := params.object(kind)
	if p == nil {
		params.fail(kind, "missing, but there are layers of this type")
		return &RopeSpec{Dim: 2}
	}
	p.required("rope_theta")
	if !def.proportional {
		def.partial = 1 // whose default holds without parameters only
	}
	return alone.ropeFrom(p, true, def)
}
