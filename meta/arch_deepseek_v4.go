package meta

import "strings"

// deepseek4 holds the part of the config that decoder does not hold.
type deepseek4 struct {
	*decoder
	qRank, groups, outRank int
	window                 int
	layerTypes, moeTypes   []string
	rates                  map[string]int
	compress               *RopeSpec // of layers with entries
	indexer                EntryIndexerSpec
	streams                StreamsSpec
	moe                    MoESpec
	moeInner               int
	mlpBias                bool
	states                 int // so far
}

// The types of layers.
const (
	slidingLayer    = "sliding_attention"
	sparseEntries   = "compressed_sparse_attention"
	heavyEntries    = "heavily_compressed_attention"
	hashedMoE       = "hash_moe"
	routedMoE       = "moe"
	deepseek4Hashed = 3 // layers with experts by token
)

// deepseekV4 is DeepseekV4ForCausalLM: several residual streams; attention of many query heads to
// a single key head, within a window and to entries that summarise earlier tokens; and MoE
// layers, the first of which select experts by token id.
func deepseekV4(f *fields, b *Builder) {
	d := &deepseek4{decoder: readDecoder(f.without("rope_scaling", "rope_parameters", "intermediate_size"), "DeepseekV4", decoderDefaults{
		vocab: 129280, hidden: 4096, inner: 2048, layers: 43, heads: 64, kvHeads: 1, headDim: 512, context: 1048576, eps: 1e-6, act: "silu",
		rope: ropeDefaults{theta: 10000},
	})}
	d.qRank, d.groups, d.outRank = f.size("q_lora_rank", 1024), f.count("o_groups", 8, 1, maxHeads), f.size("o_lora_rank", 1024)
	d.window, d.mlpBias = f.size("sliding_window", 128), f.bool("mlp_bias", false)
	if d.kvHeads != 1 {
		f.fail("num_key_value_heads", "%d is not supported (supported: 1)", d.kvHeads)
	}
	if d.heads%d.groups != 0 {
		f.fail("o_groups", "%d groups of %d heads", d.groups, d.heads)
	}
	f.only("hidden_act", "silu")
	d.readRopes(f)
	d.readLayers(f)
	d.indexer = EntryIndexerSpec{
		Q: "compressor.indexer.q_b_proj", Weights: "compressor.indexer.scorer.weights_proj",
		Heads: f.count("index_n_heads", 64, 1, maxHeads), HeadDim: f.count("index_head_dim", 128, 1, maxHeads), Count: f.size("index_topk", 512),
	}
	if d.indexer.HeadDim < d.compress.Dim {
		f.fail("index_head_dim", "%d, less than the %d channels that rope turns", d.indexer.HeadDim, d.compress.Dim)
	}
	d.streams = StreamsSpec{
		Count: f.count("hc_mult", 4, 1, 64), Iterations: f.count("hc_sinkhorn_iters", 20, 1, 1<<10), Eps: float32(f.positive("hc_eps", 1e-6)),
		Attention: "attn_hc", MLP: "ffn_hc", Head: "model.hc_head", Norm: "input_norm",
	}
	d.readExperts(f)
	d.publishes(b)
	block := preNorm()
	block.Streams = &d.streams
	d.causalLM(f, b, wiring{
		block: block, spec: CausalLMSpec{Streams: &d.streams},
		rotary: d.rotary, inputs: d.hyperHead,
	}, func(b *Builder, i int) {
		d.attention(b, i)
		d.mixture(b, i)
		d.norms(b, "input_layernorm", "post_attention_layernorm")
		d.hyperConnection(b, "attn_hc")
		d.hyperConnection(b, "ffn_hc")
	})
	b.wideWhere(d.keepsFloat32)
	b.Ignore("model.mtp.**")
}

// readRopes reads the rotary embeddings: one of layers that only have a window, and one of the
// others. Published files have the scaling of the second; transformers 5 nests both.
func (d *deepseek4) readRopes(f *fields) {
	partial := 64.0 / 512
	if f.has("qk_rope_head_dim") {
		partial = float64(f.count("qk_rope_head_dim", 64, 1, maxHeads)) / float64(d.headDim)
	}
	def := ropeDefaults{theta: 10000, partial: f.positive("partial_rotary_factor", partial), interleaved: true, headDim: d.headDim, context: d.context}
	later := def
	later.theta, later.thetaField = 160000, "compress_rope_theta"
	flat := f.without("partial_rotary_factor")
	p := f.ropeParameters(def)
	var main *fields
	if p != nil {
		if nested := p.object("main"); nested != nil && p.object("compress") != nil {
			main, p = nested, p.object("compress")
			def.partial, later.partial = 1, 1
		} else {
			p = p.without("rope_theta", "partial_rotary_factor", "main", "compress")
		}
	}
	d.rope, d.compress = flat.ropeFrom(main, true, def), flat.ropeFrom(p, true, later)
	for _, r := range []*RopeSpec{d.rope, d.compress} {
		if r.Type == RopeDynamic || r.Type == RopeLongRope {
			f.fail("rope_scaling", "frequencies that depend on the length are not supported with compressed attention")
		}
	}
	if d.compress.Type == RopeYarn && d.compress.AttentionFactor == 0 && main == nil {
		d.compress.AttentionFactor = 1
	}
}

// readLayers reads the types of layers, as transformers 5 writes them or by the rate of each
// layer.
func (d *deepseek4) readLayers(f *fields) {
	d.rates = map[string]int{
		sparseEntries: f.count("compress_rate_csa", 4, 1, 1<<16), heavyEntries: f.count("compress_rate_hca", 128, 1, 1<<16),
	}
	if rates := f.object("compress_rates"); rates != nil {
		for _, kind := range []string{sparseEntries, heavyEntries} {
			if legacy := map[string]string{sparseEntries: "compress_rate_csa", heavyEntries: "compress_rate_hca"}[kind]; !f.has(legacy) {
				d.rates[kind] = rates.count(kind, d.rates[kind], 1, 1<<16)
			}
		}
	}
	if d.layerTypes = f.texts("layer_types"); d.layerTypes == nil {
		d.layerTypes = d.typesByRate(f)
	}
	if d.moeTypes = f.texts("mlp_layer_types"); d.moeTypes == nil {
		hashed := f.count("num_hash_layers", deepseek4Hashed, 0, maxLayers)
		for i := range d.layers {
			if i < hashed {
				d.moeTypes = append(d.moeTypes, hashedMoE)
			} else {
				d.moeTypes = append(d.moeTypes, routedMoE)
			}
		}
	}
	f.checkTypes("layer_types", &d.layerTypes, d.layers, slidingLayer, sparseEntries, heavyEntries)
	f.checkTypes("mlp_layer_types", &d.moeTypes, d.layers, hashedMoE, routedMoE)
}

// checkTypes checks that there is a type for each layer. Additional types belong to layers for
// multi-token prediction.
func (f *fields) checkTypes(name string, types *[]string, layers int, known ...string) {
	if len(*types) < layers {
		f.fail(name, "%d types for %d layers", len(*types), layers)
		return
	}
	*types = (*types)[:layers]
	for _, kind := range *types {
		found := false
		for _, k := range known {
			found = found || k == kind
		}
		if !found {
			f.fail(name, "%.40q is not supported (supported: %s)", kind, strings.Join(known, ", "))
		}
	}
}

// typesByRate returns the types that compress_ratios states, or those of a schedule.
func (d *deepseek4) typesByRate(f *fields) []string {
	var types []string
	if !f.has("compress_ratios") {
		for i := range d.layers {
			kind := heavyEntries
			if i > 2 && i%2 != 0 {
				kind = sparseEntries
			}
			types = append(types, kind)
		}
		return types
	}
	kinds := map[int]string{0: slidingLayer, 4: sparseEntries, 128: heavyEntries}
	for _, ratio := range f.list("compress_ratios") {
		n, ok := f.integer("compress_ratios", ratio, 0, 1<<16)
		if ok && kinds[n] == "" {
			f.fail("compress_ratios", "%d is not supported (supported: 0, 4, 128)", n)
		}
		types = append(types, kinds[n])
	}
	return types
}

// readExperts reads the MoE layer. The shared expert is as wide as one routed expert, whatever
// count the config has.
func (d *deepseek4) readExperts(f *fields) {
	d.moeInner = f.size("moe_intermediate_size", 2048)
	m := f.experts("n_routed_experts", 256, "num_experts_per_tok", 6)
	m.Router, m.Experts, m.Shared = "gate", "experts", "shared_experts"
	m.Act, m.Limit, m.Renormalise = ActClampedSiLU, float32(f.positive("swiglu_limit", 10)), true
	m.Scale = float32(f.positive("routed_scaling_factor", 1.5))
	switch score := f.text("scoring_func", "sqrtsoftplus"); score {
	case "sqrtsoftplus":
		m.Score = ScoreSqrtSoftplus
	case "sigmoid":
		m.Score = ScoreSigmoid
	default:
		f.fail("scoring_func", "%.40q is not supported (supported: sqrtsoftplus, sigmoid)", score)
	}
	d.moe = *m
}

// keepsFloat32 reports whether transformers keeps p in float32: parameters of norms and streams,
// sinks and biases of gates.
func (d *deepseek4) keepsFloat32(n *Module, p *Param) bool {
	return p.Name == "sinks" || p.Name == "position_bias" ||
		strings.HasSuffix(n.Class, "RMSNorm") || strings.HasSuffix(n.Class, "HyperConnection") || strings.HasSuffix(n.Class, "HyperHead")
}

// rotary adds the module with the frequencies of both embeddings.
func (d *deepseek4) rotary(b *Builder) {
	c := b.Child("rotary_emb", d.class+"RotaryEmbedding")
	for _, kind := range []struct {
		name string
		rope *RopeSpec
	}{{"main", d.rope}, {"compress", d.compress}} {
		c.Buffer(kind.name+"_inv_freq", Float32, false, kind.rope.Dim/2)
		c.Buffer(kind.name+"_original_inv_freq", Float32, false, kind.rope.Dim/2)
	}
}

// hyperConnection adds the weights of the streams of a branch.
func (d *deepseek4) hyperConnection(b *Builder, name string) {
	n := d.streams.Count
	c := d.streamNorm(b.Child(name, d.class+"HyperConnection"))
	c.Param("fn", (2+n)*n, n*d.hidden)
	c.Param("base", (2+n)*n)
	c.Param("scale", 3)
}

// hyperHead adds the parameters that merge all streams into one.
func (d *deepseek4) hyperHead(b *Builder) {
	n := d.streams.Count
	c := d.streamNorm(b.Child("hc_head", d.class+"HyperHead"))
	c.Param("hc_fn", n, n*d.hidden)
	c.Param("hc_base", n)
	c.Param("hc_scale", 1)
}

func (d *deepseek4) streamNorm(b *Builder) *Builder {
	b.Child("input_norm", d.class+"UnweightedRMSNorm").Runs(KindNorm, &NormSpec{Dim: d.streams.Count * d.hidden, Eps: d.normSpec.Eps})
	return b
}

func (d *deepseek4) attention(b *Builder, layer int) {
	kind := d.layerTypes[layer]
	s := d.attentionSpec(AttentionSpec{Layer: layer, Window: d.window, Sinks: "sinks", Out: "o_b_proj"})
	c := &CompressedSpec{
		QDown: "q_a_proj", QNorm: "q_a_norm", QUp: "q_b_proj", QHeadNorm: "q_b_norm", KV: "kv_proj", KVNorm: "kv_norm", OutDown: "o_a_proj", Groups: d.groups,
	}
	s.Compressed = c
	if kind != slidingLayer {
		s.Rope = d.compress
	}
	width := d.heads * d.headDim
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
	a.Param("sinks", d.heads)
	a.Linear("q_a_proj", d.hidden, d.qRank, false)
	d.norm(a, "q_a_norm", d.qRank)
	a.Linear("q_b_proj", d.qRank, width, false)
	a.Child("q_b_norm", d.class+"UnweightedRMSNorm").Runs(KindNorm, &NormSpec{Dim: d.headDim, Eps: d.normSpec.Eps})
	a.Linear("kv_proj", d.hidden, d.headDim, false)
	d.keyNorm(a, d.headDim)
	a.Child("o_a_proj", d.class+"GroupedLinear").
		Runs(KindLinear, &LinearSpec{In: width / d.groups, Out: d.groups * d.outRank}).Param("weight", d.groups*d.outRank, width/d.groups)
	a.Linear("o_b_proj", d.groups*d.outRank, d.hidden, false)
	switch kind {
	case heavyEntries:
		c.Pool = d.pool(a.Child("compressor", d.class+"HCACompressor"), "compressor", PoolSpec{Rate: d.rates[kind], Dim: d.headDim})
	case sparseEntries:
		p := a.Child("compressor", d.class+"CSACompressor")
		c.Pool = d.pool(p, "compressor", PoolSpec{Rate: d.rates[kind], Dim: d.headDim, Overlap: true})
		x := p.Child("indexer", d.class+"Indexer")
		indexer := d.indexer
		c.Indexer = &indexer
		indexer.Pool = d.indexerPool(x, PoolSpec{Rate: d.rates[kind], Dim: indexer.HeadDim, Overlap: true})
	}
}

// keyNorm adds the norm of keys. Files saved by transformers shorten its name.
func (d *deepseek4) keyNorm(b *Builder, dim int) {
	spec := d.normSpec
	spec.Dim = dim
	n := b.Child("kv_norm", d.normClass).Runs(KindNorm, &spec)
	n.ParamFrom("weight", []int{dim}, []TensorSource{{Tensor: n.path + ".weight"}}, []TensorSource{{Tensor: Join(b.path, "norm.weight")}})
}

// pool adds the projections of a pool to b. at is b's path below the attention.
func (d *deepseek4) pool(b *Builder, at string, s PoolSpec) *PoolSpec {
	width := s.Dim
	if s.Overlap {
		width *= 2
	}
	s.State, s.Rope = d.states, d.compress
	s.KV, s.Gate, s.Norm, s.In, s.Bias = at+".kv_proj", at+".gate_proj", at+".kv_norm", at, "position_bias"
	d.states++
	b.Linear("kv_proj", d.hidden, width, false)
	b.Linear("gate_proj", d.hidden, width, false)
	b.Param("position_bias", s.Rate, width)
	d.keyNorm(b, s.Dim)
	if !strings.HasSuffix(at, "indexer") {
		d.rotary(b)
	}
	return &s
}

func (d *deepseek4) indexerPool(b *Builder, s PoolSpec) *PoolSpec {
	p := d.pool(b, "compressor.indexer", s)
	b.Linear("q_b_proj", d.qRank, d.indexer.Heads*d.indexer.HeadDim, false)
	d.rotary(b)
	b.Child("scorer", d.class+"IndexerScorer").Linear("weights_proj", d.hidden, d.indexer.Heads, false)
	return p
}

func (d *deepseek4) mixture(b *Builder, layer int) {
	spec, router := d.moe, d.class+"TopKRouter"
	if d.moeTypes[layer] == hashedMoE {
		spec.Table, router = "tid2eid", d.class+"HashRouter"
	} else {
		spec.Correction = "e_score_correction_bias"
	}
	m := b.Child("mlp", d.class+"SparseMoeBlock").Runs(KindMoE, &spec)
	gate := m.Child("gate", router)
	gate.Param("weight", spec.Count, d.hidden)
	if spec.Table != "" {
		gate.Buffer(spec.Table, Int64, true, d.vocab, spec.TopK)
	} else {
		gate.Buffer(spec.Correction, Float32, true, spec.Count)
	}
	score := activation{class: "SqrtSoftplusActivation"}
	if spec.Score == ScoreSigmoid {
		score = activation{ActSigmoid, "Sigmoid"}
	}
	gate.Activation("score_fn", score.class, score.act)
	m.stackedExperts(&spec, expertNames{
		class: d.class + "Experts", gate: "w1", up: "w3", down: "w2", each: []string{m.path + ".experts"},
	}, d.hidden, d.moeInner, d.act)
	shared := m.Child("shared_experts", d.mlpClass)
	d.gatedMLPIn(shared, d.moeInner, d.mlpBias)
	mlp := shared.node.Spec.(*MLPSpec)
	mlp.Act, mlp.Limit = spec.Act, spec.Limit
}

// publishes sets the names in published files, which transformers saves as well, and the tensors
// that these files keep in 16 bits next to FP8.
func (d *deepseek4) publishes(b *Builder) {
	for _, name := range []string{"compressor.wkv", "compressor.wgate", "indexer.weights_proj"} {
		b.tree.excluded = append(b.tree.excluded, exclusion{name: name})
	}
	const x, c, a = ".self_attn.compressor.indexer.", ".self_attn.compressor.", ".self_attn."
	b.publishes(
		"model.embed_tokens.", "model.embed.", "lm_head.", "head.", "model.hc_head.hc_", "model.hc_head_",
		x+"scorer.weights_proj.", ".attn.indexer.weights_proj.", x+"q_b_proj.", ".attn.indexer.wq_b.",
		x+"kv_norm.", ".attn.indexer.compressor.norm.", x+"kv_proj.", ".attn.indexer.compressor.wkv.",
		x+"gate_proj.", ".attn.indexer.compressor.wgate.", x+"position_bias", ".attn.indexer.compressor.ape",
		c+"kv_norm.", ".attn.compressor.norm.", c+"kv_proj.", ".attn.compressor.wkv.",
		c+"gate_proj.", ".attn.compressor.wgate.", c+"position_bias", ".attn.compressor.ape",
		a+"q_a_proj.", ".attn.wq_a.", a+"q_a_norm.", ".attn.q_norm.", a+"q_b_proj.", ".attn.wq_b.", a+"kv_proj.", ".attn.wkv.",
		a+"o_a_proj.", ".attn.wo_a.", a+"o_b_proj.", ".attn.wo_b.", a+"sinks", ".attn.attn_sink", a, ".attn.",
		".input_layernorm.", ".attn_norm.", ".post_attention_layernorm.", ".ffn_norm.",
		".attn_hc.", ".hc_attn_", ".ffn_hc.", ".hc_ffn_", ".mlp.gate.e_score_correction_bias", ".ffn.gate.bias",
		".mlp.shared_experts.gate_proj.", ".ffn.shared_experts.w1.", ".mlp.shared_experts.down_proj.", ".ffn.shared_experts.w2.",
		".mlp.shared_experts.up_proj.", ".ffn.shared_experts.w3.", ".mlp.", ".ffn.",
	)
}
