package meta

// museGlimmer is the text model of Muse Glimmer: norms before and after attention and MLP, a norm
// of the embeddings, norms without weights on query and key heads, gated attention, and rope only
// in layers with a window.
func museGlimmer(f *fields, b *Builder) {
	d := readDecoder(f, "MuseGlimmerText", decoderDefaults{
		vocab: 202048, hidden: 6656, inner: 19968, layers: 52, heads: 32, kvHeads: 2, headDim: 128,
		context: 131072, eps: 1e-5, act: "silu", actField: "hidden_activation", rope: ropeDefaults{theta: 10000},
	})
	d.normClass = "MuseGlimmerRMSNorm"
	before := *d
	before.normClass, before.normSpec.Offset = "MuseGlimmerTextCenteredRMSNorm", 1
	after := before
	after.normSpec.Eps = float32(f.positive("post_norm_eps", 1e-8))
	apart := func(i int) bool { return (d.layers-1-i)%4 != 0 }
	sliding := d.sliding(f, apart)
	window, bias := f.slidingWindow(2048, sliding), f.bool("attention_bias", false)
	turned := d.layersWithBases(f, apart)
	scale := rootScale(float64(d.headDim)) * float32(f.positive("qk_scale_factor", 3.87))
	bare := *d
	bare.bareNorms = true
	w := (&gemma{}).wiring(d)
	w.spec = CausalLMSpec{EmbedNorm: b.tree.textPath() + ".embed_tokens.embed_norm",
		LogitScale: float32(f.positive("output_multiplier", 0.19611613513818404)), LogitSoftcap: float32(f.positive("final_logit_softcapping", 20))}
	w.wrapped, w.embedClass, w.embed = true, "MuseGlimmerTextNormedEmbedding", func(b *Builder) { bare.norm(b, "embed_norm", d.hidden) }
	d.causalLM(f, b, w, func(b *Builder, i int) {
		s := AttentionSpec{Layer: i, QNorm: "qk_norm", KNorm: "qk_norm", Gate: "gate_proj", Scale: scale, Window: windowIf(sliding[i], window)}
		if !turned[i] {
			s.Rope = noRope
		}
		a := d.attention(b, bias, bias, s)
		a.Linear("gate_proj", d.hidden, d.heads*d.headDim, false)
		bare.norm(a, "qk_norm", d.headDim)
		d.gatedMLP(b, "mlp", d.inner, false)
		before.norms(b, "input_layernorm")
		after.norms(b, "post_attention_layernorm")
		before.norms(b, "pre_feedforward_layernorm")
		after.norms(b, "post_feedforward_layernorm")
	})
}

// layersWithBases returns which layers have a rope: those whose entry in layer_rope_theta is not
// 0 or, without that field, those that usual selects. The entries have no other effect.
func (d *decoder) layersWithBases(f *fields, usual func(layer int) bool) []bool {
	const name = "layer_rope_theta"
	thetas, out := f.floats(name), make([]bool, d.layers)
	if f.has(name) && len(thetas) != d.layers {
		f.fail(name, "%d bases for %d layers", len(thetas), d.layers)
		return out
	}
	for i := range out {
		if out[i] = usual(i); thetas != nil {
			out[i] = thetas[i] != 0
		}
	}
	return out
}
