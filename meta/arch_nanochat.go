package meta

// nanoChat is NanoChatForCausalLM: norms without weights, also of the embeddings and, after rope,
// of query and key heads. Rope rotates by negative angles, and the MLP is plain.
func nanoChat(f *fields, b *Builder) {
	d := readDecoder(f, "NanoChat", decoderDefaults{
		vocab: 50304, hidden: 768, inner: 8192, layers: 12, heads: 6,
		context: 2048, eps: 1e-6, act: "relu2", rope: ropeDefaults{theta: 10000},
	})
	d.bareNorms, d.rope.Backwards = true, true
	bias := f.bool("attention_bias", false)
	w := wiring{block: preNorm(), spec: CausalLMSpec{EmbedNorm: "model.norm", LogitSoftcap: f.cap("final_logit_softcapping", 15)}}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i, NormLast: true})
		m := b.Child("mlp", "NanoChatMLP").Runs(KindMLP, &MLPSpec{Up: "fc1", Down: "fc2", Act: d.act.act})
		m.Activation("activation_fn", d.act.class, d.act.act)
		m.Linear("fc1", d.hidden, d.inner, false)
		m.Linear("fc2", d.inner, d.hidden, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
