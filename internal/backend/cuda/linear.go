//go:build cuda

package cuda

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

const (
	threads      = 128 // of a block
	linearTokens = 8   // of a block of linear
	mostBlocksY  = 65535
)

// Linear reads each weight once per eight tokens.
func (b *Backend) Linear(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor) {
	if b.err != nil {
		return
	}
	m, ok := b.weight("linear", w)
	if !ok {
		return
	}
	tokens := x.Rows()
	in, out := b.matrix("linear", "input", x, tokens, m.cols), b.matrix("linear", "result", dst, tokens, m.rows)
	v := b.vector("linear", "bias", bias, m.rows, m.rows)
	if m.rows == 0 {
		return
	}
	function, lanes := kernelLinear, b.options.Lanes
	if m.inCodes() {
		function = kernelLinearCodes
	}
	if m.ascending {
		lanes = 1
	}
	for t := 0; t < tokens; t += linearTokens * mostBlocksY {
		n := min(linearTokens*mostBlocksY, tokens-t)
		y, x := out.row(t), in.row(t)
		b.launch(function, ceil(m.rows, threads/lanes), ceil(n, linearTokens), threads,
			y.at, y.stride, m.at, m.format, m.stride, m.row, m.col, m.step, m.transposed, m.scales, m.scaleFormat, m.scaleStride, m.blockRows, m.blockCols, x.at, x.stride,
			v.at, v.step, v.format, uint64(m.rows), uint64(n), uint64(m.cols), uint64(lanes))
	}
}

// Embed widens rows of a table to float32.
func (b *Backend) Embed(dst tensor.Tensor, table backend.Matrix, ids []int32, scale float32) {
	if b.err != nil {
		return
	}
	m, ok := b.weight("embed", table)
	if !ok {
		return
	}
	if table.Transposed {
		b.fail("embed: the table is transposed")
	}
	out := b.matrix("embed", "result", dst, len(ids), m.cols)
	b.inside("embed", ids, m.rows)
	b.eachRows(ids, func(first int, part []int32) {
		y := out.row(first)
		b.launch(kernelEmbed, ceil(m.cols, threads), len(part), threads, y.at, y.stride,
			m.at, m.format, m.stride, m.row, m.col, m.step, 0, m.scales, m.scaleFormat, m.scaleStride, m.blockRows, m.blockCols, send(b, part), word(scale), uint64(m.cols))
	})
}

// eachRows calls f for chunks of indices, each small enough for one launch.
func (b *Backend) eachRows(indices []int32, f func(first int, part []int32)) {
	for first := 0; first < len(indices) && b.err == nil; first += mostBlocksY {
		part := indices[first:min(first+mostBlocksY, len(indices))]
		b.room(len(part))
		f(first, part)
	}
}

// Gather copies rows of x to dst.
func (b *Backend) Gather(dst, x tensor.Tensor, rows []int32) {
	if b.err != nil {
		return
	}
	out, in := b.matrix("gather", "result", dst, len(rows), x.Cols()), b.matrix("gather", "operand", x, x.Rows(), x.Cols())
	b.inside("gather", rows, x.Rows())
	b.eachRows(rows, func(first int, part []int32) {
		y := out.row(first)
		b.launch(kernelGather, ceil(x.Cols(), threads), len(part), threads, y.at, y.stride, in.at, in.stride, send(b, part), uint64(x.Cols()))
	})
}

// ScatterAdd starts a thread for each column, which adds the rows in order.
func (b *Backend) ScatterAdd(dst, x tensor.Tensor, rows []int32, weights []float32) {
	if b.err != nil {
		return
	}
	cols := dst.Cols()
	out, in := b.matrix("scatter", "result", dst, dst.Rows(), cols), b.matrix("scatter", "operand", x, len(rows), cols)
	b.inside("scatter", rows, dst.Rows())
	if len(weights) != len(rows) {
		b.fail("scatter: %d weights for %d rows", len(weights), len(rows))
	}
	b.eachRows(rows, func(first int, part []int32) {
		b.room(len(part), len(part))
		from := in.row(first)
		b.launch(kernelScatter, ceil(cols, threads), 1, threads, out.at, out.stride, from.at, from.stride,
			send(b, part), send(b, weights[first:first+len(part)]), uint64(len(part)), uint64(cols))
	})
}
