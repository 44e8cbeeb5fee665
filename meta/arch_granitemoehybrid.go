package meta

// graniteMoEHybrid is GraniteMoeHybridForCausalLM: granite with a Mamba2 mixer or attention in
// each layer, followed by a shared MLP and, if there are experts, a parallel MoE layer.
func graniteMoEHybrid(f *fields, b *Builder) {
	d := readDecoder(f, "GraniteMoeHybrid", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000}, headDimField: derived,
	})
	bias, shared := f.bool("attention_bias", false), f.size("shared_intermediate_size", 1024)
	w, scale := f.graniteWiring()
	w.block.MLP = "shared_mlp"
	rope := noRope
	switch position := f.text("position_embedding_type", ""); position {
	case "rope":
		rope = nil
	case "", "nope":
		w.rotary = func(*Builder) {}
	default:
		f.fail("position_embedding_type", "%.40q is not supported", position)
	}
	var spec *MoESpec
	if f.count("num_local_experts", 8, 0, maxExperts) > 0 {
		spec = f.graniteExperts(d)
		w.block.AddedMLP = "block_sparse_moe"
	}
	m := &mixer{class: d.class, act: d.act, bias: f.bool("mamba_proj_bias", false), hidden: d.hidden, eps: float64(d.normSpec.Eps),
		normClass: "GraniteMoeHybridRMSNormGated"}
	m.readHybrid(f, mixerDefaults{heads: 128, groups: 1, state: 256, inner: f.count("mamba_expand", 2, 1, 1<<10) * d.hidden})
	m.limits(f, "time_step_limit")
	recurrent := d.layersOfKind(f, func(int) bool { return true })
	attentions, states := 0, 0
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		if spec != nil {
			d.graniteMixture(b, spec, "GraniteMoeHybrid")
		}
		d.graniteShared(b, shared)
		if !recurrent[i] {
			d.attention(b, bias, bias, AttentionSpec{Layer: attentions, Scale: scale, Rope: rope})
			attentions++
			return
		}
		block := w.block
		block.Attention = "mamba"
		b.Runs(KindBlock, &block)
		m.add(b, "mamba", "GraniteMoeHybridMambaLayer", states)
		states++
	})
}

// mixerDefaults are the defaults of the fields mamba_*. inner is the width of all heads.
type mixerDefaults struct{ heads, groups, state, inner int }

// readHybrid reads the fields mamba_* of models that have attention too.
func (m *mixer) readHybrid(f *fields, def mixerDefaults) {
	heads := f.count("mamba_n_heads", def.heads, 1, maxHeads)
	m.read(f, mixerFields{heads: "mamba_n_heads", headDim: "mamba_d_head", groups: "mamba_n_groups", state: "mamba_d_state",
		kernel: "mamba_d_conv", convBias: "mamba_conv_bias"}, Mamba2Spec{Heads: def.heads, HeadDim: max(def.inner/heads, 1), Groups: def.groups, StateDim: def.state, Kernel: 4})
	if m.spec.Heads*m.spec.HeadDim != def.inner {
		f.fail("mamba_n_heads", "%d heads of %d instead of %d channels", m.spec.Heads, m.spec.HeadDim, def.inner)
	}
}

// layersOfKind returns which layers are recurrent. layer_types or layers_block_type names them;
// all other layers must have attention. Without these fields, is selects them.
func (d *decoder) layersOfKind(f *fields, is func(layer int) bool) []bool {
	name := "layer_types"
	if !f.has(name) {
		name = "layers_block_type"
	}
	list, types := make([]bool, d.layers), f.texts(name)
	if types != nil && len(types) != d.layers {
		f.fail(name, "%d types for %d layers", len(types), d.layers)
		return list
	}
	for i := range list {
		if types == nil {
			list[i] = is(i)
			continue
		}
		switch types[i] {
		case "mamba", "linear_attention":
			list[i] = true
		case "attention", "full_attention":
		default:
			f.fail(name, "%.40q is not supported", types[i])
		}
	}
	return list
}
