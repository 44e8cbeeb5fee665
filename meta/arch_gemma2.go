package meta

import "math"

// gemma2 is Gemma2ForCausalLM: norms before and after attention and MLP, whose weights have an
// offset of 1, scaled embeddings, soft caps, and a window in every other layer.
func gemma2(f *fields, b *Builder) {
	d := readDecoder(f, "Gemma2", gemmaDefaults(256000, 8192))
	d.normSpec.Offset = 1
	g := d.readGemma(f, 50, 30)
	sliding := d.sliding(f, func(i int) bool { return i%2 == 0 })
	d.causalLM(f, b, g.wiring(d), func(b *Builder, i int) {
		d.attention(b, g.bias, g.bias, AttentionSpec{
			Layer: i, Scale: g.scale, Softcap: g.softcap, Window: windowIf(sliding[i], g.window),
		})
		g.rest(d, b)
	})
}

func gemmaDefaults(vocab, context int) decoderDefaults {
	return decoderDefaults{
		vocab: vocab, hidden: 2304, inner: 9216, layers: 26, heads: 8, kvHeads: 4, headDim: 256,
		context: context, eps: 1e-6, act: "gelu_pytorch_tanh", actField: "hidden_activation", tied: true,
		rope: ropeDefaults{theta: 10000},
	}
}

// gemma holds the fields of Gemma configs that decoder does not hold.
type gemma struct {
	bias                    bool
	scale, softcap, headCap float32
	window                  int
}

// readGemma reads these fields. The caps are the defaults of a missing field; null means none.
func (d *decoder) readGemma(f *fields, softcap, headCap float64) *gemma {
	f.causalOnly()
	return &gemma{
		bias:    f.bool("attention_bias", false),
		scale:   rootScale(f.positive("query_pre_attn_scalar", 256)),
		softcap: f.cap("attn_logit_softcapping", softcap),
		headCap: f.cap("final_logit_softcapping", headCap),
		window:  f.window("sliding_window", 4096),
	}
}

// cap reads a soft cap; 0 stands for none.
func (f *fields) cap(name string, def float64) float32 {
	if f.null(name) {
		return 0
	}
	if def == 0 && !f.has(name) {
		return 0
	}
	return float32(f.positive(name, def))
}

// wiring returns Gemma's wiring: four norms a block, embeddings scaled by √hidden.
func (g *gemma) wiring(d *decoder) wiring {
	return wiring{
		block: BlockSpec{
			AttentionNorm: "input_layernorm", Attention: "self_attn", PostAttentionNorm: "post_attention_layernorm",
			MLPNorm: "pre_feedforward_layernorm", MLP: "mlp", PostMLPNorm: "post_feedforward_layernorm",
		},
		spec: CausalLMSpec{
			EmbedScale:   float32(math.Sqrt(float64(d.hidden))),
			LogitSoftcap: g.headCap,
		},
		embedClass: d.class + "TextScaledWordEmbedding",
		embed:      func(b *Builder) { b.Buffer("embed_scale", b.tree.dtype, false) },
	}
}

// rest adds the parts of a block other than its attention.
func (g *gemma) rest(d *decoder, b *Builder) {
	d.gatedMLP(b, "mlp", d.inner, false)
	d.norms(b, "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
}
