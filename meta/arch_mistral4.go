package meta

import "encoding/json"

// mistral4 is Mistral4ForCausalLM: deepseek_v3's attention with queries that are scaled up with
// their position, and an MoE layer with softmax routing.
func mistral4(f *fields, b *Builder) {
	rope := ropeDefaults{theta: 10000, scaling: map[string]any{
		"rope_type": "yarn", "rope_theta": json.Number("1e4"), "factor": json.Number("128"),
		"original_max_position_embeddings": json.Number("8192"), "mscale": json.Number("1"),
		"mscale_all_dim": json.Number("1"), "llama_4_scaling_beta": json.Number("0.1"),
	}}
	d := readDeepseek(f, "Mistral4", decoderDefaults{
		vocab: 131072, hidden: 4096, inner: 12288, layers: 36, heads: 32, context: 1048576, eps: 1e-6, rope: rope,
	}, latentDefaults{qRank: 1024, kvRank: 256, nope: 64, value: 128})
	dense := f.count("first_k_dense_replace", 0, 0, maxLayers)
	d.readMixture(f.without("scoring_func"), mixtureDefaults{inner: 2048, count: f.expertsField(), experts: 128, topK: 4, scale: 1, groups: 1, topGroups: 1, leastShared: 1})
	d.moe.Score, d.moe.Correction = ScoreSoftmax, ""
	growth := d.queryGrowth(f, rope)
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		_, mla := d.latentAttention(b, i)
		mla.QueryGrowth = growth
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// queryGrowth reads how queries are scaled with their position.
func (d *deepseek) queryGrowth(f *fields, def ropeDefaults) *RopeSpec {
	p, head := f.ropeParameters(def), d.nope+d.headDim
	r := &RopeSpec{Type: RopeNone, Dim: head}
	if d.rope.Type == RopeDefault || p == nil { // the reference turns whole heads, which do not fit their rotated part
		f.fail("rope_parameters", "rope_type default is not supported for this model_type")
		return r
	}
	if turned := int(p.float("partial_rotary_factor", float64(d.headDim)/float64(head)) * float64(head)); turned != d.headDim {
		p.fail("partial_rotary_factor", "%d rotated dimensions, want qk_rope_head_dim, %d", turned, d.headDim)
	}
	if n := f.count("head_dim", head, 1, maxHeads); n != head { // of which the reference turns a part
		f.fail("head_dim", "%d, want qk_nope_head_dim and qk_rope_head_dim, %d", n, head)
	}
	if head%2 != 0 {
		f.fail("qk_nope_head_dim", "%d is not supported for this model_type, as it is odd", d.nope)
	}
	r.Growth = p.required("llama_4_scaling_beta")
	if r.GrowthEvery = d.rope.Original; d.rope.Type == RopeLinear || d.rope.Type == RopeDynamic {
		r.GrowthEvery = p.count("original_max_position_embeddings", 0, 1, maxSize)
	}
	if r.GrowthEvery == 0 {
		p.fail("original_max_position_embeddings", "missing")
		r.GrowthEvery = 1
	}
	return r
}
