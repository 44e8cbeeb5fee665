package meta

import (
	"math"
	"slices"
	"strconv"
)

// qwen4Exp is Qwen4ExpForCausalLM, the text model of Qwen4-Exp: gated delta nets, gated attention
// to blocks of positions, gated residual streams, and MoE layers with a gated shared expert. An
// indexer selects the blocks by the averages of their keys. Some layers add embeddings of n-grams
// to the streams. Published files have the experts of a layer stacked, and the tables of n-grams
// in parts of their rows.
func qwen4Exp(f *fields, b *Builder) {
	base, n := readQwen3Next(f.without("layer_types"), "Qwen4ExpText", decoderDefaults{
		vocab: 248320, hidden: 2048, inner: 512, layers: 40, kvHeads: 2, rope: ropeDefaults{partial: 1},
	})
	d := &qwen4{decoder: base, deltaNets: n}
	d.readLayers(f)
	d.readIndexer(f)
	d.streams = StreamsSpec{
		Count: f.count("hc_count", 4, 2, 64), Gated: true, Attention: "attn_hyper_connection", MLP: "mlp_hyper_connection",
		Head: b.tree.textPath() + ".hyper_connection_mixer", Norm: "hc_norm",
		Down: "input_mix_weight_down", Up: "input_mix_weight_up", Inject: "block_inject_weight",
	}
	d.rank = f.size("hc_lowrank", 320)
	d.readNGrams(f)
	inner, shared := f.size("moe_intermediate_size", 512), f.size("shared_expert_intermediate_size", 512)
	moe := f.experts("num_experts", 512, "num_experts_per_tok", 10)
	moe.Router, moe.Experts, moe.Score, moe.Renormalise = "gate", "experts", ScoreSoftmax, f.bool("norm_topk_prob", true)
	w := wiring{spec: CausalLMSpec{Streams: &d.streams}, noNorm: true, inputs: func(b *Builder) {
		d.connection(b.Child("hyper_connection_mixer", d.class+"GatedResidual"), false)
	}}
	d.causalLM(f, b, w, func(b *Builder, i int) {
		d.layer(b, i)
		d.sharedMixture(b, moe, inner, shared)
		d.ngrams(b, i)
		d.connection(b.Child("attn_hyper_connection", d.class+"GatedResidual"), true)
		d.connection(b.Child("mlp_hyper_connection", d.class+"GatedResidual"), true)
	})
	b.Ignore("mtp.**", "**.mtp.**")
}

// qwen4 is what the config has beyond a hybrid decoder's.
type qwen4 struct {
	*decoder
	*deltaNets
	streams            StreamsSpec
	rank               int // of the maps of the streams
	indexer            BlockIndexerSpec
	attentions, states int   // so far
	tables             []int // rows of the table of each layer, 0 for none
	embedded           int   // channels of the embeddings of a token
	parts              int   // of a table in files
	ngram              NGramSpec
}

// readLayers reads the types of layers. Published files call those with an indexer full
// attention.
func (d *qwen4) readLayers(f *fields) {
	types := f.texts("layer_types")
	if types == nil {
		return
	}
	if len(types) != d.layers {
		f.fail("layer_types", "%d types for %d layers", len(types), d.layers)
		return
	}
	f.checkTypes("layer_types", &types, d.layers, "linear_attention", "indexed_attention", "full_attention")
	for i, kind := range types {
		d.linear[i] = kind == "linear_attention"
	}
}

func (d *qwen4) readIndexer(f *fields) {
	if gate := f.text("output_gate_type", ""); gate != "" {
		d.deltaNets.spec.GateAct = f.activation("output_gate_type", "").act
	} else {
		d.deltaNets.spec.GateAct = d.act.act
	}
	if act := d.deltaNets.spec.GateAct; act != ActSiLU && act != ActSigmoid {
		f.fail("output_gate_type", "the gate of a delta net is neither silu nor sigmoid")
	}
	if !slices.Contains(d.linear, false) {
		return
	}
	const budget, ratio = "indexer_budget", "indexer_compress_ratio"
	for _, name := range []string{"indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", budget, ratio} {
		if !f.has(name) {
			f.fail(name, "missing, but there are layers of type indexed_attention")
			return
		}
	}
	if keys := f.count("indexer_kv_heads", 1, 1, maxHeads); keys != 1 {
		f.fail("indexer_kv_heads", "%d is not supported (supported: 1)", keys)
	}
	d.indexer = BlockIndexerSpec{
		Averaged: true, QK: "indexer.index_qk_proj", QNorm: "indexer.q_layernorm", KNorm: "indexer.k_layernorm",
		Heads: f.count("indexer_n_heads", 1, 1, maxHeads), HeadDim: f.count("indexer_head_dim", 1, 1, maxHeads), Size: f.count(ratio, 1, 1, maxSize),
	}
	tokens := f.count(budget, 1, 1, maxSize)
	if d.indexer.Count = tokens / d.indexer.Size; tokens%d.indexer.Size != 0 {
		f.fail(budget, "%d tokens in blocks of %d", tokens, d.indexer.Size)
	}
	switch {
	case d.indexer.HeadDim < d.rope.Dim:
		f.fail("indexer_head_dim", "%d, less than the %d channels that rope turns", d.indexer.HeadDim, d.rope.Dim)
	case d.rope.Type == RopeDynamic || d.rope.Type == RopeLongRope:
		f.fail("rope_parameters", "frequencies that depend on the length are not supported with averaged keys")
	}
}

// readNGrams reads which layers have embeddings of n-grams, numbered from 1, and the sizes of
// their tables. The number of rows for each hash is a different prime.
func (d *qwen4) readNGrams(f *fields) {
	d.tables = make([]int, d.layers)
	ids := f.list("ple_layer_ids")
	if len(ids) == 0 {
		return
	}
	s := NGramSpec{
		Size: f.count("ngram_size", 3, 2, maxKernel), Heads: f.count("heads_per_ngram", 8, 1, 1<<10), Kernel: f.count("ple_conv_kernel_size", 4, 1, maxKernel),
		Streams: d.streams.Count, Vocab: d.vocab, Table: "ple.ple_embedding.ngram_embedding",
		Hashes: "ple.ple_embedding", Multipliers: "layer_multipliers", Sizes: "ngram_heads_vocab_sizes", Offsets: "ngram_heads_offsets",
		Key: "ple.key_proj", Value: "ple.value_proj", KeyNorm: "ple.norm_key", QueryNorm: "ple.norm_query", ConvNorm: "ple.norm_conv", Conv: "ple.conv1d",
	}
	hashes := (s.Size - 1) * s.Heads
	d.parts, d.embedded = f.count("split_ngram_parts", 512, 1, 1<<16), f.size("ple_embed_dim", d.hidden)
	if d.embedded%hashes != 0 {
		f.fail("ple_embed_dim", "%d channels for %d hashes", d.embedded, hashes)
	}
	if s.End = f.token("own_eos_token_id", f.token("eos_token_id", -1)); s.End < 0 {
		f.fail("eos_token_id", "missing, but there are embeddings of n-grams")
	}
	d.ngram = s
	for _, id := range ids {
		i, ok := f.integer("ple_layer_ids", id, 1, d.layers)
		if !ok {
			return
		}
		if !d.linear[i-1] {
			f.fail("ple_layer_ids", "layer %d has no delta net", i)
			return
		}
		d.tables[i-1] = 1
	}
	d.sizeTables(f, hashes)
}

// sizeTables sets the number of rows of the tables. hashes is the number of hashes in each.
func (d *qwen4) sizeTables(f *fields, hashes int) {
	size, padded := f.count("ngram_vocab_size_base", 20_000_000, 1, math.MaxInt32)-1, f.count("make_ngram_vocab_size_divisible_by", 128, 1, maxSize)
	for i := range d.tables {
		if d.tables[i] == 0 {
			continue
		}
		rows := 0
		for range hashes {
			if size = primeAfter(size); rows > math.MaxInt32-size {
				f.fail("ngram_vocab_size_base", "a table of more than %d rows", math.MaxInt32)
				return
			}
			rows += size
		}
		d.tables[i] = (rows + padded - 1) / padded * padded
	}
}

// primeAfter returns the first prime number above n.
func primeAfter(n int) int {
	for n++; ; n++ {
		prime := n > 1
		for i := 2; prime && i*i <= n; i++ {
			prime = n%i != 0
		}
		if prime {
			return n
		}
	}
}

// layer adds the delta net or the attention of a layer, and the layer's streams.
func (d *qwen4) layer(b *Builder, i int) {
	block := BlockSpec{Attention: "self_attn", MLP: "mlp", Streams: &d.streams}
	if d.tables[i] > 0 {
		ngram := d.ngram
		ngram.State = d.states + 1
		block.NGrams = &ngram
	}
	if d.linear[i] {
		block.Attention = "linear_attn"
		d.deltaNet(b, d.deltaNets, d.states)
		d.states++
		if block.NGrams != nil {
			d.states++
		}
	} else {
		indexer := d.indexer
		indexer.Layer = d.attentions + 1
		a := d.gatedAttention(b, d.bias, AttentionSpec{Layer: d.attentions, Blocks: &indexer})
		x := a.Child("indexer", d.class+"QSAIndexer")
		d.indexProjection(x, &indexer)
		d.norm(x, "q_layernorm", indexer.HeadDim)
		d.norm(x, "k_layernorm", indexer.HeadDim)
		d.attentions += 2
	}
	b.Runs(KindBlock, &block)
}

// indexProjection adds the projection of an indexer's queries and key, which GGUF files have apart.
func (d *qwen4) indexProjection(x *Builder, indexer *BlockIndexerSpec) {
	queries, out := indexer.Heads*indexer.HeadDim, (indexer.Heads+1)*indexer.HeadDim
	p := x.Child("index_qk_proj", "Linear").Runs(KindLinear, &LinearSpec{In: d.hidden, Out: out})
	p.ParamFrom("weight", []int{out, d.hidden}, []TensorSource{{Tensor: p.path + ".weight"}}, []TensorSource{
		{Tensor: x.path + ".index_q_proj.weight", Into: RowRange{0, queries}}, {Tensor: x.path + ".index_k_proj.weight", Into: RowRange{queries, out}},
	})
}

// streamNorm adds a norm of each stream.
func (d *qwen4) streamNorm(b *Builder, name string) {
	spec := d.normSpec
	spec.Dim, spec.Heads = d.hidden, d.streams.Count
	b.Child(name, d.normClass).Runs(KindNorm, &spec).Param("weight", d.streams.Count*d.hidden)
}

// connection adds the projections of the streams to b, their scope. If injects is set, it also
// adds those for the result of a branch.
func (d *qwen4) connection(b *Builder, injects bool) {
	all := d.streams.Count * d.hidden
	d.streamNorm(b, d.streams.Norm)
	b.Linear(d.streams.Down, all, d.rank, false)
	b.Linear(d.streams.Up, d.rank, all, false)
	if injects {
		b.Linear(d.streams.Inject, all, d.streams.Count, false)
	}
}

// ngrams adds the n-gram embeddings of a layer, if it has some.
func (d *qwen4) ngrams(b *Builder, i int) {
	rows := d.tables[i]
	if rows == 0 {
		return
	}
	s, all := &d.ngram, d.streams.Count*d.hidden
	hashes := (s.Size - 1) * s.Heads
	p := b.Child("ple", d.class+"PLELayer")
	e := p.Child("ple_embedding", d.class+"NGramEmbedding")
	e.Buffer(s.Multipliers, Int64, true, s.Size)
	e.Buffer(s.Sizes, Int64, true, hashes)
	e.Buffer(s.Offsets, Int64, true, hashes)
	d.table(e, rows, d.embedded/hashes)
	p.Linear("key_proj", d.embedded, all, false)
	p.Linear("value_proj", d.embedded, d.hidden, false)
	d.streamNorm(p, "norm_key")
	d.streamNorm(p, "norm_query")
	d.streamNorm(p, "norm_conv")
	p.Child("conv1d", "Conv1d").Param("weight", all, 1, s.Kernel)
}

// table adds a table of n-grams. Published files have it in parts.
func (d *qwen4) table(b *Builder, rows, dim int) {
	t := b.Child("ngram_embedding", "Embedding").Runs(KindEmbedding, &EmbeddingSpec{Rows: rows, Dim: dim})
	t.ParamFrom("weight", []int{rows, dim}, d.partsOf(t, rows), []TensorSource{{Tensor: t.path + ".weight"}})
}

// partsOf returns the parts of a table: with the rows that the checkpoint's parts have, or else
// equal parts except for the last.
func (d *qwen4) partsOf(b *Builder, rows int) (parts []TensorSource) {
	for i, begin := 0, 0; begin < rows; i++ {
		name := b.path + ".shard_" + strconv.Itoa(i) + ".weight"
		end := begin + (rows+d.parts-1)/d.parts
		if n := b.tree.rowsOf(name); n > 0 {
			end = begin + n
		}
		parts = append(parts, TensorSource{Tensor: name, Into: RowRange{begin, min(end, rows)}})
		begin = end
	}
	return parts
}
