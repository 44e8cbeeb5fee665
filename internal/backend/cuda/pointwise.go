//go:build cuda

package cuda

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.HeadGates = (*Backend)(nil)

// eachBlock calls f for chunks of rows, each small enough for one launch.
func eachBlock(rows int, f func(first, n int)) {
	for first := 0; first < rows; first += mostBlocksY {
		f(first, min(mostBlocksY, rows-first))
	}
}

// Norm starts a block for each group of a row.
func (b *Backend) Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec) {
	if b.err != nil {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	if a.Dim <= 0 || cols%a.Dim != 0 {
		b.fail("norm: groups of %d in rows of %d", a.Dim, cols)
		return
	}
	in, out := b.matrix("norm", "operand", x, rows, cols), b.matrix("norm", "result", dst, rows, cols)
	w, v := b.dense("norm", "weight", weight, cols, a.Dim), b.dense("norm", "bias", bias, cols, a.Dim)
	if b.options.Fast {
		b.addNorm(out, in, w, v, rows, cols, a)
		return
	}
	b.launch(kernelNorm, rows, cols/a.Dim, 32, out.at, out.stride, in.at, in.stride,
		w.at, w.format, flag(w.n == cols), v.at, v.format, flag(v.n == cols),
		uint64(a.Dim), flag(a.Layer), math.Float64bits(float64(a.Eps)), word(a.Offset), uint64(b.options.Lanes))
}

// Rope starts a thread for each pair.
func (b *Backend) Rope(x tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool) {
	if b.err != nil {
		return
	}
	rows, cols, half := x.Rows(), x.Cols(), cos.Cols()
	if dim <= 0 || cols%dim != 0 || 2*half > dim {
		b.fail("rope: %d rotated channels of heads of %d in rows of %d", 2*half, dim, cols)
		return
	}
	in := b.matrix("rope", "operand", x, rows, cols)
	c, s := b.matrix("rope", "cosine", cos, rows, half), b.matrix("rope", "sine", sin, rows, half)
	if b.options.Fast && rows <= mostBlocksY {
		b.rotate(in, rows, cols/dim, dim, c, s, half, interleaved)
		return
	}
	n := rows * cols / dim * half
	b.launch(kernelRope, ceil(n, threads), 1, threads, in.at, in.stride, c.at, c.stride, s.at, s.stride,
		uint64(cols/dim), uint64(dim), uint64(half), flag(interleaved), uint64(n))
}

// Add starts a thread for each element.
func (b *Backend) Add(dst, x tensor.Tensor, scale float32) {
	if b.err != nil {
		return
	}
	rows, cols := dst.Rows(), dst.Cols()
	out, in := b.matrix("add", "result", dst, rows, cols), b.matrix("add", "operand", x, rows, cols)
	eachBlock(rows, func(first, n int) {
		y, x := out.row(first), in.row(first)
		b.launch(kernelAdd, ceil(cols, threads), n, threads, y.at, y.stride, x.at, x.stride, word(scale), uint64(cols))
	})
}

// Gate starts a thread for each element.
func (b *Backend) Gate(dst, gate, up tensor.Tensor, act meta.Activation, limit float32) {
	if b.err != nil {
		return
	}
	rows, cols := dst.Rows(), dst.Cols()
	out, g := b.matrix("gate", "result", dst, rows, cols), b.matrix("gate", "gate", gate, rows, cols)
	var u matrix
	if !up.IsZero() {
		u = b.matrix("gate", "up", up, rows, cols)
	}
	b.gate(out, g, u, rows, cols, 1, act, limit)
}

// GateHeads starts a thread for each element.
func (b *Backend) GateHeads(dst, gate, up tensor.Tensor, act meta.Activation) {
	if b.err != nil {
		return
	}
	rows, cols, heads := dst.Rows(), dst.Cols(), gate.Cols()
	if heads == 0 || cols%heads != 0 {
		b.fail("gate: %d heads of %d numbers", heads, cols)
		return
	}
	out, g, u := b.matrix("gate", "result", dst, rows, cols), b.matrix("gate", "gate", gate, rows, heads), b.matrix("gate", "up", up, rows, cols)
	b.gate(out, g, u, rows, cols, cols/heads, act, 0)
}

// gate queues a gate. Each element of g applies to `each` consecutive columns.
func (b *Backend) gate(out, g, u matrix, rows, cols, each int, act meta.Activation, limit float32) {
	if act > meta.ActExp || act == meta.ActClampedSiLU {
		b.fail("gate: unknown activation %d", act)
	}
	if limit <= 0 && act != meta.ActExpRest {
		limit = float32(math.Inf(1))
	}
	if b.options.Fast && b.err == nil && each == 1 && act < meta.ActExpRest && b.gateProducts(out, g, u, rows, cols, act, limit) {
		return
	}
	eachBlock(rows, func(first, n int) {
		y, g, u := out.row(first), g.row(first), u.row(first)
		b.launch(kernelGate, ceil(cols, threads), n, threads, y.at, y.stride, g.at, g.stride, u.at, u.stride, uint64(act), word(limit), uint64(each), uint64(cols))
	})
}

// Scale starts a thread for each element.
func (b *Backend) Scale(x tensor.Tensor, scale, limit float32) {
	if b.err != nil {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	in := b.matrix("scale", "operand", x, rows, cols)
	eachBlock(rows, func(first, n int) {
		x := in.row(first)
		b.launch(kernelScale, ceil(cols, threads), n, threads, x.at, x.stride, word(scale), word(max(limit, 0)), uint64(cols))
	})
}

// Route runs on the host, because the host needs the numbers of the experts when it returns.
func (b *Backend) Route(experts []int32, weights []float32, logits, correction tensor.Tensor, a *meta.MoESpec) {
	if b.err != nil {
		return
	}
	host := func(t tensor.Tensor) tensor.Tensor {
		if t.IsZero() || t.Data != nil {
			return t
		}
		h := t
		h.Address, h.Stride, h.Data = 0, 0, make([]byte, t.DType.Bytes(int64(t.Elements())))
		if t.Rank == 1 && t.Stride > 1 {
			b.fail("route: a vector with a stride")
			return h
		}
		if err := b.Copy(h, t); err != nil {
			b.fail("route: %w", err)
		}
		return h
	}
	l, c := host(logits), host(correction)
	if b.err != nil {
		return
	}
	if b.options.Host == nil {
		b.fail("route: there is no backend of the host")
		return
	}
	b.options.Host.Route(experts, weights, l, c, a)
	if err := b.options.Host.Sync(); err != nil {
		b.fail("route: %w", err)
	}
}
