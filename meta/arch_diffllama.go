package meta

import "math"

// diffLlama is DiffLlamaForCausalLM: llama whose attention subtracts one half of its heads from the other.
func diffLlama(f *fields, b *Builder) {
	d := readDecoder(f, "DiffLlama", decoderDefaults{
		vocab: 32000, hidden: 2048, inner: 8192, layers: 16, heads: 32, context: 2048, eps: 1e-5, act: "silu",
		rope: ropeDefaults{theta: 10000},
	})
	bias := f.bool("attention_bias", false)
	if d.kvHeads%2 != 0 {
		f.fail("num_key_value_heads", "%d is odd, and heads are subtracted in pairs", d.kvHeads)
	}
	d.causalLM(f, b, wiring{block: preNorm()}, func(b *Builder, i int) {
		s := DifferenceSpec{
			Q1: "lambda_q1", K1: "lambda_k1", Q2: "lambda_q2", K2: "lambda_k2", Init: float32(0.8 - 0.6*math.Exp(-0.3*float64(i))), Norm: "groupnorm",
		}
		a := d.attention(b, bias, bias, AttentionSpec{Layer: i, Difference: &s})
		for _, name := range []string{s.Q1, s.K1, s.Q2, s.K2} {
			a.Param(name, d.headDim)
		}
		a.Child(s.Norm, "RMSNorm").Runs(KindNorm, &NormSpec{Dim: 2 * d.headDim, Eps: d.normSpec.Eps})
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
