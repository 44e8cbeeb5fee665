package meta

import "strconv"

// stableLM is StableLmForCausalLM: llama with layer norms and rope on a part of each head, in
// some variants with attention and MLP in parallel.
func stableLM(f *fields, b *Builder) {
	d := readDecoder(f, "StableLm", decoderDefaults{
		vocab: 50304, hidden: 2560, inner: 6912, layers: 32, heads: 32, kvHeads: 32,
		context: 4096, eps: 1e-5, epsField: "layer_norm_eps", act: "silu",
		rope: ropeDefaults{theta: 10000, partial: 0.25},
	})
	d.layerNorms()
	if d.headDim*d.heads != d.hidden {
		f.fail("head_dim", "%d heads of %d are not the hidden size of %d", d.heads, d.headDim, d.hidden)
	}
	bias := f.bool("use_qkv_bias", false)
	qkNorm := f.bool("qk_layernorm", false)
	block := preNorm()
	if block.Parallel = f.bool("use_parallel_residual", false); block.Parallel {
		block.MLPNorm = block.AttentionNorm
	}
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		spec := AttentionSpec{Layer: i}
		if qkNorm {
			spec.QNorm, spec.KNorm = "q_layernorm", "k_layernorm"
		}
		a := d.attention(b, bias, false, spec)
		if qkNorm {
			d.eachHeadNorm(a, "q_layernorm", d.heads)
			d.eachHeadNorm(a, "k_layernorm", d.kvHeads)
		}
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm")
		if !block.Parallel {
			d.norms(b, "post_attention_layernorm")
		}
		b.Dropout("dropout")
	})
}

// eachHeadNorm adds a module with a norm for each head.
func (d *decoder) eachHeadNorm(b *Builder, name string, heads int) {
	spec := d.normSpec
	spec.Dim, spec.Heads, spec.Each = d.headDim, heads, "norms"
	list := b.Child(name, "StableLmLayerNormPerHead").Runs(KindNorm, &spec).Child("norms", "ModuleList")
	for i := range heads {
		list.LayerNorm(strconv.Itoa(i), d.headDim, float64(d.normSpec.Eps), false)
	}
}
