package meta

import (
	"slices"
	"strconv"
)

// zamba2 is Zamba2ForCausalLM: each layer is a norm and a Mamba2 mixer. In hybrid layers, a
// transformer block runs on the hidden states followed by the embeddings, and its result is added
// to the mixer's input. Hybrid layers share a few transformer blocks in turn, each with its own
// low-rank adapters.
func zamba2(f *fields, b *Builder) {
	f, roped, context := f.renamed("attention_head_dim", "head_dim").without("partial_rotary_factor"), f.bool("use_mem_rope", false), 4096
	if !roped {
		f = f.without("rope_scaling", "rope_parameters", "rope_theta")
	}
	if f.bool("use_long_context", false) {
		f, context = f.without("max_position_embeddings"), 16384
	}
	hidden, heads := f.size("hidden_size", 2560), f.count("num_attention_heads", 32, 1, maxHeads)
	d := readDecoder(f, "Zamba2", decoderDefaults{
		vocab: 32000, hidden: 2560, inner: 4 * hidden, layers: 54, heads: 32, headDim: 2 * hidden / heads, headDimField: "attention_head_dim",
		context: context, eps: 1e-5, act: "gelu", tied: true, rope: ropeDefaults{theta: 10000},
	})
	z := &zamba{decoder: d, shared: "shared_transformer", bias: f.bool("add_bias_linear", false), mixer: zambaMixer(f, d),
		blocks: f.count("num_mem_blocks", 1, 1, maxLayers), rank: f.size("adapter_rank", 128), adapters: f.bool("use_shared_attention_adapter", false)}
	if z.adapters && (d.kvHeads != d.heads || d.heads*d.headDim != 2*d.hidden) {
		f.fail("use_shared_attention_adapter", "true with %d heads of %d, and %d of keys, is not supported: adapters have %d channels", d.heads, d.headDim, d.kvHeads, 2*d.hidden)
	}
	z.block = z.transformer
	f.attentionOfTwice(hidden)
	z.uses = f.hybridLayers(d.layers, zamba2Layers(d.layers))
	w := wiring{}
	if !roped {
		w.rotary, z.attention.Rope = func(*Builder) {}, noRope
	}
	z.build(f, b, w)
}

// zamba2Layers returns the hybrid layers of a config that does not name them. It returns nil for
// another size than the published one.
func zamba2Layers(layers int) []int {
	if layers != 54 {
		return nil
	}
	return []int{6, 12, 18, 24, 30, 36, 42, 47, 51}
}

// zamba holds properties of Zamba2's layers that decoder does not hold. Zamba uses some of these
// fields.
type zamba struct {
	*decoder
	mixer interface {
		add(b *Builder, name, class string, state int) *Builder
	}
	shared     string // name of the transformer block of a hybrid layer, which comes first or last in it
	blockFirst bool
	block      func(b *Builder, use int) // fills it
	bias       bool                      // of MLPs
	uses       []int                     // the hybrid layers
	blocks     int                       // transformer blocks
	first      []*Module                 // of the layers that use each block first, its module there
	rank       int                       // of adapters
	adapters   bool                      // of queries, keys and values
	attention  AttentionSpec
}

// build builds the model. w describes the parts other than its layers.
func (z *zamba) build(f *fields, b *Builder, w wiring) {
	w.block = BlockSpec{AttentionNorm: "input_layernorm", Attention: "mamba", KeepsEmbeddings: true}
	w.spec, w.finalNorm = CausalLMSpec{KeepsEmbeddings: true}, "final_layernorm"
	w.layerClass = func(i int) string {
		if slices.Contains(z.uses, i) {
			return z.class + "HybridLayer"
		}
		return z.class + "MambaDecoderLayer"
	}
	z.causalLM(f, b, w, func(b *Builder, i int) {
		if use := slices.Index(z.uses, i); use >= 0 {
			z.hybrid(b, i, use)
		} else {
			z.recurrent(b, i)
		}
	})
}

// zambaMixer reads the fields of the mixers.
func zambaMixer(f *fields, d *decoder) *mixer {
	inner, heads := f.count("mamba_expand", 2, 1, 1<<10)*d.hidden, f.count("n_mamba_heads", 8, 1, maxHeads)
	m := &mixer{class: d.class, act: activation{ActSiLU, "SiLU"}, bias: f.bool("add_bias_linear", false), hidden: d.hidden, eps: 1e-5, normClass: "Zamba2RMSNormGated"}
	m.read(f, mixerFields{heads: "n_mamba_heads", headDim: "mamba_headdim", groups: "mamba_ngroups", state: "mamba_d_state", kernel: "mamba_d_conv"},
		Mamba2Spec{Heads: 8, HeadDim: max(inner/heads, 1), Groups: 1, StateDim: 64, Kernel: 4})
	m.convBias, m.spec.StepMin = true, float32(f.float("time_step_min", 0.001))
	m.wide(f, "mamba_expand", "n_mamba_heads")
	return m
}

// attentionOfTwice checks that the input of the transformer blocks is the hidden states and the
// embeddings.
func (f *fields) attentionOfTwice(hidden int) {
	if n := f.size("attention_hidden_size", 2*hidden); n != 2*hidden {
		f.fail("attention_hidden_size", "got %d, want %d, twice hidden_size", n, 2*hidden)
	}
}

// hybridLayers reads which layers use a transformer block. The default is usual.
func (f *fields) hybridLayers(layers int, usual []int) (list []int) {
	name := "layers_block_type"
	if !f.has(name) && f.has("layer_types") {
		name = "layer_types"
	}
	switch types := f.texts(name); {
	case types == nil && usual == nil:
		f.fail(name, "missing, and the config class has no defaults for %d layers", layers)
	case types == nil:
		list = usual
	case len(types) != layers:
		f.fail(name, "%d types for %d layers", len(types), layers)
	default:
		f.checkTypes(name, &types, layers, "mamba", "linear_attention", "hybrid")
		for i, kind := range types {
			if kind == "hybrid" {
				list = append(list, i)
			}
		}
	}
	if ids := f.tokens("hybrid_layer_ids"); ids != nil && !slices.Equal(ids, list) {
		f.fail("hybrid_layer_ids", "got %v, want %v as in %s", ids, list, name)
	}
	return list
}

// recurrent adds a norm and a mixer with the given state.
func (z *zamba) recurrent(b *Builder, state int) {
	z.mixer.add(b, "mamba", z.class+"MambaMixer", state)
	z.norms(b, "input_layernorm")
}

// hybrid adds a layer whose mixer has the given state, and which is the use-th to use a
// transformer block.
func (z *zamba) hybrid(b *Builder, state, use int) {
	shared := &SharedBlockSpec{Norm: z.shared + ".input_layernorm", Attention: z.shared + ".self_attn", MLPNorm: z.shared + ".pre_ff_layernorm",
		MLP: z.shared + ".feed_forward", Out: "linear"}
	b.Runs(KindBlock, &BlockSpec{AttentionNorm: "mamba_decoder.input_layernorm", Attention: "mamba_decoder.mamba", KeepsEmbeddings: true, Shared: shared})
	if z.blockFirst {
		z.use(b.Child(z.shared, z.class+"AttentionDecoderLayer"), use)
	}
	b.Linear("linear", z.hidden, z.hidden, false)
	z.recurrent(b.Child("mamba_decoder", z.class+"MambaDecoderLayer"), state)
	if !z.blockFirst {
		z.use(b.Child(z.shared, z.class+"AttentionDecoderLayer"), use)
	}
}

// use adds the parts of a transformer block. Its parameters may be those of an earlier one.
func (z *zamba) use(b *Builder, use int) {
	if use < z.blocks {
		z.first = append(z.first, b.node)
	} else if first := z.first[use%z.blocks]; z.tied || b.tree.header != nil {
		b.twin = first
	}
	z.block(b, use)
	z.norm(b, "input_layernorm", 2*z.hidden)
	z.norm(b, "pre_ff_layernorm", z.hidden)
}

// attend adds the attention of a transformer block.
func (z *zamba) attend(b *Builder, use int) (*Builder, *AttentionSpec) {
	wide, width := 2*z.hidden, z.heads*z.headDim
	s := z.attentionSpec(z.attention)
	s.Layer, s.Q, s.K, s.V, s.Out, s.Scale = use, "q_proj", "k_proj", "v_proj", "o_proj", rootScale(float64(z.headDim)/2)
	a := b.Child("self_attn", z.class+"Attention").Runs(KindAttention, s)
	a.Linear("q_proj", wide, width, false)
	a.Linear("k_proj", wide, z.kvHeads*z.headDim, false)
	a.Linear("v_proj", wide, z.kvHeads*z.headDim, false)
	a.Linear("o_proj", width, z.hidden, false)
	return a, s
}

// transformer adds the parts of a transformer block, with the adapters of all of its uses. Only
// one of them is active.
func (z *zamba) transformer(b *Builder, use int) {
	wide := 2 * z.hidden
	if a, s := z.attend(b, use); z.adapters {
		s.QAdapter, s.KAdapter, s.VAdapter = z.adapter(a, "linear_q_adapter_list", wide, wide, use), z.adapter(a, "linear_k_adapter_list", wide, wide, use), z.adapter(a, "linear_v_adapter_list", wide, wide, use)
	}
	mlp := &MLPSpec{Fused: "gate_up_proj", Down: "down_proj", Act: z.act.act}
	m := b.Child("feed_forward", z.mlpClass).Runs(KindMLP, mlp)
	m.Linear("gate_up_proj", z.hidden, 2*z.inner, z.bias)
	m.Linear("down_proj", z.inner, z.hidden, z.bias)
	m.Activation("act_fn", z.act.class, z.act.act)
	mlp.FusedAdapter = z.adapter(m, "gate_up_proj_adapter_list", z.hidden, 2*z.inner, use)
}

// adapter adds a list of adapters, and returns the path of the active one, which belongs to use.
func (z *zamba) adapter(b *Builder, name string, in, out, use int) string {
	list := b.Child(name, "ModuleList")
	for i := range z.uses {
		if i%z.blocks != use%z.blocks {
			list.Child(strconv.Itoa(i), "Identity")
			continue
		}
		pair := list.Child(strconv.Itoa(i), "Sequential").Runs(KindSequential, nil)
		maps := []*Builder{pair.Linear("0", in, z.rank, false), pair.Linear("1", z.rank, out, false)}
		for _, m := range maps {
			if i != use {
				m.node.Kind = KindNone
			}
		}
	}
	return Join(name, strconv.Itoa(use))
}
