package meta

import "fmt"

// bailingHybrid is BailingHybridForCausalLM (Ling 3): Kimi's delta attention in most layers,
// latent attention with a gate for each head in the others, and DeepSeek-V3's MoE layers.
func bailingHybrid(f *fields, b *Builder) {
	f = f.bailingNames().without("rope_interleave")
	d := readDeepseek(f, "BailingHybrid", decoderDefaults{
		vocab: 157184, hidden: 2560, inner: 6144, layers: 42, heads: 32, context: 262144, eps: 1e-6, rope: ropeDefaults{theta: 6000000},
	}, latentDefaults{kvRank: 512, nope: 128, value: 128})
	d.tied, d.wideRouter, d.correction = false, true, Float32
	d.readMixture(f, mixtureDefaults{inner: 768, experts: 512, topK: 8, scale: 2.5, groups: 8, topGroups: 4})
	net := kimiDelta{
		heads: d.heads, dim: f.count("head_dim", 128, 1, maxHeads), kernel: f.count("short_conv_kernel_size", 4, 2, maxKernel),
		direct: true, wide: true,
	}
	if f.bool("kda_safe_gate", true) {
		if net.floor = float32(f.float("kda_lower_bound", -5)); net.floor == 0 {
			f.fail("kda_lower_bound", "0 is not supported")
		}
	}
	every := f.count("layer_group_size", 6, 1, maxLayers)
	net.linear = d.layersOfType(f, "linear_attention", func(i int) bool { return (i+1)%every != 0 })
	dense := f.count("first_k_dense_replace", 2, 0, maxLayers)
	b.publishes("model.embed_tokens.", "model.word_embeddings.", ".self_attn.o_proj.", ".attention.dense.", ".self_attn.forget_gate.", ".attention.",
		".self_attn.", ".attention.", ".mlp.gate.e_score_correction_bias", ".mlp.gate.expert_bias")
	d.withKimiDelta(f, b, net, dense, wiring{block: preNorm()}, func(b *Builder, layer int) {
		a, _ := d.latentAttention(b, layer)
		s := a.node.Spec.(*AttentionSpec)
		s.Gate, s.GateByHead = "g_proj", true
		a.Linear("g_proj", d.hidden, d.heads, false)
	})
	b.Ignore(fmt.Sprintf("model.layers.%d.**", d.layers))
}
