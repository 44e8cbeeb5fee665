package backendtest

import (
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// SameExact runs every operation that does not round activations on both backends and compares the
// results bit by bit. `--precision high` guarantees equal bits on any two devices. SameExact uses
// the formats that both backends support.
func SameExact(t *testing.T, a, b backend.Backend) {
	t.Helper()
	x, y := newEnv(t, a), newEnv(t, b)
	both := func(c *coded) bool { return x.supports(c) && y.supports(c) }
	p, q := exactProgram(x, both), exactProgram(y, both)
	for name, want := range p {
		sameBits(t, name, q[name], want)
	}
	if len(p) == 0 || len(p) != len(q) {
		t.Errorf("%d results and %d", len(p), len(q))
	}
}

func exactProgram(e *env, supports func(*coded) bool) map[string][]float32 {
	e.Helper()
	out := map[string][]float32{}
	exactProducts(e, out, supports)
	exactPointwise(e, out)
	exactAttention(e, out)
	exactRecurrent(e, out)
	return out
}

func exactProducts(e *env, out map[string][]float32, supports func(*coded) bool) {
	const tokens = 19
	multiply := func(what string, m backend.Matrix) {
		for _, transposed := range []bool{false, true} {
			m.Transposed = transposed
			for _, n := range []int{1, 3, tokens} {
				x, bias := e.floats(e.values(n*m.InCols()), n, m.InCols()), e.place(meta.BFloat16, e.values(m.OutRows()), 0, m.OutRows())
				out[name(what, transposed, n)] = e.linear(x, m, bias)
			}
		}
	}
	for _, d := range dtypes {
		for _, s := range linearShapes {
			multiply(name("linear", d, s.rows, s.cols), backend.Matrix{Tensor: e.place(d, e.values(s.rows*s.cols), 0, s.rows, s.cols)})
		}
	}
	for _, c := range e.allCoded() {
		if supports(&c) {
			multiply(name("linear", c.name), e.matrix(&c, 2))
			if f := c.spec.Format; c.height == 0 && (f == meta.QuantQ8 || f == meta.QuantQ4) {
				converted := e.matrix(&c, 2)
				converted.Quant.Ascending = true
				multiply(name("linear", c.name, "converted"), converted)
				multiply(name("rows", c.name, "converted"), converted.CutRows(c.rows/2, c.rows).CutColumns(32, c.cols))
			}
			rows := e.empty(2, c.cols)
			e.Embed(rows, e.matrix(&c, 0), []int32{int32(c.rows - 1), 0}, 1.5)
			out[name("embed", c.name)] = e.read(rows)
		}
	}
}

func exactPointwise(e *env, out map[string][]float32) {
	const rows, cols = 7, 84
	spread := e.values(rows * cols) // from tiny to beyond the range of exp
	for i := range spread {
		spread[i] *= []float32{1, 1e-4, 30, 200}[i%4]
	}
	spread[3], spread[4] = 0, float32(math.Copysign(0, -1))
	x, up := e.floats(spread, rows, cols), e.floats(e.values(rows*cols), rows, cols)
	for act := meta.ActNone; act <= meta.ActReLU2; act++ {
		for _, u := range []tensor.Tensor{{}, up} {
			dst := e.empty(rows, cols)
			e.Gate(dst, x, u, act, 7)
			out[name("gate", act, u.IsZero())] = e.read(dst)
		}
	}
	for _, act := range []meta.Activation{meta.ActClamp, meta.ActSoftplus, meta.ActExp} {
		for _, u := range []tensor.Tensor{{}, up} {
			dst := e.empty(rows, cols)
			e.Gate(dst, x, u, act, 0.7)
			out[name("gate", act, u.IsZero())] = e.read(dst)
		}
	}
	exactHeads(e, out, spread[:rows*4], up)
	for _, limit := range []float32{0, 1e-6, 0.25, -0.5} {
		dst := e.empty(rows, cols)
		e.Gate(dst, x, tensor.Tensor{}, meta.ActExpRest, limit)
		out[name("curve of xIELU", limit)] = e.read(dst)
	}
	for _, layer := range []bool{false, true} {
		for _, dim := range []int{cols, 21} {
			dst := e.empty(rows, cols)
			e.Norm(dst, up, e.place(meta.BFloat16, e.values(cols), 0, cols), e.floats(e.values(dim), dim), meta.NormSpec{Dim: dim, Eps: 1e-5, Layer: layer, Offset: 1})
			out[name("norm", layer, dim)] = e.read(dst)
		}
	}
	e.Scale(x, 0.7, 0)
	out["scale"] = e.read(x)
	e.Scale(x, 0.7, 3)
	out["softcap"] = e.read(x)
	e.Add(x, up, -0.3)
	e.ScatterAdd(x, up.Slice(0, 3), []int32{4, 4, 1}, []float32{1, 2.5, 3})
	out["sums"] = e.read(x)
	for _, interleaved := range []bool{false, true} {
		angles, r := e.floats(e.values(rows*8), rows, 8), e.floats(e.values(rows*cols), rows, cols)
		e.Rope(r, 21, angles, e.floats(e.values(rows*8), rows, 8), interleaved)
		out[name("rope", interleaved)] = e.read(r)
	}
	experts, weights := make([]int32, 3*rows), make([]float32, 3*rows)
	e.Route(experts, weights, up, e.floats(e.values(cols), cols), &meta.MoESpec{TopK: 3, Score: meta.ScoreSigmoid, Renormalise: true})
	e.sync()
	for i, v := range experts {
		out["route"] = append(out["route"], float32(v), weights[i])
	}
}

// exactHeads gates heads in one operation, or with products by ones if a backend has no such
// operation.
func exactHeads(e *env, out map[string][]float32, numbers []float32, up tensor.Tensor) {
	rows, cols := up.Rows(), up.Cols()
	heads := len(numbers) / rows
	for _, act := range []meta.Activation{meta.ActSigmoid, meta.ActSoftplus} {
		dst, gate := e.empty(rows, cols), e.floats(numbers, rows, heads)
		if op, ok := e.Backend.(backend.HeadGates); ok {
			op.GateHeads(dst, gate, up, act)
		} else {
			e.Gate(gate, gate, tensor.Tensor{}, act, 0)
			ones := backend.Matrix{Tensor: e.floats(slices.Repeat([]float32{1}, cols/heads), cols/heads, 1)}
			column, wide := e.floats(e.read(gate), rows*heads, 1), e.empty(rows*heads, cols/heads)
			e.Linear(wide, column, ones, tensor.Tensor{})
			e.Gate(dst, e.floats(e.read(wide), rows, cols), up, meta.ActNone, 0)
		}
		out[name("gates of heads", act)] = e.read(dst)
	}
}

func exactAttention(e *env, out map[string][]float32) {
	for i, a := range []backend.AttentionArgs{
		{Heads: 8, KVHeads: 2, Dim: 32, ValueDim: 32, Scale: 0.2},
		{Heads: 3, KVHeads: 3, Dim: 20, ValueDim: 12, Scale: 0.3, Window: 37},
		{Heads: 4, KVHeads: 1, Dim: 64, ValueDim: 48, Scale: 0.1, Softcap: 5},
		{Heads: 4, KVHeads: 2, Dim: 16, ValueDim: 16, Scale: 0.4, Chunk: 12},
		{Heads: 2, KVHeads: 2, Dim: 16, ValueDim: 16, Scale: 0.4, Window: 9, Sinks: e.floats([]float32{0.5, -2}, 2)},
		{Heads: 4, KVHeads: 2, Dim: 20, ValueDim: 16, Scale: 0.3, Slopes: []float32{0.5, 0.25, 0.125, 1e-3}},
		{Heads: 2, KVHeads: 1, Dim: 16, ValueDim: 16, Scale: 0.4, Window: 9, Softcap: 4, Slopes: []float32{0.5, 0.1}},
		{Heads: 4, KVHeads: 2, Dim: 20, ValueDim: 16, Scale: 0.3, Slopes: []float32{0.37, 0.24, 0.123, 1e-3}, RoundedSlopes: true},
	} {
		for _, d := range kvTypes {
			c := newCache(e, a, d, 16, 5, 90)
			got := append(c.run([]int{0, 0}, []int{5, 60}), c.run([]int{4, 89}, []int{5, 90})...)
			for _, rows := range got {
				out[name("attention", i, d)] = append(out[name("attention", i, d)], rows...)
			}
		}
	}
}
