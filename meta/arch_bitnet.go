package meta

// bitNet is BitNetForCausalLM: llama with norms before the last projections of attention and MLP.
func bitNet(f *fields, b *Builder) {
	d := readDecoder(f, "BitNet", decoderDefaults{
		vocab: 128256, hidden: 2560, inner: 6912, layers: 30, heads: 20, kvHeads: 5,
		context: 2048, eps: 1e-5, act: "relu2", rope: ropeDefaults{theta: 500000},
	})
	bias := f.bool("attention_bias", false)
	if f.err() == nil && d.heads*d.headDim != d.hidden {
		f.fail("head_dim", "%d heads of %d are not the hidden size of %d", d.heads, d.headDim, d.hidden)
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, OutNorm: "attn_sub_norm"})
		d.norm(a, "attn_sub_norm", d.hidden)
		m := b.Child("mlp", d.mlpClass)
		d.gatedMLPIn(m, d.inner, false)
		m.node.Spec.(*MLPSpec).InnerNorm = "ffn_sub_norm"
		d.norm(m, "ffn_sub_norm", d.inner)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
