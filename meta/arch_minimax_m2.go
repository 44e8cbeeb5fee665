package meta

// minimaxM2 is MiniMaxM2ForCausalLM: norms over all query and all key channels, rope on a part of
// each head, and in every layer an MoE layer with sigmoid routing. Files have it under
// block_sparse_moe.
func minimaxM2(f *fields, b *Builder) {
	def := decoderDefaults{
		vocab: 200064, hidden: 3072, inner: 1536, layers: 62, heads: 48, kvHeads: 8, headDim: 128,
		context: 196608, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 5e6, partial: 1, roundUp: true},
	}
	if f.has("rotary_dim") {
		def.rope.partial = f.positive("rotary_dim", 64) / float64(f.count("head_dim", 128, 1, maxHeads))
	}
	d := readDecoder(f, "MiniMaxM2", def)
	spec := f.experts("num_local_experts", 256, "num_experts_per_tok", 8)
	spec.Router, spec.Experts, spec.Correction = "gate", "experts", "e_score_correction_bias"
	spec.Score, spec.Renormalise, spec.Act = ScoreSigmoid, true, d.act.act
	f.only("scoring_func", "sigmoid")
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		a := d.attention(b, false, false, AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm"})
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)

		published := Join(b.path, "block_sparse_moe")
		m := b.Child("mlp", "MiniMaxM2SparseMoeBlock").Runs(KindMoE, spec).Published(published)
		m.Child("gate", "MiniMaxM2TopKRouter").Param("weight", spec.Count, d.hidden)
		m.stackedExperts(spec, expertNames{
			class: "MiniMaxM2Experts", gate: "w1", up: "w3", down: "w2",
			each: []string{published + ".experts", m.path + ".experts"},
		}, d.hidden, d.inner, d.act)
		m.Buffer("e_score_correction_bias", b.tree.dtype, true, spec.Count)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// only rejects any value of a text field except want. A missing field means want.
func (f *fields) only(name, want string) {
	if got := f.text(name, want); got != want {
		f.fail(name, "%.40q is not supported (supported: %s)", got, want)
	}
}
