package meta

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
)

// dots3Note is the text model of Dots3NoteForConditionalGeneration, and Dots3NoteForCausalLM:
// latent attention with scaled compressions, a norm of the keys' rotary part and a gate for each
// head. Layers with a window have sizes of their own, and the others attend to the positions that
// an indexer selects.
func dots3Note(f *fields, b *Builder) {
	n := readDots3(f)
	d := n.full
	if f.err() != nil {
		return
	}
	path := b.tree.textPath()
	w := wiring{block: preNorm(), rotary: n.rotary}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		part := d
		if n.sliding[i] {
			part = n.windowed
		}
		a, mla := part.latentAttention(b, i)
		s := a.node.Spec.(*AttentionSpec)
		mla.KRopeNorm, s.Gate, s.GateByHead = "k_rope_only_layernorm", "g_proj", true
		if !b.tree.conventions().ScaledLatent {
			mla.QueryScale, mla.KVScale = part.latentScale(part.qRank), part.latentScale(part.kvRank)
		}
		part.latentNorm(a, "k_rope_only_layernorm", part.headDim)
		a.Linear("g_proj", d.hidden, part.heads, false)
		if n.sliding[i] {
			s.Window = n.window
		} else if n.indexer != nil {
			mla.Chosen = n.indexer.Count
			d.addIndexer(a, mla, n.indexer)
		}
		if n.mixture[i] {
			d.mixture(b)
		} else {
			d.gatedMLP(b, "mlp", d.inner, false)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	b.Ignore(fmt.Sprintf("%s.layers.%d.**", path, d.layers), path+".mtp.**")
}

// dots3 holds the config's fields for both types of layers.
type dots3 struct {
	full, windowed   *deepseek
	sliding, mixture []bool
	window           int
	indexer          *IndexerSpec // nil: full attention
	kind             string       // of layers without a window
}

func readDots3(f *fields) *dots3 {
	f = f.publishedDots3()
	alone := f.without("rope_parameters", "rope_theta", "rope_scaling", "rope_interleave")
	read := func(f *fields, heads int, latent latentDefaults) *deepseek {
		d := readDeepseek(f, "Dots3NoteText", decoderDefaults{
			vocab: 152064, hidden: 5120, inner: 13824, layers: 46, heads: heads, context: 524288, eps: 1e-5,
		}, latent)
		if d.normClass, d.latentEps = "Dots3NoteRMSNorm", d.normSpec.Eps; d.qRank == 0 {
			f.fail("q_lora_rank", "got null, want a rank")
		}
		return d
	}
	n := &dots3{full: read(alone, 128, latentDefaults{qRank: 1024, kvRank: 512, nope: 128, value: 128})}
	d := n.full
	n.windowed = read(f.windowedDots3(alone), 64, latentDefaults{qRank: 1024, kvRank: 1024, nope: 192, value: 128})
	d.experts, d.correction, d.wideRouter = "Dots3NoteExperts", Float32, true
	d.readMixture(f, mixtureDefaults{inner: 1536, experts: 256, topK: 8, scale: 1, groups: 1, topGroups: 1, leastShared: 1})
	d.shared = d.shared / d.moeInner * f.renamed("shared_experts_intermediate_size", "moe_shared_expert_intermediate_size").size("shared_experts_intermediate_size", 1536)
	windows := f.bool("use_sliding_window", true)
	n.sliding = d.sliding(f.renamedTypes("indexed_attention", "full_attention"), func(i int) bool { return windows && i >= 2 && i%4 != 1 })
	n.window = f.size("sliding_window", 0)
	if !f.has("sliding_window") {
		n.window = f.size("sliding_window_size", 512)
	}
	kind := "full_attention"
	if f.bool("use_dsa", true) {
		kind = "indexed_attention"
		n.indexer = d.readIndexer(f, IndexerSpec{Heads: 64, Interleaved: true})
	}
	n.mixture = d.dots3Mixtures(f)
	n.ropes(f, kind)
	return n
}

// renamedTypes returns f with a type in layer_types renamed.
func (f *fields) renamedTypes(old, name string) *fields {
	types := f.texts("layer_types")
	if types == nil {
		return f
	}
	list := make([]any, len(types))
	for i, kind := range types {
		if list[i] = kind; kind == old {
			list[i] = name
		}
	}
	values := maps.Clone(f.values)
	values["layer_types"] = list
	return &fields{at: f.at, values: values, errs: f.errs}
}

// windowedDots3 returns the fields of layers with a window, whose names begin with swa_. all has
// the fields of the other layers.
func (f *fields) windowedDots3(all *fields) *fields {
	out := all.without("num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim")
	for _, name := range []string{"num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim"} {
		if v, there := f.values["swa_"+name]; there {
			out.values[name] = v
		}
	}
	head, nope := f.size("swa_head_dim", 256), f.size("swa_qk_nope_head_dim", 192)
	if rope := f.size("swa_qk_rope_head_dim", max(head-nope, 1)); head != nope+rope {
		f.fail("swa_head_dim", "%d, want %d, the sum of swa_qk_nope_head_dim and swa_qk_rope_head_dim", head, nope+rope)
	} else {
		out.values["qk_rope_head_dim"] = json.Number(strconv.Itoa(rope))
	}
	return out
}

// dots3Mixtures returns which layers have an MoE layer.
func (d *deepseek) dots3Mixtures(f *fields) []bool {
	if f.texts("mlp_layer_types") != nil {
		return d.sparseByType(f)
	}
	const name = "moe_layer_freq"
	dense := f.count("first_k_dense_replace", 1, 0, maxLayers)
	mixture, every := make([]bool, d.layers), 1
	flags, listed := f.values[name].([]any)
	if !listed {
		every = f.size(name, 1)
	} else if len(flags) != d.layers {
		f.fail(name, "%d flags for %d layers", len(flags), d.layers)
		return mixture
	}
	var values []int
	if listed {
		values = f.tokens(name)
	}
	for i := range mixture {
		mixture[i] = i >= dense && i%every == 0 && (!listed || i < len(values) && values[i] != 0)
	}
	return mixture
}

// ropes reads the ropes of layers of the given kind and of those with a window. They rotate
// adjacent pairs. The config states them by type of layer, or once for both.
func (n *dots3) ropes(f *fields, kind string) {
	n.kind = kind
	f = f.without("partial_rotary_factor")
	params := f.object("rope_parameters")
	if params == nil {
		params = f.object("rope_scaling")
	}
	byType := params != nil && (params.has(kind) || params.has("sliding_attention"))
	for i, part := range []*deepseek{n.full, n.windowed} {
		def := ropeDefaults{theta: 8e7, headDim: part.headDim, context: part.context, interleaved: true}
		name, own := kind, params
		if i == 1 {
			name = "sliding_attention"
		}
		if byType && slices.Contains(n.sliding, i == 1) {
			if own = params.object(name); own == nil {
				params.fail(name, "missing, but there are layers of this type")
				return
			}
		}
		if params == nil && i == 1 {
			def.theta, def.thetaField = 5e4, "swa_rope_theta"
		}
		if own != nil {
			own = own.without("partial_rotary_factor")
		}
		part.rope = f.ropeFrom(own, true, def)
	}
}

// rotary adds the module that holds the frequencies of both types of layers.
func (n *dots3) rotary(b *Builder) {
	c := b.Child("rotary_emb", "Dots3NoteTextRotaryEmbedding")
	for i, part := range []*deepseek{n.full, n.windowed} {
		name := [...]string{n.kind, "sliding_attention"}[i]
		for _, s := range n.sliding {
			if s == (i == 1) {
				c.Buffer(name+"_inv_freq", Float32, false, part.rope.Dim/2)
				c.Buffer(name+"_original_inv_freq", Float32, false, part.rope.Dim/2)
				break
			}
		}
	}
}

// latentScale returns the factor of a compression of rank channels after its norm.
func (d *deepseek) latentScale(rank int) float32 {
	return float32(math.Sqrt(float64(d.hidden) / float64(rank)))
}
