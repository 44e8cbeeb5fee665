package meta

// zamba1 is ZambaForCausalLM: Zamba2 with one transformer block, without adapters and rope, and
// with Mamba mixers (version 1) whose heads have projections of their own.
func zamba1(f *fields, b *Builder) {
	f = f.renamed("attention_head_dim", "head_dim").without("partial_rotary_factor", "rope_scaling", "rope_parameters", "rope_theta")
	hidden, heads := f.size("hidden_size", 3712), f.count("num_attention_heads", 16, 1, maxHeads)
	d := readDecoder(f, "Zamba", decoderDefaults{
		vocab: 32000, hidden: 3712, inner: 14848, layers: 76, heads: 16, kvHeads: 16, headDim: 2 * hidden / heads, headDimField: "attention_head_dim",
		context: 4096, eps: 1e-5, act: "gelu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	m := &selective{class: d.class, act: f.activation("hidden_mamba_act", "silu"), hidden: d.hidden, byHead: true}
	m.read(f, selectiveFields{expand: "mamba_expand", state: "mamba_d_state", kernel: "mamba_d_conv", rank: "mamba_dt_rank", bias: "mamba_proj_bias", convBias: "mamba_conv_bias"})
	m.spec.Heads = f.count("n_mamba_heads", 2, 1, maxHeads)
	if m.spec.Width%m.spec.Heads != 0 {
		f.fail("n_mamba_heads", "%d does not divide the %d channels", m.spec.Heads, m.spec.Width)
	}
	z := &zamba{decoder: d, mixer: m, shared: "shared_transf", blockFirst: true, blocks: 1, attention: AttentionSpec{Rope: noRope}}
	z.block = func(b *Builder, use int) {
		z.attend(b, use)
		z.gatedMLP(b, "feed_forward", z.inner, false)
	}
	f.attentionOfTwice(hidden)
	z.uses = f.hybridLayers(d.layers, f.zambaLayers(d.layers))
	z.build(f, b, wiring{rotary: func(*Builder) {}})
}

// zambaLayers returns the hybrid layers of a config that does not name them: the third layer, and
// those after it at every period. It returns nil for fewer layers.
func (f *fields) zambaLayers(layers int) (list []int) {
	every, from := f.count("attn_layer_period", 6, 1, maxLayers), f.count("attn_layer_offset", 4, 0, maxLayers)
	for i := 2; i < layers; i++ {
		if i == 2 || (i-3)%every == from {
			list = append(list, i)
		}
	}
	return list
}
