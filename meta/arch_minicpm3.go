package meta

import (
	"encoding/json"
	"math"
	"strings"
)

// miniCPM3 is MiniCPM3ForCausalLM: deepseek_v2's attention with rope on halves, a dense MLP in
// every layer, and scale factors of embeddings, branches and logits.
func miniCPM3(f *fields, b *Builder) {
	value := max(1, f.size("hidden_size", 2560)/f.count("num_attention_heads", 40, 1, maxHeads))
	d := readDeepseek(f, "MiniCPM3", decoderDefaults{
		vocab: 73448, hidden: 2560, inner: 6400, layers: 62, heads: 40, headDim: 32, context: 32768, eps: 1e-5, tied: true,
	}, latentDefaults{qRank: 768, kvRank: 256, nope: 64, value: value})
	d.rope.Interleaved = false
	bias := f.bool("mlp_bias", false)
	scale := Int64 // as the reference keeps the factor 12
	if n, _ := f.values["scale_emb"].(json.Number); strings.ContainsAny(n.String(), ".eE") {
		scale = b.tree.dtype
	}
	w := wiring{
		block: preNorm(), spec: CausalLMSpec{EmbedScale: float32(f.positive("scale_emb", 12)), LogitScale: 1},
		embedClass: "MiniCPM3ScaledWordEmbedding", embed: func(b *Builder) { b.Buffer("embed_scale", scale, false) },
	}
	if !f.null("scale_depth") {
		w.block.ResidualScale = float32(f.positive("scale_depth", 1.4) / math.Sqrt(float64(d.layers)))
	}
	if !f.null("dim_model_base") {
		w.spec.LogitScale = float32(float64(f.size("dim_model_base", 256)) / float64(d.hidden))
	}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.latentAttention(b, i)
		d.gatedMLP(b, "mlp", d.inner, bias)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}
