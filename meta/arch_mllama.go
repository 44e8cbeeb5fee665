package meta

import (
	"fmt"
	"slices"
)

// mllama is the text model of MllamaForConditionalGeneration: llama without the layers that
// attend to images, which text skips.
func mllama(f *fields, b *Builder) {
	d := readDecoder(f, "Mllama", decoderDefaults{
		vocab: 128256, hidden: 4096, inner: 14336, layers: 40, heads: 32, kvHeads: 8, headDimField: derived, context: 131072,
		eps: 1e-5, act: "silu", rope: ropeDefaults{theta: 500000},
	})
	d.mlpClass, d.normClass, d.tied = "MllamaTextMLP", "MllamaTextRMSNorm", false
	d.outputs = d.vocab
	d.vocab += 8 // tokens that stand for images
	seeing := []int{3, 8, 13, 18, 23, 28, 33, 38}
	if f.has("cross_attention_layers") {
		seeing = f.tokens("cross_attention_layers")
	}
	at := 0
	w := wiring{
		block: preNorm(), modelClass: "MllamaTextModel",
		layerClass: func(int) string { return "MllamaSelfAttentionDecoderLayer" },
		without:    func(layer int) bool { return slices.Contains(seeing, layer) },
	}
	d.causalLM(f, b, w, func(b *Builder, _ int) {
		s := d.attentionSpec(AttentionSpec{Layer: at})
		at++
		s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "o_proj"
		a := b.Child("self_attn", "MllamaTextSelfAttention").Runs(KindAttention, s)
		a.Linear("q_proj", d.hidden, d.heads*d.headDim, false)
		a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, false)
		a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, false)
		a.Linear("o_proj", d.heads*d.headDim, d.hidden, false)
		d.gatedMLP(b, "mlp", d.inner, false)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	if at == 0 && f.err() == nil {
		f.fail("cross_attention_layers", "all %d layers attend to images", d.layers)
	}
	for _, i := range seeing {
		if f.has("cross_attention_layers") && i >= d.layers {
			f.fail("cross_attention_layers", "%d is not one of %d layers", i, d.layers)
		}
		b.Ignore(fmt.Sprintf("%s.layers.%d.**", b.tree.textPath(), i))
	}
}
