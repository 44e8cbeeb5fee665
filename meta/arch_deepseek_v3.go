package meta

import (
	"cmp"
	"fmt"
	"math"
)

// deepseek holds the part of the config that decoder does not hold: latent attention and an MoE
// layer. GLM's models share one or both.
type deepseek struct {
	*decoder
	bias        bool
	qRank       int // 0: queries are projected directly
	kvRank      int
	nope, value int // parts of a head
	scale       float32
	latentEps   float32 // of the norms of compressions; 0: 1e-6
	gated       bool    // heads have gates after their queries, which are made of the compression before its norm as well

	moe        *MoESpec
	moeInner   int
	shared     int    // width of the shared experts together
	block      string // class of a mixture; "" means the prefix and "MoE"
	experts    string // class of its experts; "" means the prefix and "Experts"
	router     string // class of its router; "" means the prefix and "TopkRouter"
	wideRouter bool   // transformers keeps the router's weights in float32
	correction DType  // of the router's correction; NoDType: that of weights
	check      func() // of the groups of experts, which do not matter in a model without MoE layers
}

// deepseekV3 is DeepseekV3ForCausalLM: multi-head latent attention, and after some dense layers
// an MoE layer with grouped sigmoid routing and shared experts.
func deepseekV3(f *fields, b *Builder) {
	d := readDeepseek(f, "DeepseekV3", decoderDefaults{
		vocab: 129280, hidden: 7168, inner: 18432, layers: 61, heads: 128, context: 4096, eps: 1e-6,
	}, latentDefaults{qRank: 1536, kvRank: 512, nope: 128, value: 128})
	f.deepseekLayers(b, d, mixtureDefaults{inner: 2048, experts: 256, topK: 8, scale: 2.5, groups: 8, topGroups: 4}, 3)
}

// deepseekLayers builds deepseek_v3's model. defDense is the default number of dense layers.
func (f *fields) deepseekLayers(b *Builder, d *deepseek, def mixtureDefaults, defDense int) {
	d.readMixture(f, def)
	dense := f.count("first_k_dense_replace", defDense, 0, maxLayers)
	d.causalLMWithNext(f, b, func(b *Builder, i int) {
		d.latentAttention(b, i)
		if i < dense {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
}

// causalLMWithNext is causalLM for files that may have layers for multi-token prediction after
// the last layer. These are a model of their own, see [NewNext].
func (d *deepseek) causalLMWithNext(f *fields, b *Builder, layer func(b *Builder, index int)) {
	if b.tree.next > 0 {
		d.next(f, b, layer)
		return
	}
	d.causalLM(f, b, wiring{block: preNorm()}, layer)
	n := f.count("num_nextn_predict_layers", 0, 0, maxLayers)
	for i := range max(n, 1) {
		b.Ignore(fmt.Sprintf("%s.layers.%d.**", b.tree.textPath(), d.layers+i))
	}
	if f.err() == nil {
		d.countUnread(b, layer, n)
	}
}

// countUnread counts the published bytes of layers for multi-token prediction. Each consists of a
// layer like the last one, a projection of two hidden vectors to one, three norms, and copies of
// the embedding and the head.
func (d *deepseek) countUnread(b *Builder, layer func(*Builder, int), layers int) {
	if b.tree.header != nil || layers == 0 {
		return
	}
	aside := *b.tree // what is counted in it is not part of the model
	scope := &Builder{tree: &aside, node: &Module{}, path: fmt.Sprintf("%s.layers.%d", b.tree.textPath(), d.layers), inBlock: true}
	layer(scope, d.layers)
	hidden, vocab := int64(d.hidden), int64(d.vocab)
	bytes := aside.dtype.Bytes(2*hidden*hidden + 3*hidden + 2*vocab*hidden)
	for _, p := range scope.node.AllParams() {
		bytes += p.Bytes()
	}
	b.tree.unread = bytes * int64(layers)
}

// latentDefaults holds a config class's defaults for latent attention.
type latentDefaults struct{ qRank, kvRank, nope, value int }

// readDeepseek reads a decoder with latent attention.
func readDeepseek(f *fields, class string, def decoderDefaults, latent latentDefaults) *deepseek {
	def.headDimField = "qk_rope_head_dim" // what rope rotates
	if def.headDim == 0 {
		def.headDim = 64
	}
	def.act, def.rope = "silu", ropeDefaults{theta: cmp.Or(def.rope.theta, 10000), interleaved: f.bool("rope_interleave", true), scaling: def.rope.scaling}
	d := &deepseek{
		decoder: readDecoder(f, class, def),
		bias:    f.bool("attention_bias", false),
		kvRank:  f.size("kv_lora_rank", latent.kvRank),
		nope:    f.count("qk_nope_head_dim", latent.nope, 1, maxHeads),
		value:   f.count("v_head_dim", latent.value, 1, maxHeads),
	}
	if !f.null("q_lora_rank") {
		d.qRank = f.size("q_lora_rank", latent.qRank)
	}
	scale := math.Pow(float64(d.nope+d.headDim), -0.5)
	if r := d.rope; r.Type == RopeYarn && r.MScaleAllDim != 0 {
		m := yarnScale(r.Factor, r.MScaleAllDim)
		scale *= m * m
	}
	d.scale = float32(scale)
	return d
}

// mixtureDefaults holds a config class's defaults for its MoE layer.
type mixtureDefaults struct {
	inner, experts, topK int
	count                string // name of the field with the number of experts; "" means n_routed_experts
	scale                float64
	groups, topGroups    int
	leastShared          int // the smallest n_shared_experts
}

// readMixture reads the MoE layer: the routing, and the sizes of experts. Scores are sigmoids.
// Groups are ranked by the sum of their two best scores.
func (d *deepseek) readMixture(f *fields, def mixtureDefaults) {
	d.moeInner = f.size("moe_intermediate_size", def.inner)
	d.shared = d.moeInner * f.count("n_shared_experts", 1, def.leastShared, maxExperts)
	m := f.experts(or(def.count, "n_routed_experts"), def.experts, "num_experts_per_tok", def.topK)
	m.Router, m.Experts, m.Correction = "gate", "experts", "e_score_correction_bias"
	if d.shared > 0 {
		m.Shared = "shared_experts"
	}
	m.Score, m.Act = ScoreSigmoid, d.act.act
	m.Renormalise = f.bool("norm_topk_prob", true)
	m.Scale = float32(f.positive("routed_scaling_factor", def.scale))
	m.Groups = f.count("n_group", def.groups, 1, maxExperts)
	m.TopGroups, m.GroupsByTwo = f.count("topk_group", def.topGroups, 1, maxExperts), true
	d.check = func() { f.checkGroups(m, 2) }
	f.only("scoring_func", "sigmoid")
	d.moe = m
}

// expertsField returns the name of the field that counts routed experts: n_routed_experts, or
// num_local_experts if the config has only that.
func (f *fields) expertsField() string {
	if !f.has("n_routed_experts") && f.has("num_local_experts") {
		return "num_local_experts"
	}
	return "n_routed_experts"
}

// checkGroups checks the groups of an MoE layer, which have at least least experts each.
func (f *fields) checkGroups(m *MoESpec, least int) {
	switch {
	case m.Count%m.Groups != 0 || m.Count/m.Groups < least:
		f.fail("n_group", "%d groups of %d experts", m.Groups, m.Count)
	case m.TopGroups > m.Groups:
		f.fail("topk_group", "%d of %d groups", m.TopGroups, m.Groups)
	case m.TopK > m.TopGroups*(m.Count/m.Groups):
		f.fail("num_experts_per_tok", "%d, more than %d groups of %d have", m.TopK, m.TopGroups, m.Count/m.Groups)
	}
}

func (d *deepseek) latentAttention(b *Builder, layer int) (*Builder, *MLASpec) {
	return d.latentAttentionIn(b.Child("self_attn", d.class+"Attention"), layer)
}

// latentAttentionIn adds the parts of latent attention to a, its scope.
func (d *deepseek) latentAttentionIn(a *Builder, layer int) (*Builder, *MLASpec) {
	head := d.nope + d.headDim
	mla := &MLASpec{
		QUp: "q_proj", KVDown: "kv_a_proj_with_mqa", KVNorm: "kv_a_layernorm", KVUp: "kv_b_proj",
		LoraRank: d.kvRank, RopeDim: d.headDim, NopeDim: d.nope,
	}
	if d.qRank > 0 {
		mla.QDown, mla.QNorm, mla.QUp = "q_a_proj", "q_a_layernorm", "q_b_proj"
	}
	in, out := d.qRank, d.heads*head
	if d.gated {
		mla.QUp, mla.QConcat, in, out = "q_gate_proj", true, 2*d.qRank, d.heads*(head+d.value)
	}
	a.Runs(KindAttention, &AttentionSpec{
		Layer: layer, Heads: d.heads, KVHeads: d.heads, HeadDim: head, ValueDim: d.value,
		Out: "o_proj", Scale: d.scale, Rope: d.rope, MLA: mla, Gated: d.gated,
	})
	if d.qRank > 0 {
		a.Linear("q_a_proj", d.hidden, d.qRank, d.bias)
		d.latentNorm(a, "q_a_layernorm", d.qRank)
		a.Linear(mla.QUp, in, out, false)
	} else {
		a.Linear(mla.QUp, d.hidden, out, false)
	}
	a.Linear("kv_a_proj_with_mqa", d.hidden, d.kvRank+d.headDim, d.bias)
	d.latentNorm(a, "kv_a_layernorm", d.kvRank)
	if a.tree.conventions().SplitLatent {
		mla.KVUp, mla.KeyUp, mla.ValueUp = "", "k_b_proj", "v_b_proj"
		a.Linear("k_b_proj", d.nope, d.heads*d.kvRank, false)
		a.Linear("v_b_proj", d.kvRank, d.heads*d.value, false)
	} else {
		a.Linear("kv_b_proj", d.kvRank, d.heads*(d.nope+d.value), false)
	}
	a.Linear("o_proj", d.heads*d.value, d.hidden, d.bias)
	return a, mla
}

// latentNorm adds a norm of a compressed vector. Its epsilon is the norm class's default, because
// the reference does not pass rms_norm_eps to it.
func (d *deepseek) latentNorm(b *Builder, name string, dim int) {
	b.Child(name, d.normClass).
		Runs(KindNorm, &NormSpec{Dim: dim, Eps: cmp.Or(d.latentEps, 1e-6)}).
		Param("weight", dim)
}

func (d *deepseek) mixture(b *Builder) *Builder {
	d.check()
	m := b.Child("mlp", or(d.block, d.class+"MoE")).Runs(KindMoE, d.moe)
	m.stackedExperts(d.moe, expertNames{
		class: or(d.experts, d.class+"Experts"), gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{m.path + ".experts"},
	}, d.hidden, d.moeInner, d.act)
	gate := m.Child("gate", or(d.router, d.class+"TopkRouter"))
	if gate.Param("weight", d.moe.Count, d.hidden); d.wideRouter {
		gate.wide("weight")
	}
	if name := d.moe.Correction; name != "" {
		correction := d.correction
		if correction == NoDType {
			correction = b.tree.dtype
		}
		gate.bufferFrom(name, correction, true, []int{d.moe.Count}, [][]TensorSource{{{Tensor: Join(gate.path, name)}}, {{Tensor: Join(m.path, name)}}})
	}
	if d.shared > 0 {
		d.gatedMLP(m, "shared_experts", d.shared, false)
	}
	return m
}
