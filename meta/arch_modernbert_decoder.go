package meta

import (
	"maps"
	"slices"
	"strconv"
)

// modernBERTDecoder is ModernBertDecoderForCausalLM: a norm of the embeddings instead of one
// before the first layer, windows with a rope of their own in most layers, and an activation with
// a norm before the head.
func modernBERTDecoder(f *fields, b *Builder) {
	d := readDecoder(f.without("rope_parameters", "rope_scaling", "rope_theta", "num_key_value_heads"), "ModernBertDecoder", decoderDefaults{
		vocab: 50368, hidden: 768, inner: 1152, layers: 22, heads: 12, whole: true, headDimField: derived,
		context: 8192, eps: 1e-5, epsField: "norm_eps", act: "gelu", actField: "hidden_activation", tied: true, rope: ropeDefaults{theta: 160000},
	})
	m := &modernBERT{decoder: d, bias: f.bool("attention_bias", false), mlpBias: f.bool("mlp_bias", false)}
	d.layerNorms()
	d.normBias = f.bool("norm_bias", false)
	m.readWindows(f)
	m.readRopes(f)
	headAct, headBias := f.activation("classifier_activation", "gelu"), f.bool("classifier_bias", false)
	decoderBias := f.bool("decoder_bias", true)
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: "model.embeddings.tok_embeddings", EmbedNorm: "model.embeddings.norm", Layers: "model.layers", Norm: "model.final_norm", Head: "decoder",
		BeforeHead: &BeforeHeadSpec{Dense: "lm_head.dense", Act: headAct.act, Norm: "lm_head.norm"},
		Vocab:      d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	model := b.Child("model", "ModernBertDecoderModel")
	embeddings := model.Child("embeddings", "ModernBertDecoderEmbeddings")
	table := embeddings.Embedding("tok_embeddings", "Embedding", d.vocab, d.hidden)
	d.norm(embeddings, "norm", d.hidden)
	embeddings.Dropout("drop")
	layers := model.Child("layers", "ModuleList")
	for i := range d.layers {
		m.layer(layers.Child(strconv.Itoa(i), "ModernBertDecoderLayer"), i)
	}
	d.norm(model, "final_norm", d.hidden)
	model.layerRotary("ModernBertDecoderRotaryEmbedding", m.sliding, m.full, m.local)
	head := b.Child("lm_head", "ModernBertDecoderPredictionHead")
	head.Linear("dense", d.hidden, d.hidden, headBias)
	head.Activation("act", headAct.class, headAct.act)
	d.norm(head, "norm", d.hidden)
	out := b.headAt("decoder", table, d.hidden, d.vocab, d.tied, "decoder.weight")
	if decoderBias {
		out.Param("bias", d.vocab)
	}
}

// modernBERT holds properties of layers that decoder does not hold.
type modernBERT struct {
	*decoder
	bias, mlpBias bool
	sliding       []bool
	window        int
	full, local   *RopeSpec
}

// readWindows reads which layers have a window. Its width is sliding_window, which transformers
// saves, or half of local_attention.
func (m *modernBERT) readWindows(f *fields) {
	every := f.count("global_attn_every_n_layers", 3, 1, maxLayers)
	m.sliding = m.decoder.sliding(f, func(i int) bool { return i%every != 0 })
	name := "local_attention"
	if m.window = f.window(name, 128) / 2; f.has("sliding_window") {
		name = "sliding_window"
		m.window = f.count(name, 0, -1, maxSize)
	}
	if m.window < 1 && slices.Contains(m.sliding, true) {
		f.fail(name, "a window of %d tokens, but there are layers of type sliding_attention", m.window)
	}
}

// readRopes reads the ropes of the two kinds of layers. rope_scaling applies to both.
func (m *modernBERT) readRopes(f *fields) {
	params, scaling := f.object("rope_parameters"), f.object("rope_scaling")
	read := func(kind, theta string, base float64) *RopeSpec {
		own := &fields{at: f.at + "rope_parameters." + kind + ".", values: map[string]any{"rope_type": "default"}, errs: f.errs}
		if params != nil {
			if p := params.object(kind); p != nil {
				own = p
			}
		}
		if scaling != nil {
			values := maps.Clone(own.values)
			maps.Copy(values, scaling.values)
			own = &fields{at: scaling.at, values: values, errs: f.errs}
		}
		return f.ropeFrom(own, true, ropeDefaults{theta: base, thetaField: theta, headDim: m.headDim, context: m.context})
	}
	m.full, m.local = read("full_attention", "global_rope_theta", 160000), read("sliding_attention", "local_rope_theta", 10000)
	m.rope = m.local
	for _, sliding := range m.sliding {
		if !sliding {
			m.rope = m.full
		}
	}
}

func (m *modernBERT) layer(b *Builder, i int) {
	block := BlockSpec{AttentionNorm: "attn_norm", Attention: "attn", MLPNorm: "mlp_norm", MLP: "mlp"}
	if i == 0 {
		block.AttentionNorm = ""
		b.Child("attn_norm", "Identity")
	} else {
		m.norm(b, "attn_norm", m.hidden)
	}
	b.Runs(KindBlock, &block)
	s := AttentionSpec{Layer: i, Q: "q_proj", K: "k_proj", V: "v_proj", Out: "Wo", Rope: m.full}
	if m.sliding[i] {
		s.Rope, s.Window = m.local, m.window
	}
	a := b.Child("attn", "ModernBertDecoderAttention").Runs(KindAttention, m.attentionSpec(s))
	for _, name := range []string{"q_proj", "k_proj", "v_proj", "Wo"} {
		a.Linear(name, m.hidden, m.hidden, m.bias)
	}
	a.Dropout("out_drop")
	m.norm(b, "mlp_norm", m.hidden)
	mlp := b.Child("mlp", "ModernBertDecoderMLP").Runs(KindMLP, &MLPSpec{Fused: "Wi", Down: "Wo", Act: m.act.act})
	mlp.Linear("Wi", m.hidden, 2*m.inner, m.mlpBias)
	mlp.Activation("act", m.act.class, m.act.act)
	mlp.Dropout("drop")
	mlp.Linear("Wo", m.inner, m.hidden, m.mlpBias)
}
