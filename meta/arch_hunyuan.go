package meta

import "maps"

// hunyuanDense is HunYuanDenseV1ForCausalLM: llama with norms on query and key heads after rope.
func hunyuanDense(f *fields, b *Builder) {
	readHunyuan(f, "HunYuanDenseV1").hunyuanDense(f, b, wiring{block: preNorm()})
}

// hunyuanVL is the text model of HunYuanVLForConditionalGeneration: hunyuanDense with names of
// fields that published files have.
func hunyuanVL(f *fields, b *Builder) {
	for name, alias := range map[string]string{"head_dim": "attention_head_dim", "vocab_size": "org_vocab_size", "pad_token_id": "pad_id"} {
		if !f.has(name) {
			f = f.renamed(name, alias)
		}
	}
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		if p := f.object(name); p != nil && p.ropeType() == "xdrope" {
			values := maps.Clone(p.values)
			values["rope_type"] = "dynamic"
			f = f.without(name)
			f.values[name] = values
		}
	}
	d := readHunyuan(f, "HunYuanVL")
	d.hunyuanDense(f, b, wiring{block: preNorm(), modelClass: "HunYuanVLTextModel", layerClass: func(int) string { return "HunYuanVLDenseV1DecoderLayer" }})
}

// hunyuanDense builds hunyuanDense's model.
func (d *decoder) hunyuanDense(f *fields, b *Builder, w wiring) {
	bias := f.bool("attention_bias", false)
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.hunyuanAttention(b, bias, i)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// hunyuanMoE is HunYuanMoEV1ForCausalLM: hunyuanDense with an MoE layer parallel to the MLP of
// each layer. Layers may select different numbers of experts.
func hunyuanMoE(f *fields, b *Builder) {
	d := readHunyuan(f, "HunYuanMoEV1")
	bias := f.bool("attention_bias", false)
	count, chosen := f.count("num_experts", 1, 1, maxExperts), d.hunyuanTopK(f)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		d.hunyuanAttention(b, bias, i)
		spec := &MoESpec{
			Router: "gate.wg", Experts: "experts", Shared: "shared_mlp", Count: count, TopK: chosen[i],
			Renormalise: true, GateUp: "gate_up_proj", Down: "down_proj", Act: d.act.act,
		}
		if spec.TopK > count {
			f.fail("moe_topk", "%d of %d experts", spec.TopK, count)
		}
		m := b.Child("mlp", "HunYuanMoEV1Moe").Runs(KindMoE, spec)
		router := m.Child("gate", "HunYuanMoEV1Gate").Child("wg", "Linear")
		router.Param("weight", count, d.hidden)
		router.wide("weight")
		m.stackedExperts(spec, expertNames{
			class: "HunYuanMoEV1Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
			each: []string{m.path + ".experts"},
		}, d.hidden, d.inner, d.act)
		d.gatedMLP(m, "shared_mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

func readHunyuan(f *fields, class string) *decoder {
	return readDecoder(f, class, decoderDefaults{
		vocab: 290943, hidden: 4096, inner: 11008, layers: 32, heads: 32,
		context: 2048, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 10000, alpha: true},
	})
}

// hunyuanTopK returns the number of experts per token in each layer.
func (d *decoder) hunyuanTopK(f *fields) []int {
	name := "moe_topk"
	if !f.has(name) && f.has("num_experts_per_tok") {
		name = "num_experts_per_tok"
	}
	chosen := make([]int, d.layers)
	list, ok := f.values[name].([]any)
	if ok && len(list) < d.layers {
		f.fail(name, "%d numbers for %d layers", len(list), d.layers)
		return chosen
	}
	for i := range chosen {
		if chosen[i] = 1; ok {
			chosen[i], _ = f.integer(element(name, i), list[i], 1, maxExperts)
		} else {
			chosen[i] = f.count(name, 1, 1, maxExperts)
		}
	}
	return chosen
}

func (d *decoder) hunyuanAttention(b *Builder, bias bool, layer int) {
	a := d.attention(b, bias, bias, AttentionSpec{Layer: layer, QNorm: "query_layernorm", KNorm: "key_layernorm", NormLast: true})
	if d.class == "HunYuanVL" {
		a.node.Class = "HunYuanVLDenseV1Attention"
	}
	d.norm(a, "query_layernorm", d.headDim)
	d.norm(a, "key_layernorm", d.headDim)
}
