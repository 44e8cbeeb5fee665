package meta

import (
	"encoding/json"
	"strconv"
)

// gptConfig holds the fields of GPT-2's relatives, whose names differ.
type gptConfig struct {
	class                                        string
	vocab, context, hidden, inner, layers, heads int
	eps                                          float64
	act                                          activation
	tied                                         bool
}

// gptNames holds the field names of a gptConfig, and its defaults.
type gptNames struct {
	context, hidden, inner, layers, heads string
	vocab, maxContext, width, depth, wide int
	act                                   string
	tied                                  bool
}

func readGPT(f *fields, class string, n gptNames) *gptConfig {
	c := &gptConfig{
		class:   class,
		vocab:   f.size("vocab_size", n.vocab),
		context: f.size(n.context, n.maxContext),
		hidden:  f.size(n.hidden, n.width),
		layers:  f.count(n.layers, n.depth, 1, maxLayers),
		heads:   f.count(n.heads, n.wide, 1, maxHeads),
		eps:     f.positive("layer_norm_epsilon", 1e-5),
		act:     f.activation("activation_function", n.act),
		tied:    f.bool("tie_word_embeddings", n.tied),
	}
	c.inner = f.size(n.inner, 4*c.hidden)
	if c.hidden%c.heads != 0 {
		f.fail(n.heads, "%d does not divide the hidden size of %d", c.heads, c.hidden)
	}
	return c
}

// headDim returns the size of a head.
func (c *gptConfig) headDim() int { return c.hidden / c.heads }

// model adds the parts of the model around its layers and returns the scope of everything but the
// head. If positions is set, there is a table of absolute positions. If headBias is set, the head
// has a bias.
func (c *gptConfig) model(b *Builder, block BlockSpec, positions, headBias bool, layer func(b *Builder, index int)) (model *Builder) {
	spec := CausalLMSpec{
		Embed: "transformer.wte", Layers: "transformer.h", Norm: "transformer.ln_f", Head: "lm_head",
		Vocab: c.vocab, Hidden: c.hidden, Context: c.context,
	}
	model = b.Child("transformer", c.class+"Model")
	embed := model.Embedding("wte", "Embedding", c.vocab, c.hidden)
	if positions {
		spec.Positions = "transformer.wpe"
		model.Embedding("wpe", "Embedding", c.context, c.hidden)
	}
	b.Runs(KindCausalLM, &spec)
	model.Dropout("drop")
	layers := model.Child("h", "ModuleList")
	for i := range c.layers {
		layer(layers.Child(strconv.Itoa(i), c.class+"Block").Runs(KindBlock, &block), i)
	}
	model.LayerNorm("ln_f", c.hidden, c.eps, true)
	head := b.head(embed, c.hidden, c.vocab, c.tied, "lm_head.weight")
	if headBias {
		head.Param("bias", c.vocab)
	}
	return model
}

// mlp adds a plain MLP with biases.
func (c *gptConfig) mlp(b *Builder, up, down string) {
	m := b.Child("mlp", c.class+"MLP").Runs(KindMLP, &MLPSpec{Up: up, Down: down, Act: c.act.act})
	m.Linear(up, c.hidden, c.inner, true)
	m.Linear(down, c.inner, c.hidden, true)
	m.Activation("act", c.act.class, c.act.act)
	m.Dropout("dropout")
}

// separate adds separate projections without biases to a, after the dropouts that precede them.
func (c *gptConfig) separate(a *Builder, s AttentionSpec, outBias bool) {
	s.Heads, s.KVHeads, s.HeadDim, s.ValueDim = c.heads, c.heads, c.headDim(), c.headDim()
	s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "out_proj"
	a.Runs(KindAttention, &s)
	a.Dropout("attn_dropout")
	a.Dropout("resid_dropout")
	for _, name := range []string{"k_proj", "v_proj", "q_proj"} {
		a.Linear(name, c.hidden, c.hidden, false)
	}
	a.Linear("out_proj", c.hidden, c.hidden, outBias)
}

// gptNeo is GPTNeoForCausalLM: GPT-2 with separate projections, scores that are not scaled, and windows
// in some layers.
func gptNeo(f *fields, b *Builder) {
	c := readGPT(f, "GPTNeo", gptNames{
		context: "max_position_embeddings", hidden: "hidden_size", inner: "intermediate_size", layers: "num_layers", heads: "num_heads",
		vocab: 50257, maxContext: 2048, width: 2048, depth: 24, wide: 16, act: "gelu_new", tied: true,
	})
	window := f.size("window_size", 256)
	local := f.localLayers(c.layers)
	if f.err() != nil {
		return
	}
	block := BlockSpec{AttentionNorm: "ln_1", Attention: "attn.attention", MLPNorm: "ln_2", MLP: "mlp"}
	c.model(b, block, true, false, func(b *Builder, i int) {
		b.LayerNorm("ln_1", c.hidden, c.eps, true)
		a := b.Child("attn", "GPTNeoAttention").Child("attention", "GPTNeoSelfAttention")
		c.separate(a, AttentionSpec{Layer: i, Scale: 1, Window: windowIf(local[i], window)}, true)
		a.Buffer("bias", Bool, false, 1, 1, c.context, c.context)
		b.LayerNorm("ln_2", c.hidden, c.eps, true)
		c.mlp(b, "c_fc", "c_proj")
	})
	b.Ignore("transformer.h.*.attn.attention.bias", "transformer.h.*.attn.attention.masked_bias")
}

// localLayers reads attention_types, a list of pairs: the types of some layers, and how often
// they repeat.
func (f *fields) localLayers(layers int) []bool {
	const name = "attention_types"
	runs := []any{[]any{[]any{"global", "local"}, json.Number("12")}}
	if f.has(name) {
		runs = f.list(name)
	}
	var local []bool
	for _, run := range runs {
		pair, _ := run.([]any)
		if len(pair) != 2 {
			f.fail(name, "got %v, want pairs of types and a number", run)
			return make([]bool, layers)
		}
		types, _ := pair[0].([]any)
		times, ok := f.integer(name, pair[1], 0, maxLayers)
		for i := 0; ok && i < times && len(local) <= layers; i++ {
			for _, kind := range types {
				if kind != "local" && kind != "global" {
					f.fail(name, "%v is not supported", kind)
				}
				local = append(local, kind == "local")
			}
		}
	}
	if len(local) != layers {
		f.fail(name, "%d types for %d layers", len(local), layers)
		return make([]bool, layers)
	}
	return local
}
