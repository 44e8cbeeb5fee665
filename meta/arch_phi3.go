package meta

// phi3 is Phi3ForCausalLM: llama with fused projections, and longrope for its long
// variants.
func phi3(f *fields, b *Builder) {
	d := readDecoder(f, "Phi3", decoderDefaults{
		vocab: 32064, hidden: 3072, inner: 8192, layers: 32, heads: 32,
		context: 4096, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 10000, partial: 1, original: 4096, allLong: true},
	})
	d.phi3Layers(f, b, wiring{block: preNorm()})
}

// phi4Multimodal is the text model of Phi4MultimodalForCausalLM: phi3 with modules for images and
// sound, which Heft does not support.
func phi4Multimodal(f *fields, b *Builder) {
	d := readDecoder(f, "Phi4Multimodal", decoderDefaults{
		vocab: 200064, hidden: 3072, inner: 8192, layers: 32, heads: 32, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 10000, partial: 1, original: 4096, allLong: true},
	})
	d.phi3Layers(f, b, wiring{block: preNorm(), inputs: func(b *Builder) { b.Dropout("embed_dropout") }})
	b.Ignore("model.embed_tokens_extend.**")
}

func (d *decoder) phi3Layers(f *fields, b *Builder, w wiring) {
	window := f.window("sliding_window", 0)
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.phi3Attention(b, AttentionSpec{Layer: i, Window: window})
		d.fusedMLP(b)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		b.Dropout("resid_attn_dropout")
		b.Dropout("resid_mlp_dropout")
	})
}

func (d *decoder) phi3Attention(b *Builder, spec AttentionSpec) {
	s := d.attentionSpec(spec)
	s.Fused, s.FusedOrder, s.Out = "qkv_proj", FusedQKV, "o_proj"
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
	a.Linear("o_proj", d.heads*d.headDim, d.hidden, false)
	a.Linear("qkv_proj", d.hidden, (d.heads+2*d.kvHeads)*d.headDim, false)
}

// fusedMLP adds an MLP with gate and up in one projection.
func (d *decoder) fusedMLP(b *Builder) {
	m := b.Child("mlp", d.mlpClass).Runs(KindMLP, &MLPSpec{
		Fused: "gate_up_proj", FusedOrder: GateHalves, Down: "down_proj", Act: d.act.act,
	})
	m.Linear("gate_up_proj", d.hidden, 2*d.inner, false)
	m.Linear("down_proj", d.inner, d.hidden, false)
	m.Activation("activation_fn", d.act.class, d.act.act)
}
