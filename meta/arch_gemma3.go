package meta

// gemma3 is Gemma3ForCausalLM, the text model: gemma2 with norms on query and key
// heads, a full layer after several with a window, and a rope for each of the
// two kinds.
func gemma3(f *fields, b *Builder) {
	d := readDecoder(f, "Gemma3", gemmaDefaults(262208, 131072))
	d.normSpec.Offset = 1
	g := d.readGemma(f, 0, 0)
	pattern := f.size("sliding_window_pattern", 6)
	sliding := d.sliding(f, func(i int) bool { return (i+1)%pattern != 0 })
	full, local := d.gemma3Ropes(f)
	d.rope = full

	w := g.wiring(d)
	w.modelClass = "Gemma3TextModel"
	w.rotary = func(b *Builder) { gemma3Rotary(b, sliding, full, local) }
	d.causalLM(f, b, w, func(b *Builder, i int) {
		rope := full
		if sliding[i] {
			rope = local
		}
		d.qkNormAttention(b, g.bias, AttentionSpec{
			Layer: i, Scale: g.scale, Softcap: g.softcap, Window: windowIf(sliding[i], g.window), Rope: rope,
		})
		g.rest(d, b)
	})
}

// gemma3Ropes reads the two ropes. Published files have one scaling, for full layers
// alone, and a theta for each; transformers 5 nests them by layer type.
func (d *decoder) gemma3Ropes(f *fields) (full, local *RopeSpec) {
	def := ropeDefaults{theta: 1e6, headDim: d.headDim, context: d.context}
	var fullParams, localParams *fields
	if p := f.object("rope_parameters"); p != nil {
		fullParams, localParams = p.object("full_attention"), p.object("sliding_attention")
	}
	if p := f.object("rope_scaling"); p != nil {
		fullParams = p
	}
	full = f.ropeFrom(fullParams, true, def)
	def.theta, def.thetaField = 10000, "rope_local_base_freq"
	return full, f.ropeFrom(localParams, true, def)
}

// gemma3Rotary adds the module that holds the frequencies of the kinds of layers that
// there are.
func gemma3Rotary(b *Builder, sliding []bool, full, local *RopeSpec) {
	c := b.Child("rotary_emb", "Gemma3RotaryEmbedding")
	for _, kind := range []struct {
		name    string
		sliding bool
		rope    *RopeSpec
	}{{"full_attention", false, full}, {"sliding_attention", true, local}} {
		for _, s := range sliding {
			if s == kind.sliding {
				c.Buffer(kind.name+"_inv_freq", Float32, false, kind.rope.Dim/2)
				c.Buffer(kind.name+"_original_inv_freq", Float32, false, kind.rope.Dim/2)
				break
			}
		}
	}
}
