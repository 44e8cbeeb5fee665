package meta

// phi is PhiForCausalLM: attention and MLP in parallel after one layer norm, rope on a part of
// each head, and biases everywhere, including the head.
func phi(f *fields, b *Builder) {
	d := readDecoder(f, "Phi", decoderDefaults{
		vocab: 51200, hidden: 2048, inner: 8192, layers: 24, heads: 32,
		context: 2048, eps: 1e-5, epsField: "layer_norm_eps", act: "gelu_new", rope: ropeDefaults{theta: 10000, partial: 0.5},
	})
	d.layerNorms()
	qkNorm := f.bool("qk_layernorm", false)
	if qkNorm && d.headDim*d.heads != d.hidden {
		f.fail("head_dim", "%d heads of %d with norms are not the hidden size of %d", d.heads, d.headDim, d.hidden)
	}
	block := BlockSpec{
		Parallel: true, AttentionNorm: "input_layernorm", Attention: "self_attn", MLPNorm: "input_layernorm", MLP: "mlp",
	}
	w := wiring{block: block, headBias: true, lastNorm: "final_layernorm"}
	w.rotary = func(b *Builder) {
		b.Rotary("PhiRotaryEmbedding", d.rope)
		b.Dropout("embed_dropout")
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i, Out: "dense"}
		if qkNorm {
			spec.QNorm, spec.KNorm = "q_layernorm", "k_layernorm"
		}
		a := d.attention(b, true, true, spec)
		if qkNorm {
			d.norm(a, "q_layernorm", d.headDim)
			d.norm(a, "k_layernorm", d.headDim)
		}
		m := b.Child("mlp", "PhiMLP").Runs(KindMLP, &MLPSpec{Up: "fc1", Down: "fc2", Act: d.act.act})
		m.Activation("activation_fn", d.act.class, d.act.act)
		m.Linear("fc1", d.hidden, d.inner, true)
		m.Linear("fc2", d.inner, d.hidden, true)
		d.norms(b, "input_layernorm")
		b.Dropout("resid_dropout")
	})
}
