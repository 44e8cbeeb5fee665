package meta

// axK2 is AXK2ForCausalLM: deepseek_v32 with low-rank gates after norms, and with gates of heads.
// The gates of heads are projected together with the queries, from the queries' compression and
// its norm. Published files call the gates' projections W_down and W_up, and the fused projection
// q_b_proj.
func axK2(f *fields, b *Builder) {
	d := readDeepseek(f.without("rope_interleave"), "AXK2", decoderDefaults{
		vocab: 163840, hidden: 2048, inner: 5120, layers: 48, heads: 32, headDim: 32, context: 131072, eps: 1e-6,
	}, latentDefaults{qRank: 384, kvRank: 128, nope: 64, value: 64})
	if d.qRank == 0 {
		f.fail("q_lora_rank", "null is not supported for this model_type")
	}
	d.gated, d.wideRouter, d.correction = true, true, Float32
	d.readMixture(f, mixtureDefaults{inner: 512, experts: 128, topK: 8, scale: 2.5, groups: 1, topGroups: 1})
	dense, step := f.count("first_k_dense_replace", 1, 0, maxLayers), f.size("moe_layer_freq", 1)
	mixture := d.layersWithMixture(f, func(i int) bool { return i >= dense && i%step == 0 })
	indexer := *d.readIndexer(f, IndexerSpec{Heads: 16})
	b.tree.excluded = append(b.tree.excluded, exclusion{name: indexer.Weights})
	rank := f.size("gated_norm_rank", 16)
	b.publishes("layernorm.mlp.fc1.", "layernorm.W_down.", "layernorm.mlp.fc2.", "layernorm.W_up.", ".self_attn.q_gate_proj.", ".self_attn.q_b_proj.")
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		a, mla := d.latentAttention(b, i)
		mla.Chosen = indexer.Count
		d.addIndexer(a, mla, &indexer)
		if mixture[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.gatedNorm(b, "input_layernorm", rank)
		if mixture[i] {
			d.gatedNorm(b, "post_attention_layernorm", rank)
		} else {
			d.norms(b, "post_attention_layernorm")
		}
	})
}

// gatedNorm adds a norm with a gate of the given rank after it.
func (d *deepseek) gatedNorm(b *Builder, name string, rank int) {
	n := b.Child(name, d.class+"GatedRMSNorm").Runs(KindNorm, &NormSpec{Dim: d.hidden, Inner: "norm", Gate: "mlp"})
	d.norm(n, "norm", d.hidden)
	m := n.Child("mlp", d.class+"GateMLP").Runs(KindMLP, &MLPSpec{Up: "fc1", Down: "fc2", Act: ActSiLU})
	m.Activation("activation_fn", "SiLU", ActSiLU)
	m.Linear("fc1", d.hidden, rank, false)
	m.Linear("fc2", rank, d.hidden, false)
}
