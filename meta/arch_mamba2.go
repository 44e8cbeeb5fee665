package meta

import (
	"math"
	"strconv"
)

// mamba2 is Mamba2ForCausalLM: each layer is a norm and a Mamba2 mixer.
func mamba2(f *fields, b *Builder) {
	hidden, vocab := f.size("hidden_size", 4096), f.size("vocab_size", 32768)
	layers, eps := f.count("num_hidden_layers", 64, 1, maxLayers), f.positive("layer_norm_epsilon", 1e-5)
	m := &mixer{class: "Mamba2", act: f.activation("hidden_act", "silu"), bias: f.bool("use_bias", false), hidden: hidden, eps: eps,
		normClass: "MambaRMSNormGated"}
	m.read(f, mixerFields{heads: "num_heads", headDim: "head_dim", groups: "n_groups", state: "state_size", kernel: "conv_kernel", convBias: "use_conv_bias"},
		Mamba2Spec{Heads: 128, HeadDim: 64, Groups: 8, StateDim: 128, Kernel: 4})
	m.limits(f, "time_step_limit")
	m.wide(f, "expand", "num_heads")
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{Embed: "backbone.embeddings", Layers: "backbone.layers", Norm: "backbone.norm_f", Head: "lm_head",
		Vocab: vocab, Hidden: hidden, Context: f.size("max_position_embeddings", endlessContext)})
	model := b.Child("backbone", "Mamba2Model")
	embed := model.Child("embeddings", "Embedding").Runs(KindEmbedding, &EmbeddingSpec{Rows: vocab, Dim: hidden})
	embed.ParamFrom("weight", []int{vocab, hidden}, []TensorSource{{Tensor: "backbone.embeddings.weight"}}, []TensorSource{{Tensor: "backbone.embedding.weight"}})
	list := model.Child("layers", "ModuleList")
	for i := range layers {
		layer := list.Child(strconv.Itoa(i), "Mamba2Block").Runs(KindBlock, &BlockSpec{AttentionNorm: "norm", Attention: "mixer"})
		layer.rmsNorm("norm", "Mamba2RMSNorm", hidden, eps)
		m.add(layer, "mixer", "Mamba2Mixer", i)
	}
	model.rmsNorm("norm_f", "Mamba2RMSNorm", hidden, eps)
	b.head(embed, hidden, vocab, f.bool("tie_word_embeddings", false), "lm_head.weight")
}

// endlessContext is the context, in tokens, of a model that has no limit itself.
const endlessContext = 1 << 20

// rmsNorm adds an RMS norm.
func (b *Builder) rmsNorm(name, class string, dim int, eps float64) {
	b.Child(name, class).Runs(KindNorm, &NormSpec{Dim: dim, Eps: float32(eps)}).Param("weight", dim)
}

// mixer holds the configuration of a model's Mamba2 mixers.
type mixer struct {
	class     string
	normClass string // "" for no norm
	spec      Mamba2Spec
	act       activation
	bias      bool // of the projections
	// separateBias is set if outBias, not bias, applies to the output projection.
	separateBias, outBias bool
	convBias              bool
	hidden                int
	eps                   float64
}

// mixerFields holds the names of a mixer's fields in a config class.
type mixerFields struct{ heads, headDim, groups, state, kernel, convBias string }

// maxStateDim bounds the size of a mixer's state for one channel.
const maxStateDim = 1 << 14

// read reads the sizes. def has the defaults.
func (m *mixer) read(f *fields, names mixerFields, def Mamba2Spec) {
	m.spec = Mamba2Spec{
		Heads: f.count(names.heads, def.Heads, 1, maxHeads), Groups: f.count(names.groups, def.Groups, 1, maxHeads),
		HeadDim: def.HeadDim, StateDim: f.count(names.state, def.StateDim, 1, maxStateDim),
		Kernel: f.count(names.kernel, def.Kernel, 2, maxKernel), StepMax: float32(math.Inf(1)),
	}
	if v, text := f.values[names.headDim].(string); !text || v != "auto" {
		m.spec.HeadDim = f.count(names.headDim, def.HeadDim, 1, maxHeads)
	}
	m.convBias = f.bool(names.convBias, true)
	if m.spec.Heads%m.spec.Groups != 0 {
		f.fail(names.groups, "%d does not divide the %d heads", m.spec.Groups, m.spec.Heads)
	}
}

// limits reads the limits of the steps.
func (m *mixer) limits(f *fields, name string) {
	list := f.list(name)
	if list == nil {
		return
	}
	if len(list) != 2 {
		f.fail(name, "%d numbers instead of 2", len(list))
		return
	}
	m.spec.StepMin, m.spec.StepMax = f.limit(name, list[0]), f.limit(name, list[1])
	if !(m.spec.StepMin <= m.spec.StepMax) {
		f.fail(name, "%g is above %g", m.spec.StepMin, m.spec.StepMax)
	}
}

// limit returns a number that may be infinite: as Python's json writes it, or as transformers 5 does.
func (f *fields) limit(name string, v any) float32 {
	if v == infinity {
		return float32(math.Inf(1))
	}
	if o, ok := v.(map[string]any); ok && len(o) == 1 && o["__float__"] == "Infinity" {
		return float32(math.Inf(1))
	}
	x, _ := f.number(name, v)
	return float32(x)
}

// wide checks that the total width of the heads is the model's width times the field expand.
func (m *mixer) wide(f *fields, expand, heads string) {
	if inner := f.count(expand, 2, 1, 1<<10) * m.hidden; inner != m.spec.Heads*m.spec.HeadDim {
		f.fail(heads, "%d heads of %d instead of %d channels", m.spec.Heads, m.spec.HeadDim, inner)
	}
}

// add adds the mixer whose state has the given index.
func (m *mixer) add(b *Builder, name, class string, state int) *Builder {
	s := m.spec
	s.State, s.Act, s.In, s.Conv, s.ALog, s.DTBias, s.D, s.Out = state, m.act.act, "in_proj", "conv1d", "A_log", "dt_bias", "D", "out_proj"
	inner := s.Heads * s.HeadDim
	channels := inner + 2*s.Groups*s.StateDim
	a := b.Child(name, class).Runs(KindMamba2, &s)
	a.Param("dt_bias", s.Heads)
	a.Param("A_log", s.Heads)
	a.Param("D", s.Heads)
	a.Activation("act", m.act.class, m.act.act)
	c := a.Child("conv1d", "Conv1d")
	c.Param("weight", channels, 1, s.Kernel)
	if m.convBias {
		c.Param("bias", channels)
	}
	a.Linear("in_proj", m.hidden, inner+channels+s.Heads, m.bias)
	if m.normClass != "" {
		s.Norm = "norm"
		a.Child("norm", m.normClass).Runs(KindNorm, &NormSpec{Dim: inner / s.Groups, Heads: s.Groups, Eps: float32(m.eps)}).Param("weight", inner)
	} else {
		a.Child("norm", "Identity")
	}
	outBias := m.bias
	if m.separateBias {
		outBias = m.outBias
	}
	a.Linear("out_proj", inner, m.hidden, outBias)
	return a
}
