package meta

// gemma3 is Gemma3ForCausalLM, the text model: gemma2 with norms on query and key heads, full
// attention after several layers with a window, and a rope for each of the two kinds.
// attn_logit_softcapping has no effect.
func gemma3(f *fields, b *Builder) {
	d := readDecoder(f, "Gemma3", gemmaDefaults(262208, 131072))
	d.normSpec.Offset = 1
	g := d.readGemma(f, 0, 0)
	pattern := f.size("sliding_window_pattern", 6)
	sliding := d.sliding(f, func(i int) bool { return (i+1)%pattern != 0 })
	full, local := f.layerRopes(ropeDefaults{theta: 1e6, headDim: d.headDim, context: d.context},
		ropeDefaults{theta: 10000, thetaField: "rope_local_base_freq", headDim: d.headDim, context: d.context})
	d.rope = full

	w := g.wiring(d)
	w.modelClass = "Gemma3TextModel"
	w.rotary = func(b *Builder) { b.layerRotary("Gemma3RotaryEmbedding", sliding, full, local) }
	d.causalLM(f, b, w, func(b *Builder, i int) {
		rope := full
		if sliding[i] {
			rope = local
		}
		d.qkNormAttention(b, g.bias, AttentionSpec{
			Layer: i, Scale: g.scale, Window: windowIf(sliding[i], g.window), Rope: rope,
		})
		g.rest(d, b)
	})
}

// layerRotary adds the module that holds the frequencies of the kinds of layers in the model.
func (b *Builder) layerRotary(class string, sliding []bool, full, local *RopeSpec) {
	c := b.Child("rotary_emb", class)
	for _, kind := range []struct {
		name    string
		sliding bool
		rope    *RopeSpec
	}{{"full_attention", false, full}, {"sliding_attention", true, local}} {
		for _, s := range sliding {
			if s == kind.sliding && kind.rope != noRope {
				c.Buffer(kind.name+"_inv_freq", Float32, false, kind.rope.Dim/2)
				c.Buffer(kind.name+"_original_inv_freq", Float32, false, kind.rope.Dim/2)
				break
			}
		}
	}
}
