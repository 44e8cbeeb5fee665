package meta

import "cmp"

// qwen3Next has a gated delta net in most layers and gated attention in the others.
func qwen3Next(f *fields, b *Builder) {
	d, n := readQwen3Next(f, "Qwen3Next", decoderDefaults{vocab: 151936, hidden: 2048, inner: 5632, layers: 48, kvHeads: 2})
	n.fused = true
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	spec, dense := f.sparseLayers(512, 10)
	spec.Renormalise = f.bool("norm_topk_prob", true)
	d.hybrid(f, b, n, func(b *Builder, i int) {
		if dense(i) {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.sharedMixture(b, spec, inner, shared)
		}
	})
}

// qwen35 is the dense text model of Qwen3.5.
func qwen35(f *fields, b *Builder) {
	d, n := readQwen3Next(f, "Qwen3_5", decoderDefaults{vocab: 248320, hidden: 4096, inner: 12288, layers: 32, kvHeads: 4})
	n.model, n.rotary = "Qwen3_5TextModel", "Qwen3_5TextRotaryEmbedding"
	d.hybrid(f, b, n, func(b *Builder, _ int) { d.gatedMLP(b, "mlp", d.inner, false) })
}

// qwen35MoE is the text model of the Qwen3.5 MoE models. The selected weights are always divided
// by their sum.
func qwen35MoE(f *fields, b *Builder) {
	d, n := readQwen3Next(f, "Qwen3_5Moe", decoderDefaults{vocab: 248320, hidden: 2048, inner: 512, layers: 40, kvHeads: 2})
	n.model, n.rotary = "Qwen3_5MoeTextModel", "Qwen3_5MoeTextRotaryEmbedding"
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	spec := f.experts("num_experts", 256, "num_experts_per_tok", 8)
	spec.Router, spec.Experts, spec.Score, spec.Renormalise = "gate", "experts", ScoreSoftmax, true
	d.hybrid(f, b, n, func(b *Builder, _ int) { d.sharedMixture(b, spec, inner, shared) })
}

// deltaNets holds the configuration of a model's layers with a gated delta net.
type deltaNets struct {
	spec   DeltaNetSpec // State and names are filled in
	linear []bool       // which layers have one
	bias   bool         // of attention
	fused  bool         // projections are fused by key head
	// published is the name of the one projection that published files have for QKV, Z, B and A,
	// or "".
	published string
	// model and rotary are classes of the model and of its rotary module; "" means the prefix and
	// "Model" or "RotaryEmbedding".
	model, rotary string
}

// readQwen3Next reads what the families have in common.
func readQwen3Next(f *fields, class string, def decoderDefaults) (*decoder, *deltaNets) {
	def.heads, def.headDim, def.context, def.eps, def.act = 16, 256, 32768, 1e-6, "silu"
	def.rope = ropeDefaults{theta: 10000, partial: cmp.Or(def.rope.partial, 0.25), roundUp: true}
	d := readDecoder(f, class, def)
	d.normSpec.Offset = 1
	n := &deltaNets{bias: f.bool("attention_bias", false), spec: d.deltaNetSizes(f, 16, 32)}
	interval := f.count("full_attention_interval", 4, 1, maxLayers)
	n.linear = d.layersOfType(f, "linear_attention", func(i int) bool { return (i+1)%interval != 0 })
	return d, n
}

// deltaNetSizes reads the sizes and the activation of delta nets. keys and values are the default numbers of heads.
func (d *decoder) deltaNetSizes(f *fields, keys, values int) DeltaNetSpec {
	s := DeltaNetSpec{
		KeyHeads: f.count("linear_num_key_heads", keys, 1, maxHeads), ValueHeads: f.count("linear_num_value_heads", values, 1, maxHeads),
		KeyDim: f.count("linear_key_head_dim", 128, 1, maxHeads), ValueDim: f.count("linear_value_head_dim", 128, 1, maxHeads),
		Kernel: f.count("linear_conv_kernel_dim", 4, 2, maxKernel), Act: d.act.act,
	}
	if s.ValueHeads%s.KeyHeads != 0 {
		f.fail("linear_num_key_heads", "%d does not divide the %d value heads", s.KeyHeads, s.ValueHeads)
	}
	if d.act.act == ActNone {
		f.fail("hidden_act", "linear is not supported in a delta net")
	}
	return s
}

// maxKernel bounds the tokens that a convolution sees.
const maxKernel = 64

// layersOfType returns which layers are of the type called name. All other layers in layer_types
// must be full_attention. Without that field, is selects them.
func (d *decoder) layersOfType(f *fields, name string, is func(layer int) bool) []bool {
	list := make([]bool, d.layers)
	types := f.texts("layer_types")
	if types != nil && len(types) != d.layers {
		f.fail("layer_types", "%d types for %d layers", len(types), d.layers)
		return list
	}
	for i := range list {
		switch {
		case types == nil:
			list[i] = is(i)
		case types[i] == name:
			list[i] = true
		case types[i] != "full_attention":
			f.fail("layer_types", "%.40q is not supported", types[i])
		}
	}
	return list
}

// hybrid builds a model of delta nets and gated attention. mlp adds the rest of each layer. The
// layer of its module for multi-token prediction has attention, and otherwise the parts of layer
// 0.
func (d *decoder) hybrid(f *fields, b *Builder, n *deltaNets, mlp func(b *Builder, layer int)) {
	attentions, states := 0, 0
	w := wiring{block: preNorm(), modelClass: n.model}
	w.rotary = func(b *Builder) { b.Rotary(or(n.rotary, d.class+"RotaryEmbedding"), d.rope) }
	d.causalLMWithMTP(f, b, w, func(b *Builder, i int) {
		if n.linear[i] {
			block := preNorm()
			block.Attention = "linear_attn"
			b.Runs(KindBlock, &block)
			d.deltaNet(b, n, states)
			states++
		} else {
			d.gatedAttention(b, n.bias, AttentionSpec{Layer: attentions})
			attentions++
		}
		mlp(b, i)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	}, func(b *Builder) {
		d.gatedAttention(b, n.bias, AttentionSpec{})
		mlp(b, 0)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// gatedAttention adds attention with norms of query and key heads, and a gate for each query head.
func (d *decoder) gatedAttention(b *Builder, bias bool, spec AttentionSpec) *Builder {
	spec.QNorm, spec.KNorm, spec.Gated = "q_norm", "k_norm", true
	s := d.attentionSpec(spec)
	s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
	a.Linear("q_proj", d.hidden, 2*d.heads*d.headDim, bias)
	a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("o_proj", d.heads*d.headDim, d.hidden, bias)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
	return a
}

// deltaNet adds a gated delta net.
func (d *decoder) deltaNet(b *Builder, n *deltaNets, state int) {
	s := n.spec
	s.State, s.Conv, s.ALog, s.DTBias, s.Norm, s.Out = state, "conv1d", "A_log", "dt_bias", "norm", "out_proj"
	keys, values := s.KeyHeads*s.KeyDim, s.ValueHeads*s.ValueDim
	a := b.Child("linear_attn", d.class+"GatedDeltaNet").Runs(KindDeltaNet, &s)
	a.Param("dt_bias", s.ValueHeads)
	a.Param("A_log", s.ValueHeads)
	a.Child("conv1d", "Conv1d").Param("weight", 2*keys+values, 1, s.Kernel)
	split := b.tree.conventions().SplitDelta
	if n.fused && !split {
		s.FusedQKVZ = "in_proj_qkvz"
		a.Linear(s.FusedQKVZ, d.hidden, 2*keys+2*values, false)
	}
	if n.fused {
		s.FusedBA = "in_proj_ba"
		a.Linear(s.FusedBA, d.hidden, 2*s.ValueHeads, false)
	}
	a.Child("norm", d.class+"RMSNormGated").Runs(KindNorm, &NormSpec{Dim: s.ValueDim, Eps: d.normSpec.Eps}).Param("weight", s.ValueDim)
	a.Linear("out_proj", values, d.hidden, false)
	if !n.fused || split {
		s.QKV, s.Z = "in_proj_qkv", "in_proj_z"
	}
	if !n.fused {
		s.B, s.A = "in_proj_b", "in_proj_a"
	}
	row := 0
	for _, p := range [...]struct {
		name string
		rows int
	}{{s.QKV, 2*keys + values}, {s.Z, values}, {s.B, s.ValueHeads}, {s.A, s.ValueHeads}} {
		switch {
		case p.name == "":
		case n.published != "":
			a.linearPart(n.published, p.name, d.hidden, RowRange{row, row + p.rows}, false)
		default:
			a.Linear(p.name, d.hidden, p.rows, false)
		}
		row += p.rows
	}
}

// sharedMixture adds an MoE layer with a gated shared expert.
func (d *decoder) sharedMixture(b *Builder, spec *MoESpec, inner, shared int) {
	spec.Shared, spec.SharedGate, spec.Act = "shared_expert", "shared_expert_gate", d.act.act
	m := d.routedMixture(b, spec, inner)
	d.gatedMLP(m, "shared_expert", shared, false)
	m.Linear("shared_expert_gate", d.hidden, 1, false)
}
