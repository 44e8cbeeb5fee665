package meta

import "encoding/json"

// apertus is ApertusForCausalLM: llama with norms on query and key heads, and a plain MLP whose
// activation has parameters (xIELU).
func apertus(f *fields, b *Builder) { f.apertus(b, "Apertus", 131072) }

// apertus1p5 is Apertus1p5TextForCausalLM: apertus with tokens of images and sound, which the
// head may omit.
func apertus1p5(f *fields, b *Builder) { f.apertus(b, "Apertus1p5Text", 266752) }

func (f *fields) apertus(b *Builder, class string, vocab int) {
	const act, xielu = "hidden_act", "xielu"
	g, learned := f, f.text(act, xielu) == xielu
	if learned {
		g = f.without(act)
	}
	d := readDecoder(g, class, decoderDefaults{
		vocab: vocab, hidden: 4096, inner: 14336, layers: 32, heads: 32, context: 65536, eps: 1e-5, act: "linear",
		rope: ropeDefaults{theta: 12000000, scaling: map[string]any{
			"rope_type": "llama3", "rope_theta": json.Number("12000000"), "factor": json.Number("8"),
			"original_max_position_embeddings": json.Number("8192"), "low_freq_factor": json.Number("1"),
			"high_freq_factor": json.Number("4"),
		}},
	})
	d.readOutputs(f)
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

// readOutputs reads the number of rows of the head. The head omits tokens that a model never
// generates.
func (d *decoder) readOutputs(f *fields) {
	const name = "output_vocab_size"
	if d.class != "Apertus1p5Text" || f.null(name) {
		return
	}
	if d.outputs = f.count(name, d.vocab, 1, d.vocab); d.outputs < d.vocab && d.tied {
		f.fail(name, "%d beside a vocabulary of %d is not supported where the head is the embedding", d.outputs, d.vocab)
	}
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
