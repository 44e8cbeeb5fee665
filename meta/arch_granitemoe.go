package meta

// graniteMoE is GraniteMoeForCausalLM: granite with an MoE in every layer. Files have the
// experts stacked as input_linear and output_linear.
func graniteMoE(f *fields, b *Builder) {
	d := readGraniteMoE(f, "GraniteMoe")
	bias := f.bool("attention_bias", false)
	w, scale := f.graniteWiring()
	w.block.MLP = "block_sparse_moe"
	spec := f.graniteExperts(d)
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.attention(b, bias, bias, AttentionSpec{Layer: i, Scale: scale})
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		d.graniteMixture(b, spec, "GraniteMoe")
	})
}

// graniteMixture adds an MoE layer, whose classes begin with class.
func (d *decoder) graniteMixture(b *Builder, spec *MoESpec, class string) {
	m := b.Child("block_sparse_moe", class+"MoE").Runs(KindMoE, spec)
	m.Child("router", class+"TopKRouter").Published(m.path+".router.layer").Param("weight", spec.Count, d.hidden)
	if b.tree.conventions().SeparateGates {
		m.stackedExperts(spec, expertNames{class: class + "Experts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{m.path + ".experts"}}, d.hidden, d.inner, d.act)
		return
	}
	e := m.Child("experts", class+"Experts")
	e.ParamFrom("gate_up_proj", []int{spec.Count, 2 * d.inner, d.hidden},
		[]TensorSource{{Tensor: m.path + ".input_linear.weight"}}, []TensorSource{{Tensor: e.path + ".gate_up_proj"}}, e.eachExpert(spec.Count, 0, "gate_up_proj"))
	e.ParamFrom("down_proj", []int{spec.Count, d.hidden, d.inner},
		[]TensorSource{{Tensor: m.path + ".output_linear.weight"}}, []TensorSource{{Tensor: e.path + ".down_proj"}}, e.eachExpert(spec.Count, 0, "down_proj"))
	e.Activation("act_fn", d.act.class, d.act.act)
}
