package folder

import (
	"slices"
	"strconv"
	"strings"

	"github.com/heftai/heft/internal/gguf"
	"github.com/heftai/heft/meta"
)

// A Name is what a tensor of a GGUF file is called in the model's folder.
type Name struct {
	// Name is the tensor's name. With Stack, "{}" in it stands for the number of a slice along the
	// tensor's first dimension, and each slice is a tensor of its own.
	Name  string
	Stack bool
	// Layout is how the tensor's dimensions differ.
	Layout Layout
	// Parts, if not nil, are the tensors that rows of this one are, in order; Name is empty.
	Parts []Part
	// Scales, if not nil, is the tensor whose values this one multiplies, and the names are those of its scales.
	Scales *gguf.Tensor
}

// A Part is rows of a tensor that are a tensor of their own in the folder.
type Part struct {
	Name string
	Rows int
}

// A Layout says how the dimensions of a tensor in a file differ from those in the folder.
type Layout uint8

// The layouts.
const (
	Same  Layout = iota
	Flat         // one dimension in the folder
	Taps         // of a convolution: [channels, taps] of [channels, 1, taps], maybe with further dimensions of 1
	Heads        // a number for each head: [1, 1, heads, 1] in the folder
)

// Shape returns the shape in the folder of a tensor that has the given one in the file.
func (l Layout) Shape(shape []int) []int {
	switch l {
	case Flat:
		n := 1
		for _, d := range shape {
			n *= d
		}
		return []int{n}
	case Taps:
		if whole := slices.DeleteFunc(slices.Clone(shape[:max(len(shape)-1, 0)]), func(n int) bool { return n == 1 }); len(whole) == 1 {
			return []int{whole[0], 1, shape[len(shape)-1]}
		}
	case Heads:
		n := Flat.Shape(shape)
		return []int{1, 1, n[0], 1}
	}
	return slices.Clone(shape)
}

// layouts are those of tensors of blocks, by their names.
var layouts = map[string]Layout{
	"ssm_a": Flat, "ssm_d": Flat, "ssm_norm.weight": Flat, "ssm_conv1d.weight": Taps, "shortconv.conv.weight": Taps,
}

// names maps the names of tensors without their endings. Those of blocks are below "blk.N." on the
// left and the layers on the right. A name with its ending has precedence, and gives the whole name.
type names struct {
	layers string   // prefix of layer N: "model.layers."
	stacks []string // instead of layers: prefixes of stacks, whose layers follow one another
	whole  map[string]string
	block  map[string]string
	// other has names of the blocks that have the tensor mark.
	other map[string]string
	mark  string
	// layouts have precedence over those of all architectures.
	layouts map[string]Layout
}

// Tensor returns the name in the folder of a tensor of the file. ok is false for one that no weight is,
// such as the factors of rope.
func (f *Folder) Tensor(name string) (n Name, ok bool) {
	switch name {
	case "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight":
		return Name{}, false
	}
	base, ending := name, ""
	if i := strings.LastIndexByte(name, '.'); i > 0 {
		base, ending = name[:i], name[i:]
	}
	if n, is, ok := f.scale(name, base, ending); is {
		return n, ok
	}
	if parts := f.split(name, base, ending); parts != nil {
		return Name{Parts: parts}, true
	}
	if to, ok := f.own[name]; ok {
		return Name{Name: to}, true
	}
	table := &f.arch.names
	if to, ok := table.whole[name]; ok {
		return Name{Name: to}, true
	}
	if to, ok := table.whole[base]; ok {
		return Name{Name: to + ending, Stack: strings.Contains(to, "{}")}, true
	}
	rest, isBlock := strings.CutPrefix(name, "blk.")
	number, rest, isBlock2 := strings.Cut(rest, ".")
	layer, err := strconv.ParseUint(number, 10, 16)
	if !isBlock || !isBlock2 || err != nil {
		return Name{Name: name}, true // which no model has: listed as unexpected
	}
	if int64(layer) >= f.layers {
		return f.nextTensor(int64(layer), rest)
	}
	if to, ok := table.other[strings.TrimSuffix(rest, ending)]; ok && f.from.has("blk."+number+"."+table.mark) {
		return Name{Name: f.layerPrefix(number, int64(layer)) + to + ending}, true
	}
	if n, ok = f.blockTensor(f.layerPrefix(number, int64(layer)), rest); ok && n.Name == "" {
		n.Name = name // which no model has: listed as unexpected
	}
	return n, ok
}

// layerPrefix returns what the names of a layer's tensors begin with in the folder. number is the
// layer as the file writes it.
func (f *Folder) layerPrefix(number string, layer int64) string {
	stacks := f.arch.names.stacks
	if len(stacks) == 0 {
		return f.arch.names.layers + number + "."
	}
	i := min(layer/f.stack, int64(len(stacks)-1))
	return stacks[i] + strconv.FormatInt(layer-i*f.stack, 10) + "."
}

// scale returns the name of a scale of the weights beside it, which any matrix of a file may have. ok is false for the scale
// by which llama.cpp rounds activations. is reports whether the tensor is either.
func (f *Folder) scale(name, base, ending string) (n Name, is, ok bool) {
	_, rest, _ := strings.Cut(strings.TrimPrefix(base, "blk."), ".")
	if _, own := f.arch.names.block[rest+ending]; own || ending != ".scale" && ending != ".input_scale" {
		return Name{}, false, false
	}
	weight, is := f.from.Tensor(base + ".weight")
	if !is || ending != ".scale" {
		return Name{}, is, false
	}
	if n, ok = f.Tensor(base + ".weight"); !ok {
		return n, true, false
	}
	n.Scales, n.Layout, n.Parts = weight, Same, slices.Clone(n.Parts)
	for i := range n.Parts {
		n.Parts[i].Name += meta.ScaleSuffix
	}
	n.Name += meta.ScaleSuffix
	return n, true, true
}

// unread is the name of a tensor that is no weight, or of which an [Extra] has the values.
const unread = "-"

// blockTensor returns the name of a tensor of a block whose names in the folder begin with prefix. Its Name is empty if no block has such
// a tensor. ok is false for one that no weight is.
func (f *Folder) blockTensor(prefix, rest string) (n Name, ok bool) {
	table := &f.arch.names
	if rest == "exp_probs_b" { // as hy_v3 has it
		rest += ".bias"
	}
	layout := layouts[rest]
	if own, ok := table.layouts[rest]; ok {
		layout = own
	}
	to, whole := table.block[rest]
	if to == unread {
		return Name{}, false
	}
	if !whole {
		base, ending := rest, ""
		if i := strings.LastIndexByte(rest, '.'); i > 0 {
			base, ending = rest[:i], rest[i:]
		}
		part, ok := table.block[base]
		if !ok {
			if strings.HasPrefix(base, "rope_") {
				return Name{}, false
			}
			return Name{}, true
		}
		to = part + ending
	}
	return Name{Name: prefix + to, Stack: strings.Contains(to, "{}"), Layout: layout}, true
}

// split returns the parts of a projection of queries, keys and values that the folder has apart, as
// llama.cpp converts models with --fuse-qkv, or nil. A query head is as wide as its part of the result, and
// twice as wide where it has a gate behind it. The projection of a delta net is another.
func (f *Folder) split(name, base, ending string) []Part {
	at, fused := strings.CutSuffix(base, ".attn_qkv")
	table := f.arch.names.block
	_, gated := table["ssm_beta"]
	if _, delta := f.from.Tensor(at + ".ssm_a"); !fused || table["attn_qkv"] != "" && (!gated || delta) || table["attn_q"] == "" {
		return nil
	}
	t, ok := f.from.Tensor(name)
	out, ok2 := f.from.Tensor(at + ".attn_output.weight")
	if !ok || !ok2 || len(out.Shape) != 2 || len(t.Shape) == 0 {
		return nil
	}
	queries := out.Shape[1]
	if gated {
		queries *= 2
	}
	keys := (t.Shape[0] - queries) / 2
	if keys < 1 || queries+2*keys != t.Shape[0] {
		return nil
	}
	var parts []Part
	for _, p := range []Part{{"attn_q", queries}, {"attn_k", keys}, {"attn_v", keys}} {
		n, ok := f.Tensor(at + "." + p.Name + ending)
		if !ok {
			return nil
		}
		parts = append(parts, Part{Name: n.Name, Rows: p.Rows})
	}
	return parts
}

// with returns a copy of n with other names in blocks. An empty name removes one.
func (n names) with(block map[string]string) names {
	all := map[string]string{}
	for k, v := range n.block {
		all[k] = v
	}
	for k, v := range block {
		if all[k] = v; v == "" {
			delete(all, k)
		}
	}
	n.block = all
	return n
}

// llamaNames are those of llama and its descendants.
var llamaNames = names{
	layers: "model.layers.",
	whole:  map[string]string{"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
		"attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
		"ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	},
}

// expertNames are those of mixtures that Qwen and DeepSeek publish.
var expertNames = map[string]string{
	"ffn_gate_inp": "mlp.gate", "ffn_gate_exps": "mlp.experts.{}.gate_proj", "ffn_up_exps": "mlp.experts.{}.up_proj",
	"ffn_down_exps": "mlp.experts.{}.down_proj", "ffn_gate_up_exps": "mlp.experts.{}.gate_up_proj",
}

// sandwichNames are those of blocks with norms before and after attention and MLP.
var sandwichNames = map[string]string{
	"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm", "post_ffw_norm": "post_feedforward_layernorm",
}

var mixtralNames = map[string]string{
	"ffn_gate_inp": "block_sparse_moe.gate", "ffn_gate_exps": "block_sparse_moe.experts.{}.w1", "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
	"ffn_down_exps": "block_sparse_moe.experts.{}.w2", "ffn_gate_up_exps": "block_sparse_moe.experts.{}.gate_up_proj",
}

// sharedNames are those of a shared expert with a gate.
var sharedNames = map[string]string{
	"ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
	"ffn_down_shexp": "mlp.shared_expert.down_proj",
}

var glm4Names = map[string]string{
	"post_attention_norm": "post_self_attn_layernorm", "ffn_norm": "post_attention_layernorm", "post_ffw_norm": "post_mlp_layernorm", "ffn_up": "mlp.gate_up_proj",
}

var phi3Names = map[string]string{"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}

var gptOSSNames = map[string]string{
	"attn_sinks.weight": "self_attn.sinks", "post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router",
}

var deepseekNames = map[string]string{
	"attn_q_a": "self_attn.q_a_proj", "attn_q_a_norm": "self_attn.q_a_layernorm", "attn_q_b": "self_attn.q_b_proj",
	"attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm", "attn_kv_b": "self_attn.kv_b_proj",
	"indexer.attn_q_b": "self_attn.indexer.wq_b", "indexer.attn_k": "self_attn.indexer.wk", "indexer.k_norm": "self_attn.indexer.k_norm", "indexer.proj": "self_attn.indexer.weights_proj",
	"attn_k_b": "self_attn.k_b_proj", "attn_v_b": "self_attn.v_b_proj",
	"exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
	"ffn_gate_shexp":   "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
}

var starcoderNames = map[string]string{"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}

var gpt2Names = names{
	layers: "transformer.h.",
	whole: map[string]string{
		"token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f", "output": "lm_head",
	},
	block: map[string]string{
		"attn_norm": "ln_1", "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_norm": "ln_2", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
	},
}

var neoXNames = names{
	layers: "gpt_neox.layers.",
	whole: map[string]string{
		"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out",
	},
	block: map[string]string{
		"attn_norm": "input_layernorm", "attn_qkv": "attention.query_key_value", "attn_output": "attention.dense",
		"ffn_norm": "post_attention_layernorm", "ffn_up": "mlp.dense_h_to_4h", "ffn_down": "mlp.dense_4h_to_h",
	},
}
