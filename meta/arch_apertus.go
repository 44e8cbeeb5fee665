package meta

import "encoding/json"

// apertus is ApertusForCausalLM: llama with norms on query and key heads, and a plain MLP whose activation
// has parameters of its own.
func apertus(f *fields, b *Builder) {
	const act, xielu = "hidden_act", "xielu"
	g, learned := f, f.text(act, xielu) == xielu
	if learned {
		g = f.without(act)
	}
	d := readDecoder(g, "Apertus", decoderDefaults{
		vocab: 131072, hidden: 4096, inner: 14336, layers: 32, heads: 32, context: 65536, eps: 1e-5, act: "linear",
		rope: ropeDefaults{theta: 12000000, scaling: map[string]any{
			"rope_type": "llama3", "rope_theta": json.Number("12000000"), "factor": json.Number("8"),
			"original_max_position_embeddings": json.Number("8192"), "low_freq_factor": json.Number("1"),
			"high_freq_factor": json.Number("4"),
		}},
	})
	bias := f.bool("attention_bias", false)
	block := BlockSpec{
		AttentionNorm: "attention_layernorm", Attention: "self_attn", MLPNorm: "feedforward_layernorm", MLP: "mlp",
	}
	d.causalLM(f, b, wiring{block: block}, func(b *Builder, i int) {
		d.qkNormAttention(b, bias, AttentionSpec{Layer: i})
		if learned {
			d.xieluMLP(b)
		} else {
			d.plainMLP(b, "up_proj", "down_proj", "act_fn", false)
		}
		d.norms(b, "attention_layernorm", "feedforward_layernorm")
	})
}

func (d *decoder) xieluMLP(b *Builder) {
	m := b.Child("mlp", d.mlpClass).Runs(KindMLP, &MLPSpec{Up: "up_proj", Down: "down_proj", XIELU: "act_fn"})
	m.Linear("up_proj", d.hidden, d.inner, false)
	m.Linear("down_proj", d.inner, d.hidden, false)
	a := m.Child("act_fn", "XIELUActivation")
	a.Param("alpha_p", 1)
	a.Param("alpha_n", 1)
	a.Buffer("beta", b.tree.dtype, true)
	a.Buffer("eps", b.tree.dtype, true)
}
