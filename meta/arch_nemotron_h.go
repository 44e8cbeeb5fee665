package meta

import (
	"math"
	"strconv"
	"strings"
)

// nemotronH is NemotronHForCausalLM: each layer is a norm and one of a Mamba2 mixer, attention
// without positions, an MLP or an MoE layer. sliding_window has no effect.
func nemotronH(f *fields, b *Builder) {
	d := readDecoder(f, "NemotronH", decoderDefaults{
		vocab: 131072, hidden: 4096, inner: 21504, layers: 4, heads: 32, kvHeads: 8, headDim: 128,
		context: 4096, eps: 1e-5, epsField: "layer_norm_epsilon", act: "relu2", actField: "mlp_hidden_act", rope: ropeDefaults{theta: 10000},
	})
	n := &nemotron{decoder: d, kinds: nemotronLayers(f), bias: f.bool("mlp_bias", false), mixer: nemotronMixer(f, d)}
	if strings.Contains(n.kinds, "E") {
		n.readExperts(f)
	}
	if f.err() != nil {
		return
	}
	path := b.tree.textPath()
	b.Runs(KindCausalLM, &CausalLMSpec{Embed: path + ".embeddings", Layers: path + ".layers", Norm: path + ".norm_f", Head: b.tree.headPath(),
		Vocab: d.vocab, Hidden: d.hidden, Context: d.context})
	model, outer := b.textModel("NemotronHModel")
	model.Published(Join(outer.path, "backbone"))
	embed := model.Embedding("embeddings", "Embedding", d.vocab, d.hidden)
	layers := model.Child("layers", "ModuleList")
	counts := map[byte]int{}
	for i := range len(n.kinds) {
		n.layer(layers.Child(strconv.Itoa(i), "NemotronHBlock"), n.kinds[i], counts[n.kinds[i]])
		counts[n.kinds[i]]++
	}
	d.norm(model, "norm_f", d.hidden)
	outer.head(embed, d.hidden, d.vocab, false, b.tree.headPath()+".weight") // tie_word_embeddings is without effect
	b.Ignore(Join(outer.path, "mtp.**"))
}

// nemotron holds the configuration of a nemotron_h model. A kind is a letter of
// hybrid_override_pattern.
type nemotron struct {
	*decoder
	kinds                 string
	bias                  bool // of MLPs
	mixer                 *mixer
	experts               *MoESpec // nil if no layer has any
	inner, shared, latent int      // widths of an expert, of the shared one, and of the input of the experts
}

// nemotronKinds are the names of the kinds in layers_block_type.
var nemotronKinds = map[string]byte{"mamba": 'M', "linear_attention": 'M', "attention": '*', "full_attention": '*', "mlp": '-', "moe": 'E'}

// nemotronLayers returns the kinds of the layers.
func nemotronLayers(f *fields) string {
	name := "layers_block_type"
	if !f.has(name) {
		name = "layer_types"
	}
	if !f.has(name) {
		name = "hybrid_override_pattern"
		pattern := f.text(name, "ME*-")
		if i := strings.IndexFunc(pattern, func(r rune) bool { return !strings.ContainsRune("M*-E", r) }); i >= 0 || pattern == "" || len(pattern) > maxLayers {
			f.fail(name, "%.40q is not a pattern of M, *, - and E for at most %d layers", pattern, maxLayers)
		}
		return pattern
	}
	kinds := []byte{}
	for _, text := range f.texts(name) {
		kind, ok := nemotronKinds[text]
		if !ok {
			f.fail(name, "%.40q is not supported", text)
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 || len(kinds) > maxLayers {
		f.fail(name, "%d layers", len(kinds))
	}
	return string(kinds)
}

// nemotronMixer reads the fields of the mixers. Older files use other names for some.
func nemotronMixer(f *fields, d *decoder) *mixer {
	either := func(old, name string) string {
		if f.has(old) {
			return old
		}
		return name
	}
	m := &mixer{class: d.class, act: f.activation("mamba_hidden_act", "silu"), bias: f.bool("use_bias", false), hidden: d.hidden,
		eps: float64(d.normSpec.Eps), normClass: "NemotronHRMSNormGated"}
	m.read(f, mixerFields{heads: "mamba_num_heads", headDim: "mamba_head_dim", groups: either("mamba_n_groups", "n_groups"), state: "ssm_state_size",
		kernel: either("mamba_d_conv", "conv_kernel"), convBias: either("mamba_conv_bias", "use_conv_bias")},
		Mamba2Spec{Heads: 128, HeadDim: 64, Groups: 8, StateDim: 128, Kernel: 4})
	name := either("mamba_dt_min", "time_step_min") // the reference's limit; it does not read time_step_limit
	m.spec.StepMin, m.spec.StepMax = float32(f.float(name, 0.001)), float32(math.Inf(1))
	return m
}

func (n *nemotron) readExperts(f *fields) {
	s := f.experts("n_routed_experts", 8, "num_experts_per_tok", 2)
	s.Router, s.Experts, s.Shared, s.Score, s.Act = "gate", "experts", "shared_experts", ScoreSigmoid, n.act.act
	s.Plain, s.GateUp, s.Correction = true, "up_proj", "e_score_correction_bias"
	s.Renormalise, s.Scale = f.bool("norm_topk_prob", true), float32(f.positive("routed_scaling_factor", 1))
	s.Groups, s.TopGroups = f.count("n_group", 1, 1, maxExperts), f.count("topk_group", 1, 1, maxExperts)
	s.GroupsByTwo = true
	if s.Count%s.Groups != 0 || s.TopGroups > s.Groups {
		f.fail("n_group", "%d of %d groups of %d experts", s.TopGroups, s.Groups, s.Count)
	}
	n.inner, n.shared = f.size("moe_intermediate_size", 7688), f.size("moe_shared_expert_intermediate_size", 7688)
	if n.latent = n.hidden; f.has("moe_latent_size") {
		n.latent = f.size("moe_latent_size", 0)
		s.LatentDown, s.LatentUp = "fc1_latent_proj", "fc2_latent_proj"
	}
	n.experts = s
}

// layer adds a layer, the index-th of its kind.
func (n *nemotron) layer(b *Builder, kind byte, index int) {
	block := &BlockSpec{AttentionNorm: "norm", Attention: "mixer"}
	if kind == '-' || kind == 'E' {
		block = &BlockSpec{MLPNorm: "norm", MLP: "mixer"}
	}
	b.Runs(KindBlock, block)
	n.norm(b, "norm", n.hidden)
	switch kind {
	case 'M':
		n.mixer.add(b, "mixer", "NemotronHMamba2Mixer", index)
	case '*':
		s := n.attentionSpec(AttentionSpec{Layer: index, Rope: noRope})
		s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "o_proj"
		a := b.Child("mixer", "NemotronHAttention").Runs(KindAttention, s)
		a.Linear("q_proj", n.hidden, n.heads*n.headDim, false)
		a.Linear("k_proj", n.hidden, n.kvHeads*n.headDim, false)
		a.Linear("v_proj", n.hidden, n.kvHeads*n.headDim, false)
		a.Linear("o_proj", n.heads*n.headDim, n.hidden, false)
	case '-':
		n.mlp(b, "mixer", n.decoder.inner)
	case 'E':
		n.mixture(b)
	}
}

func (n *nemotron) mlp(b *Builder, name string, inner int) {
	m := b.Child(name, "NemotronHMLP").Runs(KindMLP, &MLPSpec{Up: "up_proj", Down: "down_proj", Act: n.act.act})
	m.Linear("up_proj", n.hidden, inner, n.bias)
	m.Linear("down_proj", inner, n.hidden, n.bias)
	m.Activation("act_fn", n.act.class, n.act.act)
}

func (n *nemotron) mixture(b *Builder) {
	s := n.experts
	m := b.Child("mixer", "NemotronHMoE").Runs(KindMoE, s)
	e := m.Child("experts", "NemotronHExperts")
	for _, p := range [...]struct {
		name    string
		out, in int
	}{{s.GateUp, n.inner, n.latent}, {s.Down, n.latent, n.inner}} {
		var ways [][]TensorSource
		for _, path := range []string{e.published, e.path} {
			ways = append(ways, []TensorSource{{Tensor: path + ".{}." + p.name + ".weight", Stack: s.Count}}, []TensorSource{{Tensor: Join(path, p.name)}})
		}
		e.ParamFrom(p.name, []int{s.Count, p.out, p.in}, ways[0], ways[1:]...)
	}
	e.Activation("act_fn", n.act.class, n.act.act)
	g := m.Child("gate", "NemotronHTopkRouter")
	g.Param("weight", s.Count, n.hidden)
	dtype := b.tree.dtype
	if b.tree.wrapper != nil { // where transformers keeps them in float32
		g.wide("weight")
		dtype = Float32
	}
	g.Buffer("e_score_correction_bias", dtype, true, s.Count)
	n.mlp(m, "shared_experts", n.shared)
	if s.LatentDown != "" {
		m.Linear(s.LatentDown, n.hidden, n.latent, n.bias)
		m.Linear(s.LatentUp, n.latent, n.hidden, n.bias)
	} else {
		m.Child("fc1_latent_proj", "Identity")
		m.Child("fc2_latent_proj", "Identity")
	}
}
