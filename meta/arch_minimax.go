package meta

import "math"

// miniMax is MiniMaxForCausalLM (MiniMax-Text-01): lightning attention in some layers, softmax
// attention in the others, and mixtral's MoE layers. The result of each norm becomes the residual
// stream.
func miniMax(f *fields, b *Builder) {
	d := readDecoder(f, "MiniMax", decoderDefaults{
		vocab: 32000, hidden: 4096, inner: 14336, layers: 32, heads: 32, kvHeads: 8,
		context: 131072, eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 1e6},
	})
	window := f.window("sliding_window", 0)
	spec := f.experts("num_local_experts", 8, "num_experts_per_tok", 2)
	spec.Router, spec.Experts = "gate", "experts"
	spec.Score, spec.Renormalise = ScoreSoftmax, true
	kinds := d.layerKinds(f, func(i int) string {
		if i%2 == 0 {
			return "full_attention"
		}
		return "linear_attention"
	}, "full_attention", "linear_attention")
	block := preNorm()
	block.NormedResidual = true
	block.MLPSkipScale, block.MLPOut = f.branchFactors("mlp")
	full, linear := block, block
	full.AttentionSkipScale, full.AttentionOut = f.branchFactors("full_attn")
	linear.AttentionSkipScale, linear.AttentionOut = f.branchFactors("linear_attn")
	chunk := f.size("block_size", 256)
	attentions, states := 0, 0
	d.causalLM(f, b, wiring{block: full}, func(b *Builder, i int) {
		if kinds[i] == "full_attention" {
			d.attention(b, false, false, AttentionSpec{Layer: attentions, Window: window})
			attentions++
		} else {
			b.Runs(KindBlock, &linear)
			d.lightningAttention(b, i, states, chunk)
			states++
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		d.mixtralExperts(b, *spec)
	})
}

// branchFactors reads the factors of the residual stream and of a branch's result.
func (f *fields) branchFactors(branch string) (keep, out float32) {
	return f.factor(branch + "_alpha_factor"), f.factor(branch + "_beta_factor")
}

// factor reads a factor, which must not be 0. The default is 1.
func (f *fields) factor(name string) float32 {
	x := float32(f.float(name, 1))
	if x == 0 {
		f.fail(name, "0 is not supported")
	}
	return x
}

// lightningAttention adds the lightning attention of a layer. transformers keeps the powers of
// its decays, up to a chunk, in buffers, which files may contain.
func (d *decoder) lightningAttention(b *Builder, layer, state, chunk int) {
	inner := d.heads * d.headDim
	s := &LightningSpec{State: state, Heads: d.heads, HeadDim: d.headDim, QKV: "qkv_proj", Gate: "output_gate", Out: "out_proj", Norm: "norm", Act: d.act.act}
	factor := float32(1 - float64(layer)/(float64(d.layers)-1+1e-5) + 1e-5)
	base := float32(1 / math.Pow(2, 8/float64(d.heads)))
	for h := range d.heads {
		s.Rates = append(s.Rates, float32(math.Pow(float64(base), float64(h+1)))*factor)
	}
	a := b.Child("self_attn", d.class+"LightningAttention").Runs(KindLightning, s)
	if b.tree.header == nil {
		a.Buffer("slope_rate", b.tree.dtype, true, d.heads, 1, 1)
		a.Buffer("query_decay", b.tree.dtype, true, d.heads, chunk, 1)
		a.Buffer("key_decay", b.tree.dtype, true, d.heads, chunk, 1)
		a.Buffer("diagonal_decay", b.tree.dtype, true, 1, d.heads, chunk, chunk)
	}
	a.Activation("act_fn", d.act.class, d.act.act)
	a.rmsNorm("norm", d.normClass, inner, 1e-6) // regardless of the config
	a.Linear("qkv_proj", d.hidden, 3*inner, false)
	a.Linear("out_proj", inner, d.hidden, false)
	a.Linear("output_gate", d.hidden, inner, false)
	for _, name := range []string{"slope_rate", "query_decay", "key_decay", "diagonal_decay"} {
		b.Ignore(a.path + "." + name)
	}
}
