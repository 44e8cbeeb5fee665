package meta

import "strings"

// hyV4 is HYV4ForCausalLM: several independent residual streams; latent attention with sinks and
// gates to the positions that the layer's indexer, or that of an earlier layer, selects; and MoE
// layers with clamped gates.
func hyV4(f *fields, b *Builder) {
	hunyuan4(f, b, "HYV4", hy4Defaults{
		decoderDefaults: decoderDefaults{vocab: 120832, hidden: 2816, inner: 6912, layers: 34, heads: 32, context: 262144, eps: 1e-5},
		qRank:           1536, moeInner: 768, indexHeads: 16,
	})
}

// hyV4VL is the text model of HYV4VLForConditionalGeneration: hy_v4 with other defaults. Its rope
// rotates adjacent pairs, and the norms of the compressed queries, keys and values have the eps
// of the other norms.
func hyV4VL(f *fields, b *Builder) {
	hunyuan4(f, b, "HYV4VL", hy4Defaults{
		decoderDefaults: decoderDefaults{vocab: 120832, hidden: 6144, inner: 18432, layers: 78, heads: 64, context: 262144, eps: 1e-5},
		qRank:           2048, moeInner: 2048, indexHeads: 32, latentEps: f.positive("rms_norm_eps", 1e-5), interleaved: true,
	})
}

// hy4Defaults are the defaults in which the config classes differ.
type hy4Defaults struct {
	decoderDefaults
	qRank, moeInner, indexHeads int
	latentEps                   float64 // 0: 1e-6
	interleaved                 bool    // rope rotates adjacent pairs
}

func hunyuan4(f *fields, b *Builder, class string, def hy4Defaults) {
	d := &hy4{deepseek: readDeepseek(f.without("num_key_value_heads"), class, def.decoderDefaults, latentDefaults{qRank: def.qRank, kvRank: 512, nope: 192, value: 256})}
	d.latentEps = float32(def.latentEps)
	if d.qRank == 0 {
		f.fail("q_lora_rank", "sparse attention needs a rank, got null")
	}
	d.rope.Interleaved, d.correction = def.interleaved, Float32 // the config has no say
	d.readMixture(f, mixtureDefaults{
		count: f.expertsField(), inner: def.moeInner, experts: 256, topK: 8, scale: 2.827, groups: 1, topGroups: 1, leastShared: 1,
	})
	d.moe.Act, d.moe.Limit = ActClampedSiLU, float32(f.positive("swiglu_limit", 10))
	d.streams = StreamsSpec{
		Count: f.count("hc_mult", 4, 1, 64), Independent: true, Eps: float32(f.positive("hc_eps", 1e-6)), Magnitude: float32(f.positive("hc_magnitude", 2)),
		Attention: "attn_hc", MLP: "ffn_hc", Head: b.tree.textPath() + ".hc_head", Norm: "input_norm",
	}
	d.readIndexer(f, def.indexHeads)
	mixture := d.sparseByType(f)
	b.publishes(".gate_proj.", ".linear_gate.", ".self_attn.sinks", ".self_attn.learnable_sink_param")
	block := preNorm()
	block.Streams = &d.streams
	d.causalLM(f, b, wiring{block: block, modelClass: hy4Model(class), spec: CausalLMSpec{Streams: &d.streams}, inputs: d.head}, func(b *Builder, i int) {
		d.attention(b, i)
		if mixture[i] {
			d.experts(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		d.connection(b.Child("attn_hc", d.class+"HyperConnection"), Join(b.path, "hc_attn_layer"), 2, "fn", "base", "scale")
		d.connection(b.Child("ffn_hc", d.class+"HyperConnection"), Join(b.path, "hc_mlp_layer"), 2, "fn", "base", "scale")
	})
	b.wideWhere(d.keepsFloat32)
	b.Ignore(b.tree.textPath() + ".mtp_layers.**")
}

// hy4Model is the class of the model below the head.
func hy4Model(class string) string {
	if class == "HYV4" {
		return "HYV4Model"
	}
	return class + "TextModel"
}

// hy4 holds the part of the config that deepseek does not hold.
type hy4 struct {
	*deepseek
	streams StreamsSpec
	indexer IndexerSpec
	shared  []bool // layers without an indexer
}

func (d *hy4) readIndexer(f *fields, heads int) {
	d.indexer = IndexerSpec{
		Q: "indexer.wq_b", K: "indexer.wk", KNorm: "indexer.k_norm", Weights: "indexer.weights_proj", Last: true,
		Count: f.size("index_topk", 2048), Heads: f.count("index_n_heads", heads, 1, maxHeads), HeadDim: f.count("index_head_dim", 128, 1, maxHeads),
	}
	if d.indexer.HeadDim < d.headDim {
		f.fail("index_head_dim", "%d, less than the %d channels that rope turns", d.indexer.HeadDim, d.headDim)
	}
	if types := f.texts("layer_types"); types != nil {
		f.checkTypes("layer_types", &types, d.layers, "indexed_attention")
	}
	if f.texts("indexer_types") != nil {
		d.shared = d.sharedIndexers(f)
		return
	}
	for i := range d.layers {
		d.shared = append(d.shared, i > 0 && (i-1)%4 != 0)
	}
}

func (d *hy4) attention(b *Builder, i int) {
	a, mla := d.latentAttention(b, i)
	s := a.node.Spec.(*AttentionSpec)
	s.Sinks, s.Gate = "sinks", "gate_proj"
	mla.Chosen = d.indexer.Count
	if !d.shared[i] {
		mla.Indexer = &d.indexer
		x := a.Child("indexer", d.class+"Indexer")
		x.Linear("wq_b", d.qRank, d.indexer.Heads*d.indexer.HeadDim, false)
		x.Linear("wk", d.hidden, d.indexer.HeadDim, false)
		x.LayerNorm("k_norm", d.indexer.HeadDim, float64(d.normSpec.Eps), true)
		x.Linear("weights_proj", d.hidden, d.indexer.Heads, false)
	}
	a.Linear("gate_proj", d.hidden, d.heads*d.value, false)
	a.Param("sinks", d.heads)
}

func (d *hy4) experts(b *Builder) {
	d.check()
	m := b.Child("mlp", d.class+"MoE").Runs(KindMoE, d.moe)
	m.stackedExperts(d.moe, expertNames{
		class: d.class + "Experts", gate: "gate_proj", up: "up_proj", down: "down_proj", each: []string{m.path + ".experts"},
	}, d.hidden, d.moeInner, activation{})
	gate := m.Child("gate", d.class+"TopkRouter")
	gate.Param("weight", d.moe.Count, d.hidden)
	gate.Buffer(d.moe.Correction, d.correction, true, d.moe.Count)
	d.gatedMLP(m, "shared_experts", d.deepseek.shared, false)
}

// head adds the parameters that merge all streams into one.
func (d *hy4) head(b *Builder) {
	d.connection(b.Child("hc_head", d.class+"HyperHead"), Join(b.path, "hc_head"), 1, "hc_fn", "hc_base", "hc_scale")
}

// connection adds the parameters of the stream weights, of the given number of kinds, to c.
// Published files have them under the path at. transformers writes a prefix before the last part
// of the path.
func (d *hy4) connection(c *Builder, at string, kinds int, names ...string) {
	n := d.streams.Count
	shapes := [][]int{{kinds * n, n * d.hidden}, {kinds * n}, {kinds}}
	c.Child("input_norm", d.class+"UnweightedRMSNorm").Runs(KindNorm, &NormSpec{Dim: n * d.hidden, Eps: d.normSpec.Eps})
	cut := strings.LastIndexByte(at, '.')
	for i, name := range names {
		file := "hc_" + strings.TrimPrefix(name, "hc_")
		if kinds == 1 {
			file = "hc_head_" + strings.TrimPrefix(name, "hc_")
		}
		ways := [][]TensorSource{{{Tensor: at + ".hc_pre." + file}}, {{Tensor: at + "." + file}}, {{Tensor: Join(c.path, name)}}}
		c.ParamFrom(name, shapes[i], []TensorSource{{Tensor: at[:cut] + ".hc_pre" + at[cut:] + "." + file}}, ways...)
	}
}

// keepsFloat32 reports what transformers keeps in float32.
func (d *hy4) keepsFloat32(n *Module, p *Param) bool {
	if p.SameAs != nil {
		return false
	}
	switch strings.TrimPrefix(n.Class, d.class) {
	case "HyperConnection", "HyperHead", "TopkRouter":
		return true
	}
	switch n.Name {
	case "lm_head", "weights_proj", "k_norm":
		return true
	}
	return p.Name == "sinks"
}
