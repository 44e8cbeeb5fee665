package meta

// persimmon is PersimmonForCausalLM: layer norms, also on query and key heads, a projection with q, k and v
// of each head together, rope on a part of each head, and a plain MLP.
func persimmon(f *fields, b *Builder) {
	d := readDecoder(f.without("num_key_value_heads"), "Persimmon", decoderDefaults{
		vocab: 262144, hidden: 4096, inner: 16384, layers: 36, heads: 64, context: 16384, eps: 1e-5,
		epsField: "layer_norm_eps", act: "relu2", headDimField: derived, rope: ropeDefaults{theta: 10000, partial: 0.5},
	})
	d.layerNorms()
	qkNorm := f.bool("qk_layernorm", true)
	d.causalLM(f, b, wiring{block: preNorm(), finalNorm: "final_layernorm"}, func(b *Builder, i int) {
		s := d.attentionSpec(AttentionSpec{Layer: i})
		s.Fused, s.FusedOrder, s.Out = "query_key_value", FusedPerHead, "dense"
		if qkNorm {
			s.QNorm, s.KNorm = "q_layernorm", "k_layernorm"
		}
		a := b.Child("self_attn", "PersimmonAttention").Runs(KindAttention, s)
		a.Linear("query_key_value", d.hidden, 3*d.hidden, true)
		a.Linear("dense", d.hidden, d.hidden, true)
		if qkNorm {
			d.norm(a, "q_layernorm", d.headDim)
			d.norm(a, "k_layernorm", d.headDim)
		}
		a.Dropout("attention_dropout")
		d.plainMLP(b, "dense_h_to_4h", "dense_4h_to_h", "act", true)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		b.Dropout("dropout")
	})
}
