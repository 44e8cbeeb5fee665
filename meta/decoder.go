package meta

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// decoder holds the config fields that llama and its descendants share.
type decoder struct {
	class    string // prefix of class names: "Llama"
	mlpClass string // of MLPs
	actName  string // of their activation; "" means act_fn

	vocab, hidden, inner   int
	layers, heads, kvHeads int
	headDim                int
	context                int
	act                    activation
	tied                   bool
	outputs                int // rows of the head; 0: one for each token
	cut                    int // of the head's rows, those that are logits; 0: all
	rope                   *RopeSpec

	// The norms. torch's LayerNorm has a bias; the classes of transformers have none.
	normClass  string
	finalClass string   // of the final one; "" means normClass
	normSpec   NormSpec // Dim is filled in
	normBias   bool
	bareNorms  bool // without weights
}

// decoderDefaults holds a config class's defaults for missing fields, and the names of fields
// that differ from llama's.
type decoderDefaults struct {
	vocab, hidden, inner   int
	layers, heads, kvHeads int  // kvHeads 0: as many as heads
	headDim                int  // 0: hidden / heads
	whole                  bool // hidden / heads has no remainder; elsewhere it is rounded down
	context                int
	eps                    float64
	act                    string
	tied                   bool
	rope                   ropeDefaults // headDim and context are filled in

	epsField     string // "" means rms_norm_eps
	actField     string // "" means hidden_act
	headDimField string // "" means head_dim
}

// derived is the headDimField of classes whose heads are always hidden / heads wide.
const derived = "-"

// Limits of counts. They are low because a layer takes some kilobytes.
const (
	maxLayers  = 4096
	maxHeads   = 1 << 14
	maxExperts = 1 << 16
)

// readDecoder reads the fields that the families share.
func readDecoder(f *fields, class string, def decoderDefaults) *decoder {
	d := &decoder{
		class:     class,
		mlpClass:  class + "MLP",
		vocab:     f.size("vocab_size", def.vocab),
		hidden:    f.size("hidden_size", def.hidden),
		inner:     f.size("intermediate_size", def.inner),
		layers:    f.count("num_hidden_layers", def.layers, 1, maxLayers),
		heads:     f.count("num_attention_heads", def.heads, 1, maxHeads),
		context:   f.size("max_position_embeddings", def.context),
		act:       f.activation(or(def.actField, "hidden_act"), def.act),
		tied:      f.bool("tie_word_embeddings", def.tied),
		normClass: class + "RMSNorm",
	}
	d.normSpec.Eps = float32(f.positive(or(def.epsField, "rms_norm_eps"), def.eps))
	d.readHeads(f, def)
	def.rope.headDim, def.rope.context = d.headDim, d.context
	d.rope = f.rope(def.rope)
	return d
}

func or(name, usual string) string {
	if name == "" {
		return usual
	}
	return name
}

// readHeads reads the numbers of heads. A null number of key/value heads means that of query
// heads; a missing one means the class's default.
func (d *decoder) readHeads(f *fields, def decoderDefaults) {
	kvHeads := def.kvHeads
	if kvHeads == 0 || f.null("num_key_value_heads") {
		kvHeads = d.heads
	}
	d.kvHeads = f.count("num_key_value_heads", kvHeads, 1, maxHeads)
	if d.heads%d.kvHeads != 0 {
		f.fail("num_key_value_heads", "%d does not divide the %d attention heads", d.kvHeads, d.heads)
		d.kvHeads = d.heads
	}
	field := or(def.headDimField, "head_dim")
	if d.headDim = def.headDim; d.headDim == 0 || f.null(field) {
		if d.headDim = d.hidden / d.heads; !f.has(field) && (d.headDim == 0 || d.hidden%d.heads != 0 && def.whole) {
			f.fail("num_attention_heads", "%d does not divide the hidden size of %d", d.heads, d.hidden)
		}
	}
	d.headDim = f.count(field, d.headDim, 1, maxHeads)
}

// wiring describes the parts of a model other than its layers. Only block is required.
type wiring struct {
	block      BlockSpec
	spec       CausalLMSpec // scales and caps; paths and sizes are filled in
	modelClass string       // "" means the prefix and "Model"
	embedClass string       // "" means Embedding
	embed      func(*Builder)
	embedFrom  []TensorSource // of published files; nil means a tensor of the embedding's name
	headBias   bool
	headClass  string                 // "" means Linear
	head       func(*Builder)         // adds to the head; nil for nothing
	wrapped    bool                   // scale and cap of the logits hold in wrappers too
	inputs     func(*Builder)         // adds modules to the model after the rotary module
	rotary     func(*Builder)         // adds the rotary module to the model; nil means the usual one
	layerClass func(layer int) string // class of a layer; nil means the prefix and "DecoderLayer"
	without    func(layer int) bool   // layers that only images pass; nil means none
	finalNorm  string                 // name of the final norm; "" means norm
	noNorm     bool                   // there is no final norm
	lastNorm   string                 // name of a final norm that stands behind the rotary module; "" means one before it
}

// preNorm returns llama's block.
func preNorm() BlockSpec {
	return BlockSpec{
		AttentionNorm: "input_layernorm",
		Attention:     "self_attn",
		MLPNorm:       "post_attention_layernorm",
		MLP:           "mlp",
	}
}

// causalLM builds the whole model. layer adds the contents of each block.
func (d *decoder) causalLM(f *fields, b *Builder, w wiring, layer func(b *Builder, index int)) {
	if f.err() != nil {
		return
	}
	spec, path := w.spec, b.tree.textPath()
	spec.Embed, spec.Layers, spec.Norm, spec.Head = path+".embed_tokens", path+".layers", path+"."+or(w.lastNorm, or(w.finalNorm, "norm")), b.tree.headPath()
	if w.noNorm {
		spec.Norm = ""
	}
	spec.Vocab, spec.Hidden, spec.Context = cmp.Or(d.cut, d.outputs, d.vocab), d.hidden, d.rope.contextOf(d.context)
	spec.Reach = d.rope.reachOf(d.context)
	if b.tree.wrapper != nil && !w.wrapped {
		spec.LogitScale, spec.LogitSoftcap = 0, 0 // transformers' wrappers apply their head alone
	}
	b.Runs(KindCausalLM, &spec)

	model, outer := b.textModel(or(w.modelClass, d.class+"Model"))
	embed := model.Embedding("embed_tokens", or(w.embedClass, "Embedding"), d.vocab, d.hidden, w.embedFrom...)
	if w.embed != nil {
		w.embed(embed)
	}
	layers := model.Child("layers", "ModuleList")
	block := w.block
	for i := range d.layers {
		if w.without != nil && w.without(i) {
			continue
		}
		class := d.class + "DecoderLayer"
		if w.layerClass != nil {
			class = w.layerClass(i)
		}
		layer(layers.Child(strconv.Itoa(i), class).Runs(KindBlock, &block), i)
	}
	final := *d
	final.normClass = or(d.finalClass, d.normClass)
	if w.lastNorm == "" && !w.noNorm {
		final.norm(model, or(w.finalNorm, "norm"), d.hidden)
	}
	if w.rotary == nil {
		model.Rotary(d.class+"RotaryEmbedding", d.rope)
	} else {
		w.rotary(model)
	}
	if w.lastNorm != "" {
		final.norm(model, w.lastNorm, d.hidden)
	}
	if w.inputs != nil {
		w.inputs(model)
	}
	head := outer.head(embed, d.hidden, cmp.Or(d.outputs, d.vocab), d.tied, spec.Head+".weight")
	w.fillHead(head, d.vocab)
	b.Ignore(path + ".layers.*.self_attn.rotary_emb.inv_freq")
}

// fillHead adds to the head what its usual class lacks.
func (w *wiring) fillHead(head *Builder, vocab int) {
	if w.headBias {
		head.Param("bias", vocab)
	}
	if w.headClass != "" {
		head.node.Class = w.headClass
	}
	if w.head != nil {
		w.head(head)
	}
}

// head adds lm_head, which is the embedding itself if tied is set. names are its names in
// checkpoints.
func (b *Builder) head(embed *Builder, hidden, vocab int, tied bool, names ...string) *Builder {
	return b.headAt("lm_head", embed, hidden, vocab, tied, names...)
}

// headAt is head with another path.
func (b *Builder) headAt(path string, embed *Builder, hidden, vocab int, tied bool, names ...string) *Builder {
	table := embed.node.Params[0]
	ways := make([][]TensorSource, len(names))
	for i, name := range names {
		ways[i] = []TensorSource{{Tensor: name}}
	}
	c := b.Child(path, "Linear").Runs(KindLinear, &LinearSpec{In: hidden, Out: vocab})
	if tied && b.tree.ties(table, ways, weightPlace{}) {
		c.Tied("weight", table)
		b.Ignore(names...)
	} else {
		c.ParamFrom("weight", []int{vocab, hidden}, ways[0], ways[1:]...)
	}
	return c
}

// layerNorms selects torch's LayerNorm for the model's norms.
func (d *decoder) layerNorms() {
	d.normClass, d.normSpec.Layer, d.normBias = "LayerNorm", true, true
}

// norm adds one of the model's norms.
func (d *decoder) norm(b *Builder, name string, dim int) {
	spec := d.normSpec
	spec.Dim = dim
	c := b.Child(name, d.normClass).Runs(KindNorm, &spec)
	if d.bareNorms {
		return
	}
	c.Param("weight", dim)
	if d.normBias {
		c.Param("bias", dim)
	}
}

// norms adds norms over the hidden size.
func (d *decoder) norms(b *Builder, names ...string) {
	for _, name := range names {
		d.norm(b, name, d.hidden)
	}
}

// noRope marks a layer without a rotary embedding in a model whose other layers have one.
var noRope = &RopeSpec{}

// attentionSpec fills in the fields that all layers share.
func (d *decoder) attentionSpec(spec AttentionSpec) *AttentionSpec {
	spec.Heads, spec.KVHeads, spec.HeadDim, spec.ValueDim = d.heads, d.kvHeads, d.headDim, d.headDim
	switch spec.Rope {
	case nil:
		spec.Rope = d.rope
	case noRope:
		spec.Rope = nil
	}
	if spec.Scale == 0 {
		spec.Scale = rootScale(float64(d.headDim))
	}
	return &spec
}

// attention adds grouped-query attention with separate projections. The default of spec.Out is
// o_proj.
func (d *decoder) attention(b *Builder, bias, outBias bool, spec AttentionSpec) *Builder {
	s := d.attentionSpec(spec)
	s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", or(spec.Out, "o_proj")
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, s)
	a.Linear("q_proj", d.hidden, d.heads*d.headDim, bias)
	a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear(s.Out, d.heads*d.headDim, d.hidden, outBias)
	return a
}

// qkNormAttention adds grouped-query attention with a norm of each query and key head.
func (d *decoder) qkNormAttention(b *Builder, bias bool, spec AttentionSpec) {
	spec.QNorm, spec.KNorm = "q_norm", "k_norm"
	a := d.attention(b, bias, bias, spec)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
}

// rootScale returns 1/√dim, rounded as transformers does.
func rootScale(dim float64) float32 { return float32(math.Pow(dim, -0.5)) }

// gatedMLP adds down(act(gate(x)) · up(x)).
func (d *decoder) gatedMLP(b *Builder, name string, inner int, bias bool) {
	d.gatedMLPIn(b.Child(name, d.mlpClass), inner, bias)
}

// gatedMLPIn adds a gated MLP to m, its scope.
func (d *decoder) gatedMLPIn(m *Builder, inner int, bias bool) {
	m.Runs(KindMLP, &MLPSpec{
		Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: d.act.act,
	})
	m.Linear("gate_proj", d.hidden, inner, bias)
	m.Linear("up_proj", d.hidden, inner, bias)
	m.Linear("down_proj", inner, d.hidden, bias)
	m.Activation(or(d.actName, "act_fn"), d.act.class, d.act.act)
}

// plainMLP adds down(act(up(x))), with the activation as module act.
func (d *decoder) plainMLP(b *Builder, up, down, act string, bias bool) {
	m := b.Child("mlp", d.mlpClass).Runs(KindMLP, &MLPSpec{Up: up, Down: down, Act: d.act.act})
	m.Linear(up, d.hidden, d.inner, bias)
	m.Linear(down, d.inner, d.hidden, bias)
	m.Activation(act, d.act.class, d.act.act)
}

// window reads the width of a window. Null means none; a missing field means the default.
func (f *fields) window(name string, def int) int {
	if f.null(name) {
		return 0
	}
	return f.size(name, def)
}

// sliding returns which layers have a sliding window: those that layer_types names or, without
// that field, those that slides selects.
func (d *decoder) sliding(f *fields, slides func(layer int) bool) []bool {
	sliding := make([]bool, d.layers)
	types := f.texts("layer_types")
	if types != nil && len(types) != d.layers {
		f.fail("layer_types", "%d types for %d layers", len(types), d.layers)
		return sliding
	}
	for i := range sliding {
		if types == nil {
			sliding[i] = slides(i)
			continue
		}
		switch types[i] {
		case "sliding_attention":
			sliding[i] = true
		case "full_attention":
		default:
			f.fail("layer_types", "%.40q is not supported", types[i])
		}
	}
	return sliding
}

// slidingWindow reads the width of the window of sliding layers, which is required if there are
// such layers.
func (f *fields) slidingWindow(def int, sliding []bool) int {
	const name = "sliding_window"
	window := f.window(name, def)
	if window == 0 && slices.Contains(sliding, true) {
		f.fail(name, "null, but there are layers of type sliding_attention")
	}
	return window
}

// windowIf returns window for sliding layers and 0 for the others.
func windowIf(sliding bool, window int) int {
	if sliding {
		return window
	}
	return 0
}
