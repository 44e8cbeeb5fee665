package nn

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

const testWidth = 24

// A blockCase is a block of testWidth channels.
type blockCase struct {
	name  string
	build func(b *meta.Builder)
	cuts  []int // further ways to serve the weights, in pieces of so many rows
}

func attentionSpec() meta.AttentionSpec {
	return meta.AttentionSpec{
		Heads: 4, KVHeads: 2, HeadDim: 6, ValueDim: 6, Q: "q", K: "k", V: "v", Out: "o", Scale: 0.4,
		Rope: &meta.RopeSpec{Theta: 100, Dim: 6, Max: 64},
	}
}

// separate adds an attention with projections of its own, changed by edit.
func separate(b *meta.Builder, bias bool, edit func(a *meta.Builder, s *meta.AttentionSpec)) {
	s := attentionSpec()
	a := b.Child("attn", "Attention")
	if edit != nil {
		edit(a, &s)
	}
	a.Runs(meta.KindAttention, &s)
	a.Linear("q", testWidth, s.Heads*s.HeadDim, bias)
	a.Linear("k", testWidth, s.KVHeads*s.HeadDim, bias)
	a.Linear("v", testWidth, s.KVHeads*s.ValueDim, bias)
	a.Linear("o", s.Heads*s.ValueDim, testWidth, bias)
}

// rmsNorm adds a norm whose weight counts from offset.
func rmsNorm(b *meta.Builder, name string, dim int, eps, offset float32) {
	b.Child(name, "Norm").Runs(meta.KindNorm, &meta.NormSpec{Dim: dim, Eps: eps, Offset: offset}).Param("weight", dim)
}

// headNorms adds a layer norm of each head, with weights of its own for each head: rows
// of one parameter or modules.
func headNorms(b *meta.Builder, name string, dim, heads int, modules bool) {
	s := meta.NormSpec{Dim: dim, Eps: 1e-5, Layer: true, Heads: heads}
	if !modules {
		b.Child(name, "Norm").Runs(meta.KindNorm, &s).Param("weight", heads, dim)
		return
	}
	s.Each = "norms"
	list := b.Child(name, "Norms").Runs(meta.KindNorm, &s).Child("norms", "List")
	for i := range heads {
		list.LayerNorm(strconv.Itoa(i), dim, 1e-5, i%2 == 0)
	}
}

func gated(b *meta.Builder, name string) {
	m := b.Child(name, "MLP").Runs(meta.KindMLP, &meta.MLPSpec{Gate: "gate", Up: "up", Down: "down", Act: meta.ActSiLU})
	m.Linear("gate", testWidth, 20, false)
	m.Linear("up", testWidth, 20, false)
	m.Linear("down", 20, testWidth, false)
}

func preNorms(b *meta.Builder, s meta.BlockSpec) *meta.Builder {
	s.Attention, s.MLP = "attn", "mlp"
	rmsNorm(b, "n1", testWidth, 1e-5, 0)
	rmsNorm(b, "n2", testWidth, 1e-5, 0)
	if s.AttentionNorm == "" && s.PostAttentionNorm == "" {
		s.AttentionNorm, s.MLPNorm = "n1", "n2"
	}
	return b.Runs(meta.KindBlock, &s)
}

func experts(b *meta.Builder, s meta.MoESpec, bias bool) *meta.Builder {
	const inner = 10
	s.Router, s.Experts, s.GateUp, s.Down = "router", "experts", "gate_up", "down"
	if bias {
		s.GateUpBias, s.DownBias = "gate_up_bias", "down_bias"
	}
	m := b.Child("mlp", "MoE")
	router := m.Child("router", "Router")
	router.Param("weight", s.Count, testWidth)
	if s.Correction != "" {
		router.Buffer(s.Correction, meta.Float32, true, s.Count)
	}
	e := m.Child("experts", "Experts")
	if s.Transposed {
		e.Param("gate_up", s.Count, testWidth, 2*inner)
		e.Param("down", s.Count, inner, testWidth)
	} else {
		e.Param("gate_up", s.Count, 2*inner, testWidth)
		e.Param("down", s.Count, testWidth, inner)
	}
	if bias {
		router.Param("bias", s.Count)
		e.Param("gate_up_bias", s.Count, 2*inner)
		e.Param("down_bias", s.Count, testWidth)
	}
	return m.Runs(meta.KindMoE, &s)
}

func blockCases() []blockCase {
	return slices.Concat(wiringCases(), headNormCases(), projectionCases(), latentCases(), groupedCases(), expertCases())
}

// eachBlock runs a test for a block of each case.
func eachBlock(t *testing.T, test func(t *testing.T, c blockCase, root *meta.Module)) {
	for _, c := range blockCases() {
		t.Run(c.name, func(t *testing.T) { test(t, c, build(t, c.build)) })
	}
}

func wiringCases() []blockCase {
	return []blockCase{
		{"pre-norm", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), true, nil)
			gated(b, "mlp")
		}, []int{4, 5}},
		{"post-norm", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{PostAttentionNorm: "n1", PostMLPNorm: "n2"}), false, nil)
			gated(b, "mlp")
		}, nil},
		{"sandwich with offset norms", func(b *meta.Builder) {
			s := meta.BlockSpec{AttentionNorm: "n1", PostAttentionNorm: "n3", MLPNorm: "n2", PostMLPNorm: "n4"}
			separate(preNorms(b, s), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Softcap, s.Window = 2, 3 })
			rmsNorm(b, "n3", testWidth, 1e-5, 1)
			rmsNorm(b, "n4", testWidth, 1e-5, 1)
			gated(b, "mlp")
		}, nil},
		{"parallel with two norms", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{Parallel: true}), true, nil)
			gated(b, "mlp")
		}, nil},
		{"parallel with one norm", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{Parallel: true, AttentionNorm: "n1", MLPNorm: "n1"}), true, nil)
			gated(b, "mlp")
		}, nil},
		{"biases of distances", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, func(a *meta.Builder, s *meta.AttentionSpec) {
				s.Window = 6
				s.Relative = &meta.RelativeSpec{States: "states", Profiles: "profiles", Rank: 2, Extent: 5, Growth: &meta.RopeSpec{Type: meta.RopeNone, Dim: 2, Growth: 0.5, GrowthFrom: 4}}
				a.Linear("states", testWidth, 2*s.Heads, false)
				a.Child("profiles", "Profiles").Param("proj", 2, 5)
			})
			gated(b, "mlp")
		}, nil},
		{"scaled residual", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{ResidualScale: 0.25}), false, nil)
			gated(b, "mlp")
		}, nil},
	}
}

func headNormCases() []blockCase {
	return []blockCase{
		{"norms of each head, window and sinks", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, func(a *meta.Builder, s *meta.AttentionSpec) {
				s.QNorm, s.KNorm, s.Window, s.Sinks = "qn", "kn", 4, "sinks"
				rmsNorm(a, "qn", s.HeadDim, 1e-6, 0)
				rmsNorm(a, "kn", s.HeadDim, 1e-6, 0)
				a.Param("sinks", s.Heads)
			})
			gated(b, "mlp")
		}, nil},
		{"norms of all heads, interleaved rope", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, func(a *meta.Builder, s *meta.AttentionSpec) {
				s.QNorm, s.KNorm, s.Rope.Interleaved, s.ValueDim = "qn", "kn", true, 4
				rmsNorm(a, "qn", s.Heads*s.HeadDim, 1e-6, 0)
				rmsNorm(a, "kn", s.KVHeads*s.HeadDim, 1e-6, 0)
			})
			gated(b, "mlp")
		}, nil},
		{"norms with weights of each head, window and softcap", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, func(a *meta.Builder, s *meta.AttentionSpec) {
				s.QNorm, s.KNorm, s.Window, s.Softcap = "qn", "kn", 5, 1.5
				headNorms(a, "qn", s.HeadDim, s.Heads, false)
				headNorms(a, "kn", s.HeadDim, s.KVHeads, false)
			})
			gated(b, "mlp")
		}, nil},
		{"norms of heads as modules of their own", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), true, func(a *meta.Builder, s *meta.AttentionSpec) {
				s.QNorm, s.KNorm, s.Rope.Dim = "qn", "kn", 4
				headNorms(a, "qn", s.HeadDim, s.Heads, true)
				headNorms(a, "kn", s.HeadDim, s.KVHeads, true)
			})
			gated(b, "mlp")
		}, nil},
	}
}

func projectionCases() []blockCase {
	return []blockCase{
		{"fused projections", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			s := attentionSpec()
			s.Fused = "qkv"
			a := b.Child("attn", "Attention").Runs(meta.KindAttention, &s)
			a.Linear("qkv", testWidth, 48, false)
			a.Linear("o", 24, testWidth, false)
			m := b.Child("mlp", "MLP").Runs(meta.KindMLP, &meta.MLPSpec{Fused: "gate_up", Down: "down", Act: meta.ActGELU})
			m.Linear("gate_up", testWidth, 36, true)
			m.Linear("down", 18, testWidth, false)
		}, []int{24, 7}},
		{"fused by head, partial rope, layer norms", func(b *meta.Builder) {
			b.Runs(meta.KindBlock, &meta.BlockSpec{AttentionNorm: "n1", Attention: "attn", MLPNorm: "n2", MLP: "mlp"})
			b.LayerNorm("n1", testWidth, 1e-5, true)
			b.LayerNorm("n2", testWidth, 1e-5, false)
			s := attentionSpec()
			s.Fused, s.FusedOrder, s.KVHeads, s.Rope.Dim = "qkv", meta.FusedPerHead, 4, 2
			a := b.Child("attn", "Attention").Runs(meta.KindAttention, &s)
			a.Linear("qkv", testWidth, 72, true)
			a.Linear("o", 24, testWidth, true)
			m := b.Child("mlp", "MLP").Runs(meta.KindMLP, &meta.MLPSpec{Up: "up", Down: "down", Act: meta.ActGELU})
			m.Linear("up", testWidth, 30, true)
			m.Linear("down", 30, testWidth, true)
		}, []int{5}},
		{"transposed weights without rope", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			s := attentionSpec()
			s.Fused, s.Rope, s.KVHeads = "qkv", nil, 4
			a := b.Child("attn", "Attention").Runs(meta.KindAttention, &s)
			a.Conv1D("qkv", testWidth, 72)
			a.Conv1D("o", 24, testWidth)
			m := b.Child("mlp", "MLP").Runs(meta.KindMLP, &meta.MLPSpec{Up: "up", Down: "down", Act: meta.ActGELUTanh})
			m.Conv1D("up", testWidth, 30)
			m.Conv1D("down", 30, testWidth)
		}, nil},
		{"interleaved gates", func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, nil)
			m := b.Child("mlp", "MLP").Runs(meta.KindMLP, &meta.MLPSpec{
				Fused: "gate_up", FusedOrder: meta.GateInterleaved, Down: "down", Act: meta.ActSiLU,
			})
			m.Linear("gate_up", testWidth, 36, true)
			m.Linear("down", 18, testWidth, false)
		}, nil},
	}
}

func latentCases() []blockCase {
	return []blockCase{
		{"latent attention", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			latentAttention(b, "q_down")
			gated(b, "mlp")
		}, nil},
		{"latent attention with whole queries", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			latentAttention(b, "")
			gated(b, "mlp")
		}, nil},
		{"latent attention with learned frequencies and factors of heads", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			s := latentAttention(b, "")
			s.MLA.HeadScale, s.Rope.Alpha = "growth", "learned"
			headFactors(b, s.Heads)
			b.Child("learned", "Rotary").Param("alpha", s.Rope.Dim/2)
			gated(b, "mlp")
		}, nil},
		{"latent attention without rope", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			s := latentAttentionOf(b, "", 0)
			s.MLA.HeadScale = "growth"
			headFactors(b, s.Heads)
			gated(b, "mlp")
		}, nil},
	}
}

// headFactors adds factors of the heads to the attention of b.
func headFactors(b *meta.Builder, heads int) {
	m := b.Module().Find("attn")
	m.Children = append(m.Children, &meta.Module{Name: "growth", Params: []*meta.Param{
		{Name: "scale", Shape: []int{heads}, DType: meta.Float32}, {Name: "bias", Shape: []int{heads}, DType: meta.Float32},
	}})
}

func latentAttention(b *meta.Builder, qDown string) *meta.AttentionSpec {
	return latentAttentionOf(b, qDown, 4)
}

// latentAttentionOf is latentAttention with rope over so many channels.
func latentAttentionOf(b *meta.Builder, qDown string, rope int) *meta.AttentionSpec {
	const heads, nope, value, rank, qRank = 3, 5, 6, 8, 7
	s := meta.AttentionSpec{
		Heads: heads, KVHeads: heads, HeadDim: nope + rope, ValueDim: value, Out: "o", Scale: 0.3,
		Rope: &meta.RopeSpec{Theta: 100, Dim: rope, Max: 64, Interleaved: true},
		MLA: &meta.MLASpec{
			QDown: qDown, QUp: "q_up", KVDown: "kv_down", KVNorm: "kv_norm", KVUp: "kv_up",
			LoraRank: rank, RopeDim: rope, NopeDim: nope,
		},
	}
	if rope == 0 {
		s.Rope = nil
	}
	a := b.Child("attn", "Attention").Runs(meta.KindAttention, &s)
	in := testWidth
	if qDown != "" {
		s.MLA.QNorm = "q_norm"
		a.Linear(qDown, testWidth, qRank, true)
		rmsNorm(a, "q_norm", qRank, 1e-6, 0)
		in = qRank
	}
	a.Linear("q_up", in, heads*(nope+rope), false)
	a.Linear("kv_down", testWidth, rank+rope, true)
	rmsNorm(a, "kv_norm", rank, 1e-6, 0)
	a.Linear("kv_up", rank, heads*(nope+value), false)
	a.Linear("o", heads*value, testWidth, false)
	return &s
}

func groupedCases() []blockCase {
	return []blockCase{
		{"fused by key head, shared by two query heads", func(b *meta.Builder) {
			preNorms(b, meta.BlockSpec{})
			s := attentionSpec()
			s.Fused, s.FusedOrder, s.KVHeads = "qkv", meta.FusedPerHead, 2
			a := b.Child("attn", "Attention").Runs(meta.KindAttention, &s)
			a.Linear("qkv", testWidth, 48, true)
			a.Linear("o", 24, testWidth, true)
			m := b.Child("mlp", "MLP").Runs(meta.KindMLP, &meta.MLPSpec{Up: "up", Down: "down", Act: meta.ActGELU})
			m.Linear("up", testWidth, 30, true)
			m.Linear("down", 30, testWidth, true)
		}, []int{24, 5}},
	}
}

func expertCases() []blockCase {
	with := func(s meta.MoESpec, bias bool, more func(m *meta.Builder)) func(b *meta.Builder) {
		return func(b *meta.Builder) {
			separate(preNorms(b, meta.BlockSpec{}), false, nil)
			m := experts(b, s, bias)
			if more != nil {
				more(m)
			}
		}
	}
	return []blockCase{
		{"experts by softmax", with(meta.MoESpec{Count: 5, TopK: 2, Renormalise: true, Act: meta.ActSiLU}, false, nil), []int{10, 3}},
		{"experts with one shared", with(meta.MoESpec{Count: 4, TopK: 3, Act: meta.ActSiLU, Shared: "shared"}, false, func(m *meta.Builder) {
			gated(m, "shared")
		}), nil},
		{"experts with a gated shared one", with(meta.MoESpec{Count: 4, TopK: 1, Act: meta.ActSiLU, Shared: "shared", SharedGate: "gate"}, false, func(m *meta.Builder) {
			gated(m, "shared")
			m.Linear("gate", testWidth, 1, false)
		}), nil},
		{"experts in groups by sigmoid", with(meta.MoESpec{
			Count: 8, TopK: 3, Score: meta.ScoreSigmoid, Renormalise: true, Scale: 2.5, Correction: "bias", Groups: 4, TopGroups: 2, GroupsByTwo: true, Act: meta.ActSiLU,
		}, false, nil), nil},
		{"transposed interleaved experts with biases", with(meta.MoESpec{
			Count: 4, TopK: 2, Score: meta.ScoreTopKSoftmax, Transposed: true, GateOrder: meta.GateInterleaved, Act: meta.ActClampedSwiGLU, Limit: 1.5,
		}, true, nil), nil},
		{"experts with a clamped gate of another alpha", with(meta.MoESpec{Count: 4, TopK: 2, Act: meta.ActClampedSwiGLU, Limit: 0.7, Alpha: 0.4}, false, nil), nil},
	}
}

// TestRulesAgainstReference runs each block on rows that belong to one sequence.
func TestRulesAgainstReference(t *testing.T) {
	const n = 13
	x := tensor.Floats(noise("input", n*testWidth, 1, 0), n, testWidth)
	eachBlock(t, func(t *testing.T, test blockCase, root *meta.Module) {
		w := newRandom(root)
		got := runChunks(t, root, w, x, n)
		nearReference(t, "", root, w, x, got, 2e-5)
		for _, chunk := range []int{1, 4} {
			sameBits(t, fmt.Sprintf("chunks of %d", chunk), runChunks(t, root, w, x, chunk), got)
		}
		sameBits(t, "beside another sequence", runBeside(t, root, w, x), got)
		for _, cut := range test.cuts {
			pieces := newRandom(root)
			pieces.cut = cut
			sameBits(t, fmt.Sprintf("weights in pieces of %d rows", cut), runChunks(t, root, pieces, x, n), got)
		}
	})
}

// runChunks runs the rows of x as one sequence, chunk at a time, in a context that has
// just enough memory.
func runChunks(t *testing.T, root *meta.Module, w Weights, x tensor.Tensor, chunk int) []float32 {
	t.Helper()
	m := newMachine(t, root, w, Limits{Rows: chunk}, 4)
	seq := m.cache.NewSequence(0)
	var out []float32
	for n := 0; n < x.Rows(); n += chunk {
		rows := min(chunk, x.Rows()-n)
		if err := seq.Reserve(rows, rows); err != nil {
			t.Fatal(err)
		}
		seq.Append(make([]int32, rows)...)
		m.run(t, &Input{
			Hidden: x.Slice(n, n+rows), KV: m.cache.Layers(),
			Groups: groups(m.cache, []*kvcache.Sequence{seq}, []backend.Span{{Rows: rows, Start: n}}),
		})
		seq.Commit()
		h := m.context.Hidden()
		for i := range rows {
			out = append(out, h.Row(i)...)
		}
	}
	return out
}

// runBeside runs the rows of x behind those of another sequence.
func runBeside(t *testing.T, root *meta.Module, w Weights, x tensor.Tensor) []float32 {
	t.Helper()
	const other = 5
	n := x.Rows()
	m := newMachine(t, root, w, Limits{Rows: n + other}, 4)
	first, second := m.cache.NewSequence(0), m.cache.NewSequence(0)
	if first.Reserve(other, other) != nil || second.Reserve(n, n) != nil {
		t.Fatal("no pages")
	}
	all := slices.Concat(noise("other", other*testWidth, 1, 0), x.F32()[:n*testWidth])
	m.run(t, &Input{
		Hidden: tensor.Floats(all, n+other, testWidth), KV: m.cache.Layers(),
		Groups: groups(m.cache, []*kvcache.Sequence{first, second}, []backend.Span{{Rows: other}, {First: other, Rows: n}}),
	})
	return slices.Clone(m.context.Hidden().Slice(other, n+other).F32()[:n*testWidth])
}
