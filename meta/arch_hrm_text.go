package meta

import (
	"slices"
	"strconv"
)

// hrmText is HrmTextForCausalLM: two stacks of blocks that a token passes in cycles. A cycle is
// some runs of the low stack and one of the high one. Each run begins with the sum of the results
// of both stacks.
func hrmText(f *fields, b *Builder) {
	d := readDecoder(f.without("num_key_value_heads"), "HrmText", decoderDefaults{
		vocab: 151808, hidden: 1536, inner: 4096, layers: 16, heads: 12, headDim: 128,
		context: 2048, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 10000},
	})
	d.bareNorms = true
	high, low := f.count("H_cycles", 2, 1, 1<<10), f.count("L_cycles", 3, 1, 1<<10)
	h := &hrmLayers{decoder: d, blocks: f.count("num_layers_per_stack", d.layers, 1, maxLayers),
		bias: f.bool("attention_bias", false), mlpBias: f.bool("mlp_bias", false)}
	h.readTrained(f, high)
	scale := 1 / f.positive("initializer_range", 0.02)
	if !f.null("embedding_scale") {
		scale = f.positive("embedding_scale", scale)
	}
	if n := high * (low + 1) * h.blocks; n > 1<<16 {
		f.fail("H_cycles", "%d with %d low ones of %d blocks is not supported: a token would pass %d blocks, want at most %d", high, low, h.blocks, n, 1<<16)
	}
	if f.err() != nil {
		return
	}
	path := b.tree.textPath()
	b.Runs(KindCausalLM, &CausalLMSpec{
		Embed: path + ".embed_tokens", EmbedScale: float32(scale), Runs: h.runs(path, high, low), Norm: path + ".H_module.final_norm", Head: b.tree.headPath(),
		Carry: d.hidden, CarryStart: path + ".z_L_init", Vocab: d.vocab, Hidden: d.hidden, Context: d.rope.contextOf(d.context), Reach: d.rope.reachOf(d.context),
	})
	b.publishes(".self_attn.gqkv_proj.", ".attn.gqkv_proj.", ".self_attn.o_proj.", ".attn.o_proj.")
	model, outer := b.textModel("HrmTextModel")
	model.Param("z_L_init", d.hidden)
	embed := model.Embedding("embed_tokens", "Embedding", d.vocab, d.hidden)
	model.Rotary("HrmTextRotaryEmbedding", d.rope)
	h.stack(model, "L_module", 0)
	h.stack(model, "H_module", low*h.blocks)
	outer.head(embed, d.hidden, d.vocab, d.tied, b.tree.headPath()+".weight")
}

// hrmLayers holds properties of the stacks that decoder does not hold.
type hrmLayers struct {
	*decoder
	blocks        int // of a stack
	bias, mlpBias bool
	trained       []int // in each cycle, how many of the last runs of the low stack have gradients
}

// readTrained reads which runs of the low stack have gradients. A list that is shorter than the
// cycles counts for the last ones; in the others, one run has.
func (h *hrmLayers) readTrained(f *fields, high int) {
	given := []int{2}
	if list := f.list("L_bp_cycles"); list != nil {
		given = nil
		for _, v := range list {
			n, _ := f.integer("L_bp_cycles", v, 0, 1<<10)
			given = append(given, n)
		}
	}
	h.trained = append(slices.Repeat([]int{1}, max(0, high-len(given))), given...)
}

// runs returns the runs of the stacks. The kept states are the result of the stack that does not
// run: a run of another stack than the one before keeps the result of that one.
func (h *hrmLayers) runs(path string, high, low int) (runs []RunSpec) {
	stacks := [2]string{path + ".L_module", path + ".H_module"}
	norm := ""
	add := func(stack, offset int, keeps, detached bool) {
		runs = append(runs, RunSpec{Blocks: stacks[stack] + ".layers", To: h.blocks, Offset: offset * h.blocks, Detached: detached, Entry: &RunEntrySpec{Norm: norm, Keeps: keeps}})
		norm = stacks[stack] + ".final_norm"
	}
	for cycle := range high {
		for i := range low {
			add(0, cycle*(low+1)+i, i == 0, i < low-h.trained[cycle])
		}
		add(1, cycle*(low+1), cycle < high-1, false)
	}
	return runs
}

// stack adds a stack whose first block has the given layer of the KV cache in its first run.
func (h *hrmLayers) stack(b *Builder, name string, layer int) {
	s := b.Child(name, "HrmTextStack")
	list := s.Child("layers", "ModuleList")
	block := preNorm()
	for i := range h.blocks {
		l := list.Child(strconv.Itoa(i), "HrmTextDecoderLayer")
		block := block
		block.Carries = true
		l.Runs(KindBlock, &block)
		h.attend(l, layer+i)
		h.feed(l)
		h.norms(l, "input_layernorm", "post_attention_layernorm")
	}
	h.norms(s, "final_norm")
}

// attend adds attention with the given layer of the KV cache. Published files have the weights of
// its gate, queries, keys and values as one matrix.
func (h *hrmLayers) attend(b *Builder, layer int) {
	width := h.heads * h.headDim
	s := h.attentionSpec(AttentionSpec{Layer: layer, Gate: "gate_proj"})
	s.Q, s.K, s.V, s.Out = "q_proj", "k_proj", "v_proj", "o_proj"
	a := b.Child("self_attn", "HrmTextAttention").Runs(KindAttention, s)
	part := func(name string, i int) {
		a.linearPart("gqkv_proj", name, h.hidden, RowRange{Begin: i * width, End: (i + 1) * width}, h.bias)
	}
	part("q_proj", 1)
	part("k_proj", 2)
	part("v_proj", 3)
	a.Linear("o_proj", width, h.hidden, h.bias)
	part("gate_proj", 0)
}

// feed adds an MLP. Published files have the weights of gate and up as one matrix.
func (h *hrmLayers) feed(b *Builder) {
	m := b.Child("mlp", h.mlpClass).Runs(KindMLP, &MLPSpec{Gate: "gate_proj", Up: "up_proj", Down: "down_proj", Act: h.act.act})
	m.linearPart("gate_up_proj", "gate_proj", h.hidden, RowRange{End: h.inner}, h.mlpBias)
	m.linearPart("gate_up_proj", "up_proj", h.hidden, RowRange{Begin: h.inner, End: 2 * h.inner}, h.mlpBias)
	m.Linear("down_proj", h.inner, h.hidden, h.mlpBias)
	m.Activation("act_fn", h.act.class, h.act.act)
}
