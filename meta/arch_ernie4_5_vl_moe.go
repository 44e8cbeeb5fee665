package meta

import "fmt"

// ernie45VLMoE is the text model of Ernie4_5_VLMoeForConditionalGeneration: ernie4_5_moe with
// experts for images, which no text reaches, beside those for text.
func ernie45VLMoE(f *fields, b *Builder) {
	f = f.ernieLists()
	d := readDecoder(f, "Ernie4_5_VLMoe", decoderDefaults{
		vocab: 103424, hidden: 2560, inner: 12288, layers: 28, heads: 20, kvHeads: 4,
		context: 131072, eps: 1e-5, act: "silu", tied: true, rope: ropeDefaults{theta: 500000, interleaved: true},
	})
	bias := f.bool("use_bias", false)
	inner := 1536
	if list := f.list("moe_intermediate_size"); len(list) > 0 {
		inner, _ = f.integer(element("moe_intermediate_size", 0), list[0], 1, maxSize)
	}
	shared := inner * f.count("moe_num_shared_experts", 2, 0, maxExperts)
	spec := f.experts("moe_num_experts", 64, "moe_k", 6)
	spec.Router, spec.Experts, spec.Correction = "text_moe.gate", "text_moe.experts", "moe_statics.e_score_correction_bias"
	if shared > 0 {
		spec.Shared = "shared_experts"
	}
	spec.Score, spec.Renormalise, spec.Act = ScoreSoftmax, true, d.act.act
	sparse := d.sparseByType(f)
	w := wiring{block: preNorm(), modelClass: "Ernie4_5_VLMoeTextModel", rotary: func(b *Builder) { b.Rotary("Ernie4_5_VLMoeTextRotaryEmbedding", d.rope) }}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i})
		a.node.Class = "Ernie4_5_VLMoeTextAttention"
		if sparse[i] {
			d.ernieMixture(b, spec, inner, shared, bias)
		} else {
			d.gatedMLP(b, "mlp", d.inner, bias)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	for _, layers := range []string{"model.layers.*.mlp.", b.tree.textPath() + ".layers.*.mlp."} {
		b.Ignore(layers+"gate.weight_1", layers+"vision_moe.**")
		for i := range spec.Count {
			b.Ignore(fmt.Sprintf("%sexperts.%d.**", layers, spec.Count+i))
		}
	}
}

// ernieMixture adds a mixture for text. Published files have the experts for images behind those
// for text, their gate beside the other, and both corrections in one tensor, of which the tree has
// both rows so that it can be saved whole.
func (d *decoder) ernieMixture(b *Builder, spec *MoESpec, inner, shared int, bias bool) {
	m := b.Child("mlp", "Ernie4_5_VLMoeMoeBlock").Runs(KindMoE, spec)
	t := m.Child("text_moe", "Ernie4_5_VLMoeSparseMoeBlock")
	gate := t.Child("gate", "Ernie4_5_VLMoeMoeTopKRouter")
	dtype := b.tree.dtype
	b.tree.dtype = Float32
	gate.ParamFrom("weight", []int{spec.Count, d.hidden}, []TensorSource{{Tensor: m.path + ".gate.weight", Transposed: true}}, []TensorSource{{Tensor: gate.path + ".weight"}})
	const statics, correction = "moe_statics", "e_score_correction_bias"
	for i, scope := range []*Builder{gate, m.Child("vision_moe", "Ernie4_5_VLMoeSparseMoeBlock").Child("gate", "Ernie4_5_VLMoeMoeTopKRouter")} {
		c := scope.Child(statics, "Ernie4_5_VLMoeMoeStatics")
		c.ParamFrom(correction, []int{1, spec.Count}, []TensorSource{{Tensor: Join(m.path, statics+"."+correction), From: RowRange{i, i + 1}}}, []TensorSource{{Tensor: Join(c.path, correction)}})
	}
	b.tree.dtype = dtype
	t.stackedExperts(spec, expertNames{
		class: "Ernie4_5_VLMoeMoeExperts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{m.path + ".experts"},
	}, d.hidden, inner, d.act)
	if shared > 0 {
		d.gatedMLP(m, "shared_experts", shared, bias)
	}
}

// ernieLists returns f with the fields of published configs, which have numbers for text and
// images, in the form of transformers.
func (f *fields) ernieLists() *fields {
	const count, first, last = "moe_num_experts", "moe_layer_start_index", "moe_layer_end_index"
	g := f.without(first, last, "moe_layer_interval")
	if list, ok := f.values[count].([]any); ok && len(list) > 0 {
		g.values[count] = list[0]
	}
	if !f.has(first) || f.has("mlp_layer_types") {
		return g
	}
	layers, interval := f.count("num_hidden_layers", 28, 1, maxLayers), f.size("moe_layer_interval", 1)
	begin, end := f.extreme(first, 0, func(a, b int) bool { return a < b }), f.extreme(last, layers-1, func(a, b int) bool { return a > b })
	kinds := make([]any, layers)
	for i := range kinds {
		if kinds[i] = "dense"; (i+1)%interval == 0 && i >= begin && i <= end {
			kinds[i] = "sparse"
		}
	}
	g.values["mlp_layer_types"] = kinds
	return g
}

// extreme returns the number of a field, or of several the first in the given order.
func (f *fields) extreme(name string, def int, before func(a, b int) bool) int {
	list, ok := f.values[name].([]any)
	if !ok {
		return f.count(name, def, 0, maxLayers)
	}
	for i, v := range list {
		if n, ok := f.integer(element(name, i), v, 0, maxLayers); ok && (i == 0 || before(n, def)) {
			def = n
		}
	}
	return def
}
