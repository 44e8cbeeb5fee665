package meta

import (
	"math"
	"strconv"
)

// rwkv is RwkvForCausalLM (RWKV-4): blocks without attention, each part of which has a state.
// After every rescale_every blocks the reference halves the hidden states, and also what later
// blocks add.
func rwkv(f *fields, b *Builder) {
	m := &rwkvLayers{hidden: f.size("hidden_size", 4096), eps: f.positive("layer_norm_epsilon", 1e-5)}
	vocab, tied := f.size("vocab_size", 50277), f.bool("tie_word_embeddings", false)
	layers := f.count("num_hidden_layers", 32, 1, maxLayers)
	m.width, m.inner = f.size("attention_hidden_size", m.hidden), f.size("intermediate_size", 4*m.hidden)
	m.every = f.count("rescale_every", 6, -maxLayers, maxSize)
	if m.width != m.hidden {
		f.fail("attention_hidden_size", "%d is not supported, want the hidden size of %d", m.width, m.hidden) // whose states the reference keeps in rows of the hidden size
	}
	if f.err() != nil {
		return
	}
	spec := &CausalLMSpec{
		Embed: "rwkv.embeddings", Layers: "rwkv.blocks", Norm: "rwkv.ln_out", Head: "head", Vocab: vocab, Hidden: m.hidden, Context: endlessContext,
	}
	if m.halves(layers) {
		spec.NormScale = 0.5
	}
	b.Runs(KindCausalLM, spec)
	model := b.Child("rwkv", "RwkvModel")
	embed := model.Embedding("embeddings", "Embedding", vocab, m.hidden)
	blocks := model.Child("blocks", "ModuleList")
	for i := range layers {
		m.block(blocks.Child(strconv.Itoa(i), "RwkvBlock"), i)
	}
	const eps = 1e-5 // whatever layer_norm_epsilon says
	model.LayerNorm("ln_out", m.hidden, eps, true)
	b.headAt("head", embed, m.hidden, vocab, tied, "head.weight")
}

// rwkvLayers holds the properties of RWKV's blocks.
type rwkvLayers struct {
	hidden, width, inner, every int
	eps                         float64
}

// halves reports whether hidden states are halved after the given number of blocks.
func (m *rwkvLayers) halves(blocks int) bool { return m.every > 0 && blocks > 0 && blocks%m.every == 0 }

func (m *rwkvLayers) block(b *Builder, i int) {
	spec := BlockSpec{AttentionNorm: "ln1", Attention: "attention", MLPNorm: "ln2", MLP: "feed_forward"}
	if m.every > 0 {
		spec.ResidualScale = float32(math.Pow(2, -float64(i/m.every)))
	}
	if i == 0 {
		spec.Entry = &EntrySpec{Norm: "pre_ln"}
		b.LayerNorm("pre_ln", m.hidden, m.eps, true)
	} else if m.halves(i) {
		spec.Entry = &EntrySpec{Scale: 0.5}
	}
	b.Runs(KindBlock, &spec)
	b.LayerNorm("ln1", m.hidden, m.eps, true)
	b.LayerNorm("ln2", m.hidden, m.eps, true)
	a := b.Child("attention", "RwkvSelfAttention").Runs(KindTimeMix, &TimeMixSpec{
		State: 2 * i, Hidden: m.hidden, Width: m.width, K: "key", V: "value", R: "receptance", Out: "output",
		MixK: "time_mix_key", MixV: "time_mix_value", MixR: "time_mix_receptance", Decay: "time_decay", First: "time_first",
	})
	for _, name := range []string{"time_decay", "time_first"} {
		a.Param(name, m.width)
	}
	for _, name := range []string{"time_mix_key", "time_mix_value", "time_mix_receptance"} {
		a.Param(name, 1, 1, m.hidden)
	}
	a.Child("time_shift", "ZeroPad2d")
	for _, name := range []string{"key", "value", "receptance"} {
		a.Linear(name, m.hidden, m.width, false)
	}
	a.Linear("output", m.width, m.hidden, false)
	c := b.Child("feed_forward", "RwkvFeedForward").Runs(KindChannelMix, &ChannelMixSpec{
		State: 2*i + 1, Hidden: m.hidden, Inner: m.inner, K: "key", V: "value", R: "receptance", MixK: "time_mix_key", MixR: "time_mix_receptance",
	})
	c.Param("time_mix_key", 1, 1, m.hidden)
	c.Param("time_mix_receptance", 1, 1, m.hidden)
	c.Child("time_shift", "ZeroPad2d")
	c.Linear("key", m.hidden, m.inner, false)
	c.Linear("receptance", m.hidden, m.hidden, false)
	c.Linear("value", m.inner, m.hidden, false)
}
