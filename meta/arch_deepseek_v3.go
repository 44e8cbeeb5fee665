package meta

import (
	"fmt"
	"math"
	"strings"
)

// deepseek is what the config has beyond a decoder's.
type deepseek struct {
	*decoder
	bias        bool
	qRank       int // 0: queries are projected directly
	kvRank      int
	nope, value int // parts of a head
	scale       float32
	moe         *MoESpec
	moeInner    int
	shared      int // width of the shared experts together
	denseLayers int
}

// deepseekV3 is DeepseekV3ForCausalLM: multi-head latent attention, and after some dense
// layers a mixture with grouped sigmoid routing and shared experts.
func deepseekV3(f *fields, b *Builder) {
	d := readDeepseek(f)
	layer := func(b *Builder, i int) {
		d.latentAttention(b, i)
		if i < d.denseLayers {
			d.gatedMLP(b, "mlp", d.inner, false)
		} else {
			d.mixture(b)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	}
	d.causalLM(f, b, wiring{block: preNorm()}, layer)
	// Layers that predict several tokens ahead follow the last one in the file.
	for depth := 1; depth <= 5; depth++ {
		b.Ignore(fmt.Sprintf("%s.layers.%d", b.tree.textPath(), d.layers) + strings.Repeat(".*", depth))
	}
	if f.err() == nil {
		d.countUnread(b, layer, f.count("num_nextn_predict_layers", 0, 0, maxLayers))
	}
}

// countUnread counts the published bytes of layers that predict several tokens ahead: each is a
// layer as the last one, a projection of two hidden vectors to one, three norms, and copies of the
// embedding and the head.
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

func readDeepseek(f *fields) *deepseek {
	d := &deepseek{
		decoder: readDecoder(f, "DeepseekV3", decoderDefaults{
			vocab: 129280, hidden: 7168, inner: 18432, layers: 61, heads: 128,
			headDim: 64, headDimField: "qk_rope_head_dim", // what rope turns
			context: 4096, eps: 1e-6, act: "silu",
			rope: ropeDefaults{theta: 10000, interleaved: f.bool("rope_interleave", true)},
		}),
		bias:        f.bool("attention_bias", false),
		kvRank:      f.size("kv_lora_rank", 512),
		nope:        f.count("qk_nope_head_dim", 128, 1, maxHeads),
		value:       f.count("v_head_dim", 128, 1, maxHeads),
		moeInner:    f.size("moe_intermediate_size", 2048),
		denseLayers: f.count("first_k_dense_replace", 3, 0, maxLayers),
	}
	if !f.null("q_lora_rank") {
		d.qRank = f.size("q_lora_rank", 1536)
	}
	d.shared = d.moeInner * f.count("n_shared_experts", 1, 1, maxExperts)
	scale := math.Pow(float64(d.nope+d.headDim), -0.5)
	if r := d.rope; r.Type == RopeYarn && r.MScaleAllDim != 0 {
		m := yarnScale(r.Factor, r.MScaleAllDim)
		scale *= m * m
	}
	d.scale = float32(scale)
	d.readRouting(f)
	return d
}

// readRouting reads how experts are chosen.
func (d *deepseek) readRouting(f *fields) {
	m := f.experts("n_routed_experts", 256, "num_experts_per_tok", 8)
	m.Router, m.Experts, m.Shared, m.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	m.Score, m.Act = ScoreSigmoid, d.act.act
	m.Renormalise = f.bool("norm_topk_prob", true)
	m.Scale = float32(f.positive("routed_scaling_factor", 2.5))
	m.Groups = f.count("n_group", 8, 1, maxExperts)
	m.TopGroups = f.count("topk_group", 4, 1, maxExperts)
	switch {
	case m.Count%m.Groups != 0 || m.Count/m.Groups < 2:
		f.fail("n_group", "%d groups of %d experts", m.Groups, m.Count)
	case m.TopGroups > m.Groups:
		f.fail("topk_group", "%d of %d groups", m.TopGroups, m.Groups)
	case m.TopK > m.TopGroups*(m.Count/m.Groups):
		f.fail("num_experts_per_tok", "%d, more than %d groups of %d have", m.TopK, m.TopGroups, m.Count/m.Groups)
	}
	if s := f.text("scoring_func", "sigmoid"); s != "sigmoid" {
		f.fail("scoring_func", "%.40q is not supported", s)
	}
	d.moe = m
}

func (d *deepseek) latentAttention(b *Builder, layer int) {
	head := d.nope + d.headDim
	mla := &MLASpec{
		QUp: "q_proj", KVDown: "kv_a_proj_with_mqa", KVNorm: "kv_a_layernorm", KVUp: "kv_b_proj",
		LoraRank: d.kvRank, RopeDim: d.headDim, NopeDim: d.nope,
	}
	if d.qRank > 0 {
		mla.QDown, mla.QNorm, mla.QUp = "q_a_proj", "q_a_layernorm", "q_b_proj"
	}
	a := b.Child("self_attn", "DeepseekV3Attention").Runs(KindAttention, &AttentionSpec{
		Layer: layer, Heads: d.heads, KVHeads: d.heads, HeadDim: head, ValueDim: d.value,
		Out: "o_proj", Scale: d.scale, Rope: d.rope, MLA: mla,
	})
	if d.qRank > 0 {
		a.Linear("q_a_proj", d.hidden, d.qRank, d.bias)
		d.latentNorm(a, "q_a_layernorm", d.qRank)
		a.Linear("q_b_proj", d.qRank, d.heads*head, false)
	} else {
		a.Linear("q_proj", d.hidden, d.heads*head, false)
	}
	a.Linear("kv_a_proj_with_mqa", d.hidden, d.kvRank+d.headDim, d.bias)
	d.latentNorm(a, "kv_a_layernorm", d.kvRank)
	a.Linear("kv_b_proj", d.kvRank, d.heads*(d.nope+d.value), false)
	a.Linear("o_proj", d.heads*d.value, d.hidden, d.bias)
}

// latentNorm adds a norm of a compressed vector. Its epsilon is that of the norm's
// class: the reference does not pass rms_norm_eps on.
func (d *deepseek) latentNorm(b *Builder, name string, dim int) {
	b.Child(name, d.normClass).
		Runs(KindNorm, &NormSpec{Dim: dim, Eps: 1e-6}).
		Param("weight", dim)
}

func (d *deepseek) mixture(b *Builder) {
	m := b.Child("mlp", "DeepseekV3MoE").Runs(KindMoE, d.moe)
	m.stackedExperts(d.moe, expertNames{
		class: "DeepseekV3Experts", gate: "gate_proj", up: "up_proj", down: "down_proj",
		each: []string{m.path + ".experts"},
	}, d.hidden, d.moeInner, d.act)
	gate := m.Child("gate", "DeepseekV3TopkRouter")
	gate.Param("weight", d.moe.Count, d.hidden)
	gate.Buffer("e_score_correction_bias", b.tree.dtype, true, d.moe.Count)
	d.gatedMLP(m, "shared_experts", d.shared, false)
}
