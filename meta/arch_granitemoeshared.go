package meta

// graniteMoEShared is GraniteMoeSharedForCausalLM: granitemoe with an MLP parallel to the MoE
// layer.
func graniteMoEShared(f *fields, b *Builder) {
	d := readGraniteMoE(f, "GraniteMoeShared")
	bias := f.bool("attention_bias", false)
	w, scale := f.graniteWiring()
	d.graniteMixtures(f, b, w, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Scale: scale})
	})
}

// readGraniteMoE reads the fields that Granite's MoE models share.
func readGraniteMoE(f *fields, class string) *decoder {
	return readDecoder(f, class, decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
}

// graniteMixtures builds a model with an MoE in each layer, and a parallel MLP if the config has
// one. attention adds the attention of each layer.
func (d *decoder) graniteMixtures(f *fields, b *Builder, w wiring, attention func(b *Builder, layer int)) {
	shared := f.count("shared_intermediate_size", 0, 0, maxSize)
	w.block.MLP = "block_sparse_moe"
	if shared > 0 {
		w.block.MLP, w.block.AddedMLP = "shared_mlp", "block_sparse_moe"
	}
	spec := f.graniteExperts(d)
	d.causalLM(f, b, w, func(b *Builder, i int) {
		attention(b, i)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		d.graniteMixture(b, spec, d.class)
		if shared > 0 {
			d.graniteShared(b, shared)
		}
	})
}

// graniteExperts reads the routing of an MoE layer.
func (f *fields) graniteExperts(d *decoder) *MoESpec {
	spec := f.experts("num_local_experts", 8, "num_experts_per_tok", 2)
	spec.Router, spec.Experts = "router", "experts"
	spec.Score, spec.Act = ScoreTopKSoftmax, d.act.act
	return spec
}

// graniteShared adds the MLP that every token uses.
func (d *decoder) graniteShared(b *Builder, inner int) {
	if b.tree.conventions().SeparateGates {
		s := b.Child("shared_mlp", d.mlpClass).Runs(KindMLP, &MLPSpec{Gate: "gate_proj", Up: "up_proj", Down: "output_linear", Act: d.act.act})
		s.Linear("gate_proj", d.hidden, inner, false)
		s.Linear("up_proj", d.hidden, inner, false)
		s.Linear("output_linear", inner, d.hidden, false)
		return
	}
	s := b.Child("shared_mlp", d.mlpClass).Runs(KindMLP, &MLPSpec{Fused: "input_linear", Down: "output_linear", Act: d.act.act})
	s.Activation("activation", d.act.class, d.act.act)
	s.Linear("input_linear", d.hidden, 2*inner, false)
	s.Linear("output_linear", inner, d.hidden, false)
}
