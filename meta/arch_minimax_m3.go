package meta

import "slices"

// minimaxM3 is MiniMaxM3VLForCausalLM, the text model of MiniMax M3: norms of each query and key
// head, MoE layers with sigmoid routing and a shared expert, and in some layers attention to
// blocks that an indexer selects per group of heads. Published files have the MoE layer under
// block_sparse_moe.
func minimaxM3(f *fields, b *Builder) {
	d := &minimax3{decoder: readDecoder(f.without("hidden_act"), "MiniMaxM3VL", decoderDefaults{
		vocab: 200064, hidden: 6144, inner: 3072, layers: 60, heads: 64, kvHeads: 4, headDim: 128,
		context: 524288, eps: 1e-6, act: "silu", rope: ropeDefaults{theta: 5e6, partial: 1, roundUp: true},
	})}
	d.normSpec.Offset = 1
	d.dense, d.shared = f.size("dense_intermediate_size", 12288), f.size("shared_intermediate_size", 3072)
	d.readExperts(f)
	d.readIndexer(f)
	mixture := d.layersOf(f, "mlp_layer_types", f.flags("moe_layer_freq", d.layers), true, "sparse", "dense")
	b.publishes(
		".mlp.gate.e_score_correction_bias", ".block_sparse_moe.e_score_correction_bias", ".mlp.gate.", ".block_sparse_moe.gate.",
		".mlp.experts.", ".block_sparse_moe.experts.", ".mlp.shared_experts.", ".block_sparse_moe.shared_experts.",
		".self_attn.indexer.q_", ".self_attn.index_q_", ".self_attn.indexer.k_", ".self_attn.index_k_",
	)
	d.causalLM(f, b, wiring{block: preNorm(), modelClass: "MiniMaxM3VLTextModel"}, func(b *Builder, i int) {
		d.attention(b, i)
		if mixture[i] {
			d.mixture(b)
		} else {
			d.clampedMLP(b.Child("mlp", d.class+"DenseMLP"), d.dense)
		}
		d.norms(b, "input_layernorm", "post_attention_layernorm")
	})
	b.Ignore("mtp.**", "**.mtp.**")
}

// minimax3 holds the part of the config that decoder does not hold.
type minimax3 struct {
	*decoder
	dense, shared int // widths of MLPs
	sparse        []bool
	indexer       BlockIndexerSpec
	indexed       int // layers with an indexer so far
	moe           MoESpec
}

func (d *minimax3) readExperts(f *fields) {
	m := f.experts("num_local_experts", 128, "num_experts_per_tok", 4)
	m.Router, m.Experts, m.Shared, m.Correction = "gate", "experts", "shared_experts", "e_score_correction_bias"
	m.Score, m.Renormalise, m.Act = ScoreSigmoid, true, ActClampedSwiGLU
	m.Scale = float32(f.positive("routed_scaling_factor", 2))
	m.Limit, m.Alpha = f.clampedSwiGLU()
	d.moe = *m
}

// readIndexer reads which layers have an indexer, and its sizes. Published files state them in
// sparse_attention_config.
func (d *minimax3) readIndexer(f *fields) {
	old := f.object("sparse_attention_config")
	if old == nil {
		old = &fields{at: f.at, errs: f.errs}
	}
	size := func(name, published string, def, least int) int {
		if old.has(published) {
			return old.count(published, def, least, maxSize)
		}
		return f.count(name, def, least, maxSize)
	}
	d.indexer = BlockIndexerSpec{
		Q: "indexer.q_proj", K: "indexer.k_proj", QNorm: "indexer.q_norm", KNorm: "indexer.k_norm",
		Heads:   size("index_n_heads", "sparse_num_index_heads", 4, 1),
		HeadDim: size("index_head_dim", "sparse_index_dim", 128, 1),
		Size:    size("index_block_size", "sparse_block_size", 128, 1),
		Count:   size("index_topk_blocks", "sparse_topk_blocks", 16, 1),
		Local:   size("index_local_blocks", "sparse_local_block", 1, 0),
	}
	d.sparse = d.layersOf(f, "layer_types", old.flags("sparse_attention_freq", d.layers), false, "minimax_m3_sparse", "full_attention")
	if !slices.Contains(d.sparse, true) {
		return
	}
	if d.heads%d.indexer.Heads != 0 {
		f.fail("index_n_heads", "%d does not divide the %d attention heads", d.indexer.Heads, d.heads)
	}
	if n := d.indexer.HeadDim; n < d.rope.Dim {
		if n%2 != 0 {
			f.fail("index_head_dim", "%d, an odd number less than the %d channels that rope turns, is not supported", n, d.rope.Dim)
		}
		d.indexer.Halves = d.rope.halves(n)
	}
	if d.indexer.Local > d.indexer.Count {
		f.fail("index_local_blocks", "%d of %d blocks", d.indexer.Local, d.indexer.Count)
	}
}

// halves returns the ropes of both halves of heads of dim channels, which r rotates as transformers
// does: with the cosines and sines of the first dim channels of r.
func (r *RopeSpec) halves(dim int) *[2]RopeSpec {
	first := *r
	first.Dim, first.Within = dim, r
	second := first
	second.From = dim / 2
	return &[2]RopeSpec{first, second}
}

// layersOf returns which layers are of the first of two types: those that the field called name
// states, or else those that flags selects, or else all or none.
func (d *decoder) layersOf(f *fields, name string, flags []bool, all bool, is, other string) []bool {
	layers := make([]bool, d.layers)
	switch types := f.texts(name); {
	case types != nil:
		f.checkTypes(name, &types, d.layers, is, other)
		for i := range min(len(types), d.layers) {
			layers[i] = types[i] == is
		}
	case flags != nil:
		copy(layers, flags)
	case all:
		layers = slices.Repeat([]bool{true}, d.layers)
	}
	return layers
}

// clampedSwiGLU reads the limit of ActClampedSwiGLU, and its alpha, which is 0 for the usual one.
func (f *fields) clampedSwiGLU() (limit, alpha float32) {
	const usual = 1.702
	if v := f.positive("swiglu_alpha", usual); v != usual {
		alpha = float32(v)
	}
	return float32(f.positive("swiglu_limit", 7)), alpha
}

func (d *minimax3) attention(b *Builder, i int) {
	spec := AttentionSpec{Layer: i, QNorm: "q_norm", KNorm: "k_norm"}
	if d.sparse[i] {
		indexer := d.indexer
		indexer.Layer = d.layers + d.indexed
		d.indexed++
		spec.Blocks = &indexer
	}
	a := d.decoder.attention(b, false, false, spec)
	d.norm(a, "q_norm", d.headDim)
	d.norm(a, "k_norm", d.headDim)
	if d.sparse[i] {
		x := a.Child("indexer", d.class+"Indexer")
		x.Linear("q_proj", d.hidden, d.indexer.Heads*d.indexer.HeadDim, false)
		x.Linear("k_proj", d.hidden, d.indexer.HeadDim, false)
		d.norm(x, "q_norm", d.indexer.HeadDim)
		d.norm(x, "k_norm", d.indexer.HeadDim)
	}
}

func (d *minimax3) mixture(b *Builder) {
	spec := &d.moe
	m := b.Child("mlp", d.class+"SparseMoeBlock").Runs(KindMoE, spec)
	gate := m.Child("gate", d.class+"TopKRouter")
	gate.Param("weight", spec.Count, d.hidden)
	gate.Buffer(spec.Correction, b.tree.dtype, true, spec.Count)
	m.stackedExperts(spec, expertNames{
		class: d.class + "Experts", gate: "w1", up: "w3", down: "w2", each: []string{m.path + ".experts"},
	}, d.hidden, d.inner, activation{})
	d.clampedMLP(m.Child("shared_experts", d.class+"DenseMLP"), d.shared)
}

// clampedMLP adds an MLP with gate and up in one projection to m, its scope. Published files have
// two projections.
func (d *minimax3) clampedMLP(m *Builder, inner int) {
	m.Runs(KindMLP, &MLPSpec{Fused: "gate_up_proj", FusedOrder: GateHalves, Down: "down_proj", Act: d.moe.Act, Limit: d.moe.Limit, Alpha: d.moe.Alpha})
	up := m.Child("gate_up_proj", "Linear").Runs(KindLinear, &LinearSpec{In: d.hidden, Out: 2 * inner})
	up.ParamFrom("weight", []int{2 * inner, d.hidden}, []TensorSource{
		{Tensor: m.path + ".gate_proj.weight", Into: RowRange{0, inner}},
		{Tensor: m.path + ".up_proj.weight", Into: RowRange{inner, 2 * inner}},
	}, []TensorSource{{Tensor: up.path + ".weight"}})
	m.Linear("down_proj", inner, d.hidden, false)
}
