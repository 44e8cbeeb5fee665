package meta

import (
	"math"
	"strconv"
)

// decoder is what the configs of llama and its descendants have in common.
type decoder struct {
	class string // prefix of class names: "Llama"

	vocab, hidden, inner   int
	layers, heads, kvHeads int
	headDim                int
	context                int
	eps                    float64
	act                    activation
	tied                   bool
	rope                   *RopeSpec

	normOffset float64 // added to norm weights: 1 for Gemma
}

// decoderDefaults are the values of a config class for fields that are missing.
type decoderDefaults struct {
	vocab, hidden, inner   int
	layers, heads, kvHeads int // kvHeads 0: as many as heads
	headDim                int // 0: hidden / heads
	context                int
	eps                    float64
	act                    string
	theta                  float64
	tied                   bool
}

// Limits of counts. A layer costs some kilobytes, so layers are few.
const (
	maxLayers  = 4096
	maxHeads   = 1 << 14
	maxExperts = 1 << 16
)

// readDecoder reads the fields that the family shares under its usual names.
func readDecoder(f *fields, class string, def decoderDefaults) *decoder {
	d := &decoder{
		class:   class,
		vocab:   f.size("vocab_size", def.vocab),
		hidden:  f.size("hidden_size", def.hidden),
		inner:   f.size("intermediate_size", def.inner),
		layers:  f.count("num_hidden_layers", def.layers, 1, maxLayers),
		heads:   f.count("num_attention_heads", def.heads, 1, maxHeads),
		context: f.size("max_position_embeddings", def.context),
		eps:     f.positive("rms_norm_eps", def.eps),
		act:     f.activation("hidden_act", def.act),
		tied:    f.bool("tie_word_embeddings", def.tied),
	}
	d.readHeads(f, def)
	d.rope = f.rope("", ropeDefaults{theta: def.theta, headDim: d.headDim, context: d.context})
	return d
}

// readHeads reads how the attention is divided. Null heads are the number of query
// heads; a missing field has the class's default.
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
	if d.headDim = def.headDim; d.headDim == 0 || f.null("head_dim") {
		if d.headDim = d.hidden / d.heads; !f.has("head_dim") && (d.headDim == 0 || d.hidden%d.heads != 0) {
			f.fail("num_attention_heads", "%d does not divide the hidden size of %d", d.heads, d.hidden)
		}
	}
	d.headDim = f.count("head_dim", d.headDim, 1, maxHeads)
}

// wiring is what the layers of a model look like from outside.
type wiring struct {
	block BlockSpec
	spec  CausalLMSpec // scales and caps; paths and sizes are filled in
}

// preNorm is llama's block.
func preNorm() BlockSpec {
	return BlockSpec{
		AttentionNorm: "input_layernorm",
		Attention:     "self_attn",
		MLPNorm:       "post_attention_layernorm",
		MLP:           "mlp",
	}
}

// causalLM lays out the whole model, calling layer for what stands in each block.
func (d *decoder) causalLM(f *fields, b *Builder, w wiring, layer func(b *Builder, index int)) {
	if f.err() != nil {
		return
	}
	spec := w.spec
	spec.Embed, spec.Layers, spec.Norm, spec.Head = "model.embed_tokens", "model.layers", "model.norm", "lm_head"
	spec.Vocab, spec.Hidden, spec.Context = d.vocab, d.hidden, d.rope.contextOf(d.context)
	b.Runs(KindCausalLM, &spec)

	model := b.Child("model", d.class+"Model")
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, d.hidden)
	layers := model.Child("layers", "ModuleList")
	block := w.block
	for i := range d.layers {
		layer(layers.Child(strconv.Itoa(i), d.class+"DecoderLayer").Runs(KindBlock, &block), i)
	}
	d.norm(model, "norm", d.hidden)
	model.Rotary(d.class+"RotaryEmbedding", d.rope)
	b.head(embed, d.hidden, d.vocab, d.tied)
	b.Ignore("model.layers.*.self_attn.rotary_emb.inv_freq")
}

// head adds lm_head, which is the embedding itself where the two are tied.
//
// A checkpoint may have the shared tensor under the head's name only. If it has both,
// they may differ, and the reference then leaves them untied: two parameters are
// right either way.
func (b *Builder) head(embed *Builder, hidden, vocab int, tied bool) {
	table := embed.node.Params[0]
	if header := b.tree.header; header != nil && tied {
		if _, dtype, ok := header.Tensor("lm_head.weight"); ok {
			if _, _, both := header.Tensor(table.Sources[0].Tensor); both {
				tied = false
			} else {
				table.Sources, table.DType = []Source{{Tensor: "lm_head.weight"}}, dtype
			}
		}
	}
	if !tied {
		b.Linear("lm_head", hidden, vocab, false)
		return
	}
	b.Child("lm_head", "Linear").
		Runs(KindLinear, &LinearSpec{In: hidden, Out: vocab}).
		Tied("weight", table)
	b.Ignore("lm_head.weight")
}

// norm adds one of the model's RMS norms.
func (d *decoder) norm(b *Builder, name string, dim int) {
	b.RMSNorm(name, d.class+"RMSNorm", dim, d.eps, d.normOffset)
}

// attention adds grouped attention with separate projections.
func (d *decoder) attention(b *Builder, bias, outBias bool, spec AttentionSpec) *Builder {
	spec.Heads, spec.KVHeads, spec.HeadDim, spec.ValueDim = d.heads, d.kvHeads, d.headDim, d.headDim
	spec.Q, spec.K, spec.V, spec.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	spec.Rope = d.rope
	if spec.Scale == 0 {
		spec.Scale = rootScale(d.headDim)
	}
	a := b.Child("self_attn", d.class+"Attention").Runs(KindAttention, &spec)
	a.Linear("q_proj", d.hidden, d.heads*d.headDim, bias)
	a.Linear("k_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("v_proj", d.hidden, d.kvHeads*d.headDim, bias)
	a.Linear("o_proj", d.heads*d.headDim, d.hidden, outBias)
	return a
}

// rootScale is 1/√dim, as the reference rounds it.
func rootScale(dim int) float32 { return float32(math.Pow(float64(dim), -0.5)) }

// gatedMLP adds down(act(gate(x)) · up(x)).
func (d *decoder) gatedMLP(b *Builder, name string, inner int, bias bool) {
	m := b.Child(name, d.class+"MLP").Runs(KindMLP, &MLPSpec{
		Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: d.act.act,
	})
	m.Linear("gate_proj", d.hidden, inner, bias)
	m.Linear("up_proj", d.hidden, inner, bias)
	m.Linear("down_proj", inner, d.hidden, bias)
	m.Activation("act_fn", d.act)
}

// window reads a window's width. Null means none, a missing field the default.
func (f *fields) window(name string, def int) int {
	if f.null(name) {
		return 0
	}
	return f.size(name, def)
}

// windows are the windows of all layers: window for those that layer_types calls
// sliding, or, without it, for those that slides picks; 0 for the others.
func (d *decoder) windows(f *fields, window int, slides func(layer int) bool) []int {
	windows := make([]int, d.layers)
	types := f.texts("layer_types")
	if types != nil && len(types) != d.layers {
		f.fail("layer_types", "%d types for %d layers", len(types), d.layers)
		return windows
	}
	for i := range windows {
		sliding := slides(i)
		if types != nil {
			switch types[i] {
			case "sliding_attention":
				sliding = true
			case "full_attention":
				sliding = false
			default:
				f.fail("layer_types", "%.40q is not supported", types[i])
			}
		}
		if sliding {
			windows[i] = window
		}
	}
	return windows
}
