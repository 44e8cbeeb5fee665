package meta

import "strconv"

// mamba1 is MambaForCausalLM: each layer is a norm and a Mamba mixer.
func mamba1(f *fields, b *Builder) { f.mambas(b, &selective{class: "Mamba"}) }

// falconMamba is FalconMambaForCausalLM: mamba with norms without weights on the steps, B and C.
func falconMamba(f *fields, b *Builder) {
	f.mambas(b, &selective{class: "FalconMamba", bareNorm: "FalconMambaWeightlessRMSNorm", normEps: float32(f.positive("mixer_rms_eps", 1e-6))})
}

// mambas builds a model whose layers are only mixers.
func (f *fields) mambas(b *Builder, m *selective) {
	hidden, vocab := f.size("hidden_size", 768), f.size("vocab_size", 50280)
	layers, eps := f.count("num_hidden_layers", 32, 1, maxLayers), f.positive("layer_norm_epsilon", 1e-5)
	m.hidden, m.act = hidden, f.activation("hidden_act", "silu")
	m.read(f, selectiveFields{expand: "expand", state: "state_size", kernel: "conv_kernel", rank: "time_step_rank", bias: "use_bias", convBias: "use_conv_bias"})
	if f.err() != nil {
		return
	}
	b.Runs(KindCausalLM, &CausalLMSpec{Embed: "backbone.embeddings", Layers: "backbone.layers", Norm: "backbone.norm_f", Head: "lm_head",
		Vocab: vocab, Hidden: hidden, Context: f.size("max_position_embeddings", endlessContext)})
	model := b.Child("backbone", m.class+"Model")
	embed := model.Child("embeddings", "Embedding").Runs(KindEmbedding, &EmbeddingSpec{Rows: vocab, Dim: hidden})
	embed.ParamFrom("weight", []int{vocab, hidden}, []TensorSource{{Tensor: "backbone.embeddings.weight"}}, []TensorSource{{Tensor: "backbone.embedding.weight"}})
	list := model.Child("layers", "ModuleList")
	for i := range layers {
		layer := list.Child(strconv.Itoa(i), m.class+"Block").Runs(KindBlock, &BlockSpec{AttentionNorm: "norm", Attention: "mixer"})
		layer.rmsNorm("norm", m.class+"RMSNorm", hidden, eps)
		m.add(layer, "mixer", m.class+"Mixer", i)
	}
	model.rmsNorm("norm_f", m.class+"RMSNorm", hidden, eps)
	b.head(embed, hidden, vocab, f.bool("tie_word_embeddings", true), "lm_head.weight")
}

// selective holds the configuration of a model's Mamba mixers.
type selective struct {
	class          string
	spec           MambaSpec
	act            activation
	hidden         int
	bias, convBias bool
	// norm is the class of the norms of steps, B and C that have weights, and bareNorm that of
	// norms without weights. "" means none.
	norm, bareNorm string
	normEps        float32
	byHead         bool // maps and parameters are those of heads, and channels alternate with their gates
}

// selectiveFields holds the names of a mixer's fields in a config class.
type selectiveFields struct{ expand, state, kernel, rank, bias, convBias string }

func (m *selective) read(f *fields, names selectiveFields) {
	m.spec = MambaSpec{
		Width: f.count(names.expand, 2, 1, 1<<10) * m.hidden, StateDim: f.count(names.state, 16, 1, maxStateDim),
		Kernel: f.count(names.kernel, 4, 2, maxKernel), StepRank: (m.hidden + 15) / 16,
	}
	if v, text := f.values[names.rank].(string); !text || v != "auto" {
		m.spec.StepRank = f.size(names.rank, m.spec.StepRank)
	}
	m.bias, m.convBias = f.bool(names.bias, false), f.bool(names.convBias, true)
}

// add adds the mixer whose state has the given index.
func (m *selective) add(b *Builder, name, class string, state int) *Builder {
	s := m.spec
	s.State, s.Act, s.In, s.Select, s.Steps, s.Out = state, m.act.act, "in_proj", "x_proj", "dt_proj", "out_proj"
	s.Conv, s.ALog, s.D = "conv1d", "A_log", "D"
	a := b.Child(name, class).Runs(KindMamba, &s)
	if m.byHead {
		m.heads(a, &s)
	} else {
		a.Param("A_log", s.Width, s.StateDim)
		a.Param("D", s.Width)
	}
	c := a.Child("conv1d", "Conv1d")
	c.Param("weight", s.Width, 1, s.Kernel)
	if m.convBias {
		c.Param("bias", s.Width)
	}
	a.Activation("act", m.act.class, m.act.act)
	a.Linear("in_proj", m.hidden, 2*s.Width, m.bias)
	if !m.byHead {
		a.Linear("x_proj", s.Width, s.StepRank+2*s.StateDim, false)
		a.Linear("dt_proj", s.StepRank, s.Width, true)
	}
	a.Linear("out_proj", s.Width, m.hidden, m.bias)
	m.norms(a, &s)
	return a
}

// heads adds the parameters of a mixer's heads.
func (m *selective) heads(b *Builder, s *MambaSpec) {
	s.Select, s.Steps, s.StepBias, s.Order = "x_proj_weight", "dt_proj_weight", "dt_proj_bias", GateInterleaved
	width := s.Width / s.Heads
	b.Param(s.Select, s.Heads, s.StepRank+2*s.StateDim, width)
	b.Param(s.Steps, s.Heads, width, s.StepRank)
	b.Param(s.StepBias, s.Heads, width)
	b.Param(s.ALog, s.Heads, width, s.StateDim)
	b.wide(s.ALog)
	b.Param(s.D, s.Heads, width)
}

// norms adds the norms of the steps, B and C.
func (m *selective) norms(b *Builder, s *MambaSpec) {
	class := or(m.norm, m.bareNorm)
	if class == "" {
		return
	}
	s.StepNorm, s.BNorm, s.CNorm = "dt_layernorm", "b_layernorm", "c_layernorm"
	for _, n := range []struct {
		name       string
		dim, dummy int // dummy: the width of the weight that transformers keeps unused
	}{{s.StepNorm, s.StepRank, s.Width}, {s.BNorm, s.StateDim, s.StateDim}, {s.CNorm, s.StateDim, s.StateDim}} {
		c := b.Child(n.name, class).Runs(KindNorm, &NormSpec{Dim: n.dim, Eps: m.normEps})
		if m.norm != "" {
			c.Param("weight", n.dim)
		} else {
			c.Buffer("weight", b.tree.dtype, false, n.dummy)
		}
	}
}
