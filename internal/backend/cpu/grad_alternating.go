package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
)

// alternatingGrad is one backward operation of alternating updates. Gradients whose V is nil are
// not computed.
type alternatingGrad struct {
	set                    *vector.Kernels
	dx, dother, dweights   mat.Floats
	dy, x, other, weights  mat.Floats
	count, width, activeAt int // streams, columns of a stream, and the first column of the active one
	by                     float32
}

// PredictStreamsGrad implements [backend.AlternatingGradients].
func (b *Backend) PredictStreamsGrad(dstreams, dweights, dy, streams, weights tensor.Tensor) {
	n := int(math.Sqrt(float64(weights.Cols())))
	if n*n != weights.Cols() || n < 1 || dy.Cols()%n != 0 {
		b.fail("gradient of alternating updates: %d columns of weights for streams in %d columns", weights.Cols(), dy.Cols())
		return
	}
	op := &alternatingGrad{count: n, width: dy.Cols() / n}
	cols := dy.Cols()
	b.reverseAlternating(op, op.predict, dy.Rows(), cols, wanted{&op.dx, "gradient of streams", dstreams, cols}, wanted{&op.dweights, "gradient of weights", dweights, n * n},
		wanted{&op.dy, "result", dy, cols}, wanted{&op.x, "streams", streams, cols}, wanted{&op.weights, "weights", weights, n * n})
}

// CorrectStreamsGrad implements [backend.AlternatingGradients].
func (b *Backend) CorrectStreamsGrad(dstreams, dother, dweights, dy, stream, y, weights tensor.Tensor, active int) {
	n, width := weights.Cols(), y.Cols()
	if n < 1 || dy.Cols() != n*width || active < 0 || active >= n {
		b.fail("gradient of alternating updates: stream %d of %d of width %d in %d columns", active, n, width, dy.Cols())
		return
	}
	op := &alternatingGrad{count: n, width: width, activeAt: active * width}
	b.reverseAlternating(op, op.correct, dy.Rows(), dy.Cols(), wanted{&op.dx, "gradient of streams", dstreams, n * width}, wanted{&op.dother, "gradient of the operand", dother, width},
		wanted{&op.dweights, "gradient of weights", dweights, n}, wanted{&op.dy, "result", dy, n * width}, wanted{&op.x, "stream", stream, width},
		wanted{&op.other, "operand", y, width}, wanted{&op.weights, "weights", weights, n})
}

// MagnifyGrad implements [backend.AlternatingGradients].
func (b *Backend) MagnifyGrad(dx, das, dy, x, as tensor.Tensor) {
	cols := dy.Cols()
	op := &alternatingGrad{count: 1, width: cols}
	b.reverseAlternating(op, op.magnify, dy.Rows(), cols, wanted{&op.dx, "gradient of the operand", dx, cols}, wanted{&op.dother, "gradient of the model", das, cols},
		wanted{&op.dy, "result", dy, cols}, wanted{&op.x, "operand", x, cols}, wanted{&op.other, "model", as, cols})
}

// CutOffGrad implements [backend.AlternatingGradients].
func (b *Backend) CutOffGrad(dx, dy, x tensor.Tensor, by float32) {
	cols := dy.Cols()
	op := &alternatingGrad{count: 1, width: cols, by: by}
	b.reverseAlternating(op, op.cutOff, dy.Rows(), cols, wanted{&op.dx, "gradient of the operand", dx, cols}, wanted{&op.dy, "result", dy, cols}, wanted{&op.x, "operand", x, cols})
}

// reverseAlternating checks the operands of op and runs it for each row.
func (b *Backend) reverseAlternating(op *alternatingGrad, step func(w *worker, r int), rows, cols int, operands ...wanted) {
	if b.failed.Load() || !b.allOptional("gradient of alternating updates", rows, operands...) || !b.reserve(op.width) {
		return
	}
	op.set = &b.set.Vector
	b.each(rows, cols*op.count, step)
}

// predict computes the backward pass of PredictStreams for a row.
func (op *alternatingGrad) predict(_ *worker, r int) {
	n, width := op.count, op.width
	dy, x, weights := row(op.dy, r, n*width), row(op.x, r, n*width), row(op.weights, r, n*n)
	for i := range n {
		from := dy[i*width:][:width]
		for j := range n {
			if op.dx.V != nil {
				by := weights[i*n+j]
				if i == j {
					by++
				}
				op.set.AddScaled(row(op.dx, r, n*width)[j*width:][:width], from, by)
			}
			if op.dweights.V != nil {
				row(op.dweights, r, n*n)[i*n+j] += float32(dot(from, x[j*width:][:width]))
			}
		}
	}
}

// correct computes the backward pass of CorrectStreams for a row.
func (op *alternatingGrad) correct(w *worker, r int) {
	n, width := op.count, op.width
	dy, weights, total := row(op.dy, r, n*width), row(op.weights, r, n), w.scratch.v[:width]
	if op.dx.V != nil {
		op.set.AddScaled(row(op.dx, r, n*width), dy, 1)
	}
	clear(total)
	x, other := row(op.x, r, width), row(op.other, r, width)
	for k := range n {
		from := dy[k*width:][:width]
		op.set.AddScaled(total, from, weights[k]+1)
		if op.dweights.V != nil {
			row(op.dweights, r, n)[k] += float32(dot(from, other) - dot(from, x))
		}
	}
	if op.dother.V != nil {
		op.set.AddScaled(row(op.dother, r, width), total, 1)
	}
	if op.dx.V != nil {
		op.set.AddScaled(row(op.dx, r, n*width)[op.activeAt:][:width], total, -1)
	}
}

// magnify computes the backward pass of Magnify for a row.
func (op *alternatingGrad) magnify(_ *worker, r int) {
	dy, x, as := row(op.dy, r, op.width), row(op.x, r, op.width), row(op.other, r, op.width)
	n := float64(op.width)
	want, squares := math.Sqrt(meanSquare(as)), meanSquare(x)
	got := math.Sqrt(max(squares, leastSquare))
	along := dot(dy, x)
	if op.dx.V != nil {
		op.set.AddScaled(row(op.dx, r, op.width), dy, float32(want/got))
		if squares > leastSquare {
			op.set.AddScaled(row(op.dx, r, op.width), x, float32(-along*want/(got*got*got*n)))
		}
	}
	if op.dother.V != nil && want > 0 {
		op.set.AddScaled(row(op.dother, r, op.width), as, float32(along/(got*want*n)))
	}
}

// cutOff computes the backward pass of CutOff for a row.
func (op *alternatingGrad) cutOff(_ *worker, r int) {
	dy, x, dx := row(op.dy, r, op.width), row(op.x, r, op.width), op.dx
	if dx.V == nil {
		return
	}
	to, n := row(dx, r, op.width), float64(op.width)
	mean, deviation := moments(x)
	cut, passed := edge(mean, deviation, op.by), 0.0
	for i, v := range x {
		if v > cut {
			to[i] += dy[i]
			passed += float64(dy[i])
		}
	}
	slope := 0.0 // derivative of the threshold by x, divided by the distance to the mean
	if deviation > 0 {
		slope = float64(op.by) / deviation
	}
	for i, v := range x {
		to[i] -= float32(passed / n * (1 + slope*(float64(v)-mean)))
	}
}
