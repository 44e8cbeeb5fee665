package meta

import "encoding/json"

// mistralLarge4 is the text model of MistralLarge4ForConditionalGeneration: glm_moe_dsa without a
// compression of the queries, which are scaled with the logarithm of their position. Some layers
// have no rope, and some attend to the compressed keys of earlier ones. The MoE layer is
// mistral4's. A learned vector scales the frequencies of rope.
func mistralLarge4(f *fields, b *Builder) {
	const class = "MistralLarge4Text"
	d := readDeepseek(f.without("q_lora_rank", "rope_interleave"), class, decoderDefaults{
		vocab: 204800, hidden: 6144, inner: 24576, layers: 72, heads: 64, context: 1048576, eps: 1e-5,
		rope: ropeDefaults{theta: 10000, scaling: map[string]any{
			"rope_type": "yarn", "rope_theta": json.Number("1e4"), "factor": json.Number("2048"), "original_max_position_embeddings": json.Number("512"),
			"beta_fast": json.Number("32"), "beta_slow": json.Number("1"), "attention_factor": json.Number("1"),
		}},
	}, latentDefaults{kvRank: 512, nope: 64, value: 128})
	d.qRank, d.normClass, d.latentEps, d.wideRouter = 0, "MistralLarge4RMSNorm", d.normSpec.Eps, true
	d.rope.Alpha = b.tree.textPath() + ".rotary_emb"
	count := f.expertsField()
	if f.has("num_experts") {
		count = "num_experts"
	}
	d.readMixture(f.without("scoring_func", "norm_topk_prob"), mixtureDefaults{inner: 6144, count: count, experts: 128, topK: 4, scale: 1, groups: 1, topGroups: 1, leastShared: 1})
	d.moe.Score, d.moe.Correction = ScoreSoftmax, ""
	dense := f.count("first_k_dense_replace", 1, 0, maxLayers)
	mixture := d.layersWithMixture(f, func(i int) bool { return i >= dense })
	for _, kind := range f.texts("layer_types") {
		if kind != "indexed_attention" {
			f.fail("layer_types", "%.40q is not supported (supported: indexed_attention)", kind)
		}
	}
	layers := d.largeLayers(f)
	b.tree.excluded = append(b.tree.excluded, exclusion{name: "indexer.weights_proj"})
	b.publishLarge4()
	wiring := wiring{
		block: preNorm(), spec: CausalLMSpec{LogitSoftcap: float32(f.positive("final_logit_softcapping", 30))}, wrapped: true,
		rotary: func(b *Builder) {
			b.Rotary(class+"RotaryEmbedding", d.rope)
			r := &Builder{tree: b.tree, node: b.node.Child("rotary_emb"), path: Join(b.path, "rotary_emb")}
			r.Param("alpha", d.rope.Dim/2)
			r.wide("alpha")
		},
	}
	d.causalLM(f, b, wiring, func(b *Builder, i int) {
		d.largeAttention(b, &layers[i])
		if mixture[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// publishLarge4 sets the tensor names of Mistral's own files.
func (b *Builder) publishLarge4() {
	text := b.tree.textPath() + "."
	b.publishes(text+"embed_tokens.", "tok_embeddings.", text+"rotary_emb.", "lerope.", text, "", "lm_head.", "output.",
		"self_attn.", "attention.", "q_proj.", "wq.", "kv_a_proj_with_mqa.", "wkv_a_with_mqa.", "kv_b_proj.", "wkv_b.", "o_proj.", "wo.",
		"input_layernorm.", "attention_norm.", "post_attention_layernorm.", "ffn_norm.", "kv_a_layernorm.", "kv_a_norm.",
		"softmax_scaling.scale", "ssmax_scaling.s", "softmax_scaling.bias", "ssmax_scaling.b",
		"mlp.gate.", "gate.", "mlp.experts.", "experts.", "mlp.shared_experts.", "shared_experts.", "mlp.", "feed_forward.",
		"gate_proj.", "w1.", "down_proj.", "w2.", "up_proj.", "w3.")
}

// A largeLayer describes the attention of a layer of Mistral Large 4.
type largeLayer struct {
	roped   bool
	shared  bool         // keys are those of an earlier layer,
	cache   int          // whose cache this is; -1 for one without keys of its own and of others
	indexer *IndexerSpec // nil for one that attends to what an earlier layer has chosen
	count   int          // positions
}

// largeLayers reads which layers have their own rope, keys and indexer. A layer that shares keys
// uses those that the last layer before it, with or without rope like itself, left for others.
// The reference keeps only these two, whichever layer kv_source_layers names.
func (d *deepseek) largeLayers(f *fields) []largeLayer {
	const name = "kv_source_layers"
	indexer := *d.readIndexer(f, IndexerSpec{Heads: 32, Interleaved: true})
	indexer.QNorm, indexer.HeadScale = "indexer.q_input_norm", "indexer.softmax_scaling"
	roped, choosing := f.ropedLayers(d.layers), d.sharedIndexers(f)
	layers := make([]largeLayer, d.layers)
	sources, left := d.keySources(f, name), map[bool]int{}
	caches, stores := 0, map[int]bool{}
	for i, source := range sources {
		if source != i {
			stores[source] = true
		}
	}
	for i := range layers {
		l := &layers[i]
		l.roped, l.shared, l.count = roped[i], sources[i] != i, indexer.Count
		if !choosing[i] {
			own := indexer
			l.indexer = &own
		}
		if !l.shared {
			l.cache = caches
			caches++
			if stores[i] {
				left[l.roped] = l.cache
			}
			continue
		}
		cache, ok := left[l.roped]
		if !ok {
			f.fail(name, "layer %d shares keys, but no layer with the same kind of rope before it has left any", i)
		}
		if l.cache = cache; l.indexer != nil {
			l.indexer.Layer = caches
			caches++
		}
	}
	return layers
}

// keySources reads for each layer the number of the layer whose keys it uses: its own, or that of
// an earlier layer with its own keys.
func (d *deepseek) keySources(f *fields, name string) []int {
	sources, list := make([]int, d.layers), f.list(name)
	for i := range sources {
		sources[i] = i
	}
	if list == nil {
		return sources
	}
	if len(list) != d.layers {
		f.fail(name, "%d values for %d layers", len(list), d.layers)
		return sources
	}
	for i, v := range list {
		if source, ok := f.integer(name, v, 0, i); !ok {
			return sources
		} else if source != i && sources[source] != source {
			f.fail(name, "layer %d has the keys of layer %d, which has those of another", i, source)
		} else {
			sources[i] = source
		}
	}
	return sources
}

// largeAttention adds the attention of a layer.
func (d *deepseek) largeAttention(b *Builder, l *largeLayer) {
	head, rotated := d.nope+d.headDim, d.headDim
	mla := &MLASpec{QUp: "q_proj", KVUp: "kv_b_proj", HeadScale: "softmax_scaling", LoraRank: d.kvRank, Indexer: l.indexer, Chosen: l.count}
	spec := &AttentionSpec{
		Layer: l.cache, Heads: d.heads, KVHeads: d.heads, HeadDim: head, ValueDim: d.value, Out: "o_proj", Scale: d.scale, Rope: d.rope, MLA: mla, Shared: l.shared,
	}
	if !l.roped {
		rotated, spec.Rope = 0, nil
	}
	mla.RopeDim, mla.NopeDim = rotated, head-rotated
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, spec)
	if !l.shared {
		mla.KVDown, mla.KVNorm = "kv_a_proj_with_mqa", "kv_a_layernorm"
		a.Linear(mla.KVDown, d.hidden, d.kvRank+rotated, d.bias)
		d.latentNorm(a, mla.KVNorm, d.kvRank)
	}
	a.Linear("kv_b_proj", d.kvRank, d.heads*(mla.NopeDim+d.value), false)
	a.Linear("o_proj", d.heads*d.value, d.hidden, d.bias)
	if x := l.indexer; x != nil {
		n := a.Child("indexer", d.class+"Indexer")
		n.Linear("wq_b", d.hidden, x.Heads*x.HeadDim, false)
		n.Linear("wk", d.hidden, x.HeadDim, false)
		n.LayerNorm("k_norm", x.HeadDim, 1e-6, true)
		n.Linear("weights_proj", d.hidden, x.Heads, false)
		n.LayerNorm("q_input_norm", d.hidden, 1e-6, true)
		d.headScale(n, x.Heads)
	}
	a.Linear("q_proj", d.hidden, d.heads*head, false)
	d.headScale(a, d.heads)
}

// headScale adds the parameters by which queries of each head are scaled.
func (d *deepseek) headScale(b *Builder, heads int) {
	s := b.Child("softmax_scaling", d.class+"SoftmaxScaling")
	s.Param("scale", heads)
	s.Param("bias", heads)
}
