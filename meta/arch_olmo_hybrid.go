package meta

import "slices"

// olmoHybrid is OlmoHybridForCausalLM: olmo2's layers, but most have a gated delta net, with
// norms before it and before the MLP. Published models have no rope.
func olmoHybrid(f *fields, b *Builder) {
	d := readDecoder(f.without("head_dim"), "OlmoHybrid", decoderDefaults{
		vocab: 100352, hidden: 3840, inner: 11008, layers: 32, heads: 30, context: 65536, eps: 1e-6, act: "silu",
		headDimField: derived, rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	linear := d.layersOfType(f, "linear_attention", func(i int) bool { return i%4 != 3 })
	if f.texts("layer_types") == nil && !slices.Contains(linear, false) {
		linear[d.layers-1] = false
	}
	net := d.olmoDeltaNet(f)
	w := wiring{block: postNorm(), layerClass: func(i int) string {
		if linear[i] {
			return "OlmoHybridLinearAttentionDecoderLayer"
		}
		return "OlmoHybridAttentionDecoderLayer"
	}}
	rope := d.rope
	if parameters := f.object("rope_parameters"); f.null("rope_theta") || parameters != nil && parameters.null("rope_theta") {
		rope, w.rotary = noRope, func(*Builder) {}
	}
	b.publishes("input_layernorm", "attention_layer_norm", "post_attention_layernorm", "feedforward_layer_norm")
	attentions, states := 0, 0
	d.causalLM(f, b, w, func(b *Builder, i int) {
		if linear[i] {
			block := preNorm()
			block.Attention = "linear_attn"
			b.Runs(KindBlock, &block)
			d.gatedMLP(b, "mlp", d.inner, false)
			d.norms(b, "input_layernorm", "post_attention_layernorm")
			d.addOlmoDeltaNet(b, net, states)
			states++
			return
		}
		a := d.attention(b, bias, bias, AttentionSpec{Layer: attentions, QNorm: "q_norm", KNorm: "k_norm", Rope: rope})
		attentions++
		d.norm(a, "q_norm", d.heads*d.headDim)
		d.norm(a, "k_norm", d.kvHeads*d.headDim)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "post_attention_layernorm", "post_feedforward_layernorm")
	})
}

// olmoDeltaNet reads the sizes of delta nets.
func (d *decoder) olmoDeltaNet(f *fields) DeltaNetSpec {
	s := DeltaNetSpec{
		KeyHeads: f.count("linear_num_key_heads", d.heads, 1, maxHeads), ValueHeads: f.count("linear_num_value_heads", d.heads, 1, maxHeads),
		Kernel: f.count("linear_conv_kernel_dim", 4, 2, maxKernel), Act: d.act.act,
		Q: "q_proj", K: "k_proj", V: "v_proj", A: "a_proj", B: "b_proj", Z: "g_proj", Out: "o_proj", Conv: "conv1d", ALog: "A_log", DTBias: "dt_bias", Norm: "o_norm",
	}
	s.KeyDim = f.count("linear_key_head_dim", max(1, 3*d.hidden/(4*s.KeyHeads)), 1, maxHeads)
	s.ValueDim = f.count("linear_value_head_dim", 2*s.KeyDim, 1, maxHeads)
	if s.ValueHeads%s.KeyHeads != 0 {
		f.fail("linear_num_key_heads", "%d does not divide the %d value heads", s.KeyHeads, s.ValueHeads)
	}
	if f.bool("linear_allow_neg_eigval", true) {
		s.Strength = 2
	}
	if d.act.act == ActNone {
		f.fail("hidden_act", "linear is not supported in a delta net")
	}
	return s
}

func (d *decoder) addOlmoDeltaNet(b *Builder, s DeltaNetSpec, state int) {
	s.State = state
	keys, values := s.KeyHeads*s.KeyDim, s.ValueHeads*s.ValueDim
	a := b.Child("linear_attn", "OlmoHybridGatedDeltaNet").Runs(KindDeltaNet, &s)
	a.Param("A_log", s.ValueHeads)
	a.wide("A_log")
	a.Param("dt_bias", s.ValueHeads)
	a.Linear("q_proj", d.hidden, keys, false)
	a.Linear("k_proj", d.hidden, keys, false)
	a.Linear("v_proj", d.hidden, values, false)
	a.Linear("a_proj", d.hidden, s.ValueHeads, false)
	a.Linear("b_proj", d.hidden, s.ValueHeads, false)
	a.Linear("g_proj", d.hidden, values, false)
	a.Linear("o_proj", values, d.hidden, false)
	conv := a.Child("conv1d", "Conv1d")
	all := 2*keys + values
	first, second := a.olmoKernels(keys, all)
	conv.ParamFrom("weight", []int{all, 1, s.Kernel}, []TensorSource{
		{Tensor: a.path + ".q_conv1d.weight", Into: RowRange{0, first}}, {Tensor: a.path + ".k_conv1d.weight", Into: RowRange{first, second}},
		{Tensor: a.path + ".v_conv1d.weight", Into: RowRange{second, all}},
	}, []TensorSource{{Tensor: conv.path + ".weight"}})
	a.Child("o_norm", "OlmoHybridRMSNormGated").Runs(KindNorm, &NormSpec{Dim: s.ValueDim, Eps: 1e-5}).Param("weight", s.ValueDim)
}

// olmoKernels returns the offsets of the kernels of k_conv1d and v_conv1d among all kernels. In
// published files they are the offsets of keys and values. Files that the reference has saved
// have thirds.
func (b *Builder) olmoKernels(keys, all int) (first, second int) {
	third := (all + 2) / 3
	if b.tree.header != nil {
		for _, rename := range b.tree.renames {
			shape, _, ok := b.tree.header.Tensor(rename.Apply(b.path + ".q_conv1d.weight"))
			if ok && len(shape) == 3 && shape[0] != keys && shape[0] == third {
				return third, min(2*third, all)
			}
		}
	}
	return keys, 2 * keys
}
