package meta

import (
	"maps"
)

// sarvamMLA is Sarvam's config for DeepseekV3ForCausalLM.
func sarvamMLA(f *fields, b *Builder) {
	f = f.sarvamNames()
	for _, name := range []string{"type", "rope_type"} { // deepseek_yarn is yarn
		if p := f.object("rope_scaling"); p != nil && p.values[name] == "deepseek_yarn" {
			values := maps.Clone(p.values)
			delete(values, "type")
			values["rope_type"] = "yarn"
			f.values["rope_scaling"] = values
		}
	}
	d := readDeepseek(f, "DeepseekV3", decoderDefaults{
		vocab: 262144, hidden: 4096, inner: 16384, layers: 32, heads: 64, context: 4096, eps: 1e-6,
	}, latentDefaults{kvRank: 512, nope: 128, value: 128})
	d.wideRouter, d.correction = true, Float32
	f.deepseekLayers(b, d, mixtureDefaults{inner: 2048, experts: 128, topK: 8, scale: 2.5, groups: 1, topGroups: 1}, 1)
}

// sarvamNames returns f with Sarvam's field names replaced by those of DeepSeek's and GLM's
// models.
func (f *fields) sarvamNames() *fields {
	f = f.renamed("n_routed_experts", "num_local_experts").renamed("n_routed_experts", "num_experts").renamed("n_shared_experts", "num_shared_experts")
	f = f.renamed("num_nextn_predict_layers", "num_mtp_layers")
	if _, there := f.values["q_lora_rank"]; !there {
		f = f.without()
		f.values["q_lora_rank"] = nil
	}
	return f
}

// sarvamMoE is Sarvam's config for Glm4MoeForCausalLM. Published files have fused projections and names of
// their own.
func sarvamMoE(f *fields, b *Builder) {
	f = f.sarvamNames().renamed("attention_bias", "use_qkv_bias")
	d := &deepseek{decoder: readDecoder(f, "Glm4Moe", decoderDefaults{
		vocab: 262144, hidden: 4096, inner: 8192, layers: 19, heads: 64, kvHeads: 4, headDim: 64,
		context: 131072, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 8e6, partial: 1},
	})}
	b.publishes(
		"model.embed_tokens.", "model.word_embeddings.", ".self_attn.o_proj.", ".attention.dense.", ".self_attn.q_norm.", ".attention.query_layernorm.",
		".self_attn.k_norm.", ".attention.key_layernorm.", ".self_attn.", ".attention.", ".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias",
	)
	d.wideRouter = true
	bias, qkNorm := f.bool("attention_bias", false), f.bool("use_qk_norm", true)
	d.glmLayers(f, b, mixtureDefaults{inner: 1024, experts: 128, topK: 6, scale: 2.5, groups: 1, topGroups: 1}, func(b *Builder, i int) {
		s := d.attentionSpec(AttentionSpec{Layer: i, Q: "q_proj", K: "k_proj", V: "v_proj", Out: "o_proj"})
		a := b.Child("self_attn", "Glm4MoeAttention").Runs(KindAttention, s)
		queries, keys := d.heads*d.headDim, d.kvHeads*d.headDim
		const fused = "query_key_value"
		a.linearPart(fused, "q_proj", d.hidden, RowRange{0, queries}, bias)
		a.linearPart(fused, "k_proj", d.hidden, RowRange{queries, queries + keys}, bias)
		a.linearPart(fused, "v_proj", d.hidden, RowRange{queries + keys, queries + 2*keys}, bias)
		a.Linear("o_proj", queries, d.hidden, false)
		if qkNorm {
			s.QNorm, s.KNorm = "q_norm", "k_norm"
			d.norm(a, "q_norm", d.headDim)
			d.norm(a, "k_norm", d.headDim)
		}
	})
}

// linearPart is Linear for rows of a projection that published files have in a fused tensor
// called fused.
func (b *Builder) linearPart(fused, name string, in int, rows RowRange, bias bool) {
	out := rows.End - rows.Begin
	c := b.Child(name, "Linear").Runs(KindLinear, &LinearSpec{In: in, Out: out})
	part := func(kind string) ([]TensorSource, []TensorSource) {
		return []TensorSource{{Tensor: Join(b.path, fused+"."+kind), From: rows}}, []TensorSource{{Tensor: Join(c.path, kind)}}
	}
	whole, own := part("weight")
	c.ParamFrom("weight", []int{out, in}, whole, own)
	if bias {
		whole, own = part("bias")
		c.ParamFrom("bias", []int{out}, whole, own)
	}
}
