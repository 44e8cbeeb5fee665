package meta

import "encoding/json"

// gptOSS is GptOssForCausalLM: sinks in attention, a window in every other layer, and
// experts with biases and a clamped gate, stored with gate and up interleaved.
func gptOSS(f *fields, b *Builder) {
	d := readDecoder(f, "GptOss", decoderDefaults{
		vocab: 201088, hidden: 2880, inner: 2880, layers: 36, heads: 64, kvHeads: 8, headDim: 64,
		context: 131072, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 150000, scaling: map[string]any{
			"rope_type": "yarn", "factor": json.Number("32"), "truncate": false,
			"original_max_position_embeddings": json.Number("4096"),
		}},
	})
	bias := f.bool("attention_bias", true)
	window := f.window("sliding_window", 128)
	sliding := d.sliding(f, func(i int) bool { return i%2 == 0 })
	spec := f.gptOSSExperts()
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, Window: windowIf(sliding[i], window), Sinks: "sinks"})
		a.Param("sinks", d.heads)

		m := b.Child("mlp", "GptOssMLP").Runs(KindMoE, spec)
		router := m.Child("router", "GptOssTopKRouter")
		router.Param("weight", spec.Count, d.hidden)
		router.Param("bias", spec.Count)
		if b.tree.conventions().SeparateGates {
			d.separateGates(m, *spec)
		} else {
			experts := m.Child("experts", "GptOssExperts")
			experts.Param("gate_up_proj", spec.Count, d.hidden, 2*d.inner)
			experts.Param("gate_up_proj_bias", spec.Count, 2*d.inner)
			experts.Param("down_proj", spec.Count, d.inner, d.hidden)
			experts.Param("down_proj_bias", spec.Count, d.hidden)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

func (f *fields) gptOSSExperts() *MoESpec {
	m := f.experts("num_local_experts", 128, "num_experts_per_tok", 4)
	m.Router, m.Experts = "router", "experts"
	m.Score, m.Act, m.GateOrder, m.Transposed = ScoreTopKSoftmax, ActClampedSwiGLU, GateInterleaved, true
	m.GateUpBias, m.DownBias = "gate_up_proj_bias", "down_proj_bias"
	m.Limit, m.Alpha = f.clampedSwiGLU()
	return m
}

// separateGates adds experts whose gate and up projections are separate tensors with outputs
// first, as in GGUF files.
func (d *decoder) separateGates(m *Builder, spec MoESpec) {
	spec.GateOrder, spec.Transposed = GateHalves, false
	m.Runs(KindMoE, &spec)
	at := m.path + ".experts"
	m.stackedExperts(&spec, expertNames{class: "GptOssExperts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{at}}, d.hidden, d.inner, d.act)
	experts := &Builder{tree: m.tree, node: m.node.Child(spec.Experts), path: at, inBlock: m.inBlock}
	experts.ParamFrom(spec.GateUpBias, []int{spec.Count, 2 * d.inner}, []TensorSource{
		{Tensor: at + ".{}.gate_proj.bias", Stack: spec.Count, Into: RowRange{0, d.inner}},
		{Tensor: at + ".{}.up_proj.bias", Stack: spec.Count, Into: RowRange{d.inner, 2 * d.inner}},
	})
	experts.ParamFrom(spec.DownBias, []int{spec.Count, d.hidden}, []TensorSource{{Tensor: at + ".{}.down_proj.bias", Stack: spec.Count}})
}
