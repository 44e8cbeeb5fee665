package meta

import "strings"

// deepseekV32 is DeepseekV32ForCausalLM: deepseek_v3 with sparse attention to the positions that
// an indexer selects.
func deepseekV32(f *fields, b *Builder) {
	d := readDeepseek(f, "DeepseekV32", decoderDefaults{
		vocab: 129280, hidden: 7168, inner: 18432, layers: 61, heads: 128, context: 163840, eps: 1e-6,
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	d.readMixture(f, mixtureDefaults{inner: 2048, experts: 256, topK: 8, scale: 2.5, groups: 8, topGroups: 4})
	d.sparse(f, b, IndexerSpec{Heads: 64}, nil)
}

// glmMoEDSA is GlmMoeDsaForCausalLM: deepseek_v32 whose layers may reuse the positions that an
// earlier layer has selected, and whose indexer rotates adjacent pairs.
func glmMoEDSA(f *fields, b *Builder) {
	d := readDeepseek(f, "GlmMoeDsa", decoderDefaults{
		vocab: 154880, hidden: 6144, inner: 12288, layers: 78, heads: 64, context: 202752, eps: 1e-5,
	}, latentDefaults{qRank: 2048, kvRank: 512, nope: 192, value: 256})
	d.readMixture(f, mixtureDefaults{inner: 2048, experts: 256, topK: 8, scale: 2.5, groups: 1, topGroups: 1})
	d.sparse(f, b, IndexerSpec{Heads: 32, Interleaved: true}, d.sharedIndexers(f))
}

// sparse builds a model with sparse attention. Layers with shared set have no indexer.
func (d *deepseek) sparse(f *fields, b *Builder, indexer IndexerSpec, shared []bool) {
	if d.qRank == 0 {
		f.fail("q_lora_rank", "sparse attention needs a rank, got null")
	}
	d.rope.Interleaved = true // the config has no say
	d.correction = Float32
	indexer = *d.readIndexer(f, indexer)
	mixture := d.mixtureByType(f)
	// The published files have these weights in 16 bits beside FP8, and transformers in float32.
	b.tree.excluded = append(b.tree.excluded, exclusion{name: indexer.Weights})
	d.causalLMWithNext(f, b, func(b *Builder, i int) {
		a, mla := d.latentAttention(b, i)
		mla.Chosen = indexer.Count
		if shared == nil || i >= d.layers || !shared[i] {
			d.addIndexer(a, mla, &indexer)
		}
		if mixture[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// readIndexer reads the sizes of an indexer. indexer holds the defaults.
func (d *deepseek) readIndexer(f *fields, indexer IndexerSpec) *IndexerSpec {
	indexer.Q, indexer.K, indexer.KNorm, indexer.Weights = "indexer.wq_b", "indexer.wk", "indexer.k_norm", "indexer.weights_proj"
	indexer.Count = f.size("index_topk", 2048)
	indexer.Heads = f.count("index_n_heads", indexer.Heads, 1, maxHeads)
	indexer.HeadDim = f.count("index_head_dim", 128, 1, maxHeads)
	if indexer.HeadDim < d.headDim {
		f.fail("index_head_dim", "%d, less than the %d channels that rope turns", indexer.HeadDim, d.headDim)
	}
	return &indexer
}

// addIndexer adds an indexer to a, the scope of latent attention.
func (d *deepseek) addIndexer(a *Builder, mla *MLASpec, indexer *IndexerSpec) {
	mla.Indexer = indexer
	x := a.Child("indexer", d.class+"Indexer")
	x.Linear("wq_b", d.qRank, indexer.Heads*indexer.HeadDim, false)
	x.Linear("wk", d.hidden, indexer.HeadDim, false)
	x.LayerNorm("k_norm", indexer.HeadDim, 1e-6, true)
	x.Linear("weights_proj", d.hidden, indexer.Heads, false)
}

// mixtureByType returns which layers have an MoE layer: those in mlp_layer_types or, without that
// field, all but the first of first_k_dense_replace. The last value stands for the layers for
// multi-token prediction.
func (d *deepseek) mixtureByType(f *fields) []bool {
	dense := f.count("first_k_dense_replace", 3, 0, maxLayers)
	if f.texts("mlp_layer_types") != nil {
		return d.sparseByType(f)
	}
	mixture := make([]bool, d.layers+1)
	for i := range mixture {
		mixture[i] = i >= dense
	}
	return mixture
}

// sharedIndexers returns which layers reuse the positions of the last layer with an indexer:
// those in indexer_types, or else in index_topk_pattern, or else by a schedule of frequency and
// offset.
func (d *deepseek) sharedIndexers(f *fields) []bool {
	shared := make([]bool, d.layers)
	name, types := "indexer_types", f.texts("indexer_types")
	if types == nil && f.has("index_topk_pattern") {
		name = "index_topk_pattern"
		if pattern, ok := f.values[name].(string); ok {
			types = strings.Split(strings.NewReplacer("F", "full,", "S", "shared,").Replace(pattern), ",")
			types = types[:len(types)-1]
		} else {
			types = f.texts(name)
		}
	}
	if types == nil {
		every, offset := max(f.count("index_topk_freq", 1, 0, maxLayers), 1), f.count("index_skip_topk_offset", 2, 0, maxLayers)
		for i := range shared {
			shared[i] = max(i-offset+1, 0)%every != 0
		}
		return shared
	}
	if len(types) < d.layers { // types of further layers mean nothing, as in transformers
		f.fail(name, "%d types for %d layers", len(types), d.layers)
		return shared
	}
	for i, kind := range types[:d.layers] {
		if kind != "full" && kind != "shared" {
			f.fail(name, "%.40q is not supported (supported: full, shared)", kind)
		}
		shared[i] = kind == "shared"
	}
	if shared[0] {
		f.fail(name, "the first layer shares the choice of an earlier one")
	}
	return shared
}
