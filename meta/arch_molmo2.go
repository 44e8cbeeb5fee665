package meta

// molmo2 is the text model of Molmo2ForConditionalGeneration: llama with norms of queries and keys,
// by heads or over all of them, and norms before or after attention and MLP. The embedding has rows
// for more tokens than the head. Published files have fused projections and names of their own.
func molmo2(f *fields, b *Builder) {
	d := readDecoder(f.renamed("attention_bias", "qkv_bias").renamed("rms_norm_eps", "layer_norm_eps"), "Molmo2", decoderDefaults{
		vocab: 151936, hidden: 4096, inner: 12288, layers: 36, heads: 32, kvHeads: 8, headDim: 128,
		context: 36864, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	more := f.count("additional_vocab_size", 128, 0, maxSize)
	d.outputs, d.vocab = d.vocab, d.vocab+more
	m := &molmo{decoder: d, bias: f.renamed("attention_bias", "qkv_bias").bool("attention_bias", false), scaled: f.scaledRopes(d.layers)}
	switch kind := f.text("qk_norm_type", "qwen3"); kind {
	case "qwen3":
	case "olmo":
		m.whole = true
	default:
		f.fail("qk_norm_type", "%.40q is not supported (supported: qwen3, olmo)", kind)
	}
	b.publishes(
		"model.language_model.norm.", "model.transformer.ln_f.", "model.language_model.layers.", "model.transformer.blocks.",
		".self_attn.o_proj.", ".self_attn.attn_out.", ".mlp.down_proj.", ".mlp.ff_out.", ".input_layernorm.", ".attn_norm.", ".post_attention_layernorm.", ".ff_norm.",
	)
	w := wiring{block: preNorm(), modelClass: "Molmo2TextModel", rotary: m.rotary}
	const table = "model.transformer.wte."
	first := d.outputs // rows of the first part; transformers saves two halves
	if rows := b.tree.rowsOf(table + "embedding"); rows > 0 && rows <= d.vocab {
		first = rows
	}
	w.embedFrom = []TensorSource{{Tensor: table + "embedding", Into: RowRange{0, first}}}
	if first < d.vocab {
		w.embedFrom = append(w.embedFrom, TensorSource{Tensor: table + "new_embedding", Into: RowRange{first, d.vocab}})
	}
	if f.bool("norm_after", false) {
		w.block = BlockSpec{Attention: "self_attn", PostAttentionNorm: "input_layernorm", MLP: "mlp", PostMLPNorm: "post_attention_layernorm"}
	}
	d.causalLM(f, b, w, m.layer)
}

// molmo is what the layers have beyond a decoder's.
type molmo struct {
	*decoder
	bias   bool
	whole  bool   // norms are over all heads of queries and keys
	scaled []bool // layers whose rope is scaled
}

// scaledRopes reads which layers have a scaled rope.
func (f *fields) scaledRopes(layers int) []bool {
	const name = "rope_scaling_layers"
	scaled := make([]bool, layers)
	for i := range scaled {
		scaled[i] = !f.has(name)
	}
	for i, v := range f.list(name) {
		if at, ok := f.integer(element(name, i), v, 0, maxLayers); ok && at < layers {
			scaled[at] = true
		}
	}
	return scaled
}

// plainRope is the rope of layers that do not scale it.
func (m *molmo) plainRope() *RopeSpec {
	return &RopeSpec{Theta: m.rope.Theta, Dim: m.headDim, Factor: 1, Original: m.context, Max: m.context}
}

func (m *molmo) rotary(b *Builder) {
	b.Rotary("Molmo2RotaryEmbedding", m.rope)
	b.rotaryNamed("rotary_emb_unscaled", "Molmo2RotaryEmbedding", m.plainRope())
}

func (m *molmo) layer(b *Builder, i int) {
	const fused = "att_proj"
	d, queries, keys := m.decoder, m.heads*m.headDim, m.kvHeads*m.headDim
	s := d.attentionSpec(AttentionSpec{Layer: i, Q: "q_proj", K: "k_proj", V: "v_proj", Out: "o_proj", QNorm: "q_norm", KNorm: "k_norm"})
	if !m.scaled[i] {
		s.Rope = m.plainRope()
	}
	a := b.Child("self_attn", "Molmo2Attention").Runs(KindAttention, s)
	a.linearPart(fused, "q_proj", d.hidden, RowRange{0, queries}, m.bias)
	a.linearPart(fused, "k_proj", d.hidden, RowRange{queries, queries + keys}, m.bias)
	a.linearPart(fused, "v_proj", d.hidden, RowRange{queries + keys, queries + 2*keys}, m.bias)
	a.Linear("o_proj", queries, d.hidden, false)
	if m.whole {
		d.norm(a, "q_norm", queries)
		d.norm(a, "k_norm", keys)
	} else {
		d.norm(a, "q_norm", d.headDim)
		d.norm(a, "k_norm", d.headDim)
	}
	mlp := b.Child("mlp", "Molmo2MLP").Runs(KindMLP, &MLPSpec{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: d.act.act})
	mlp.linearPart("ff_proj", "gate_proj", d.hidden, RowRange{d.inner, 2 * d.inner}, false)
	mlp.linearPart("ff_proj", "up_proj", d.hidden, RowRange{0, d.inner}, false)
	mlp.Linear("down_proj", d.inner, d.hidden, false)
	mlp.Activation("act_fn", d.act.class, d.act.act)
	d.norms(b, "input_layernorm", "post_attention_layernorm")
}
