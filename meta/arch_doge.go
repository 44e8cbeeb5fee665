package meta

// doge is DogeForCausalLM: llama with a learned bias of each key in the scores, by which keys may
// be selected, and with factors per channel of the residual stream.
func doge(f *fields, b *Builder) {
	d := readDecoder(f, "Doge", decoderDefaults{
		vocab: 32768, hidden: 1024, inner: 2048, layers: 32, heads: 8, context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	if f.bool("is_moe", false) {
		f.fail("is_moe", "true is not supported, as the reference mixes the routes of tokens of one pass")
	}
	bias, mlpBias := f.bool("attention_bias", false), f.bool("mlp_bias", false)
	window, keep := f.window("sliding_window", 0), f.size("keep_window_size", 2048)
	if window > keep {
		f.fail("sliding_window", "%d, more than keep_window_size, %d", window, keep)
	}
	block := preNorm()
	block.AttentionResidual, block.MLPResidual = "input_residual", "post_attention_residual"
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		b.Param("input_residual", d.hidden)
		b.Param("post_attention_residual", d.hidden)
		d.norm(b, "input_layernorm", d.hidden)
		s := KeyBiasSpec{Step: "dt_proj", Rate: "A"}
		if window == 0 {
			s.Count, s.Layer = keep, d.layers+i
		}
		d.dogeAttention(b, bias, AttentionSpec{Layer: i, Window: window, QNorm: "q_norm", KNorm: "k_norm", KeyBias: &s})
		d.norm(b, "post_attention_layernorm", d.hidden)
		d.gatedMLP(b, "mlp", d.inner, mlpBias)
	})
}

func (d *decoder) dogeAttention(b *Builder, bias bool, spec AttentionSpec) {
	s := d.attentionSpec(spec)
	s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
	a.Param(s.KeyBias.Rate, d.kvHeads)
	a.Linear("q_proj", d.hidden, d.heads*d.headDim, bias)
	a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear(s.KeyBias.Step, d.kvHeads*d.headDim, d.kvHeads, bias)
	a.Linear("o_proj", d.heads*d.headDim, d.hidden, bias)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
}
