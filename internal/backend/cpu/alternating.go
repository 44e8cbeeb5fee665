package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Alternating = (*Backend)(nil)

// alternating is one operation on alternating updates. A unit is a row.
type alternating struct {
	step    alternatingStep
	x, y    mat.Floats // all streams or the operand to change, and the operand to compare with
	weights mat.Floats
	count   int // number of streams
	width   int // width of a stream
	wide    int // columns of weights
	active  int
	by      float32
}

// leastSquare is the smallest mean square by whose root Magnify divides.
const leastSquare = 1e-5

// alternatingStep selects what a unit of alternating does.
type alternatingStep int

const (
	alternatingPredict alternatingStep = iota
	alternatingCorrect
	alternatingMagnify
	alternatingCutOff
)

// PredictStreams implements [backend.Alternating].
func (b *Backend) PredictStreams(streams, weights tensor.Tensor) {
	n := int(math.Sqrt(float64(weights.Cols())))
	op := alternating{step: alternatingPredict, count: n}
	if n*n != weights.Cols() || n < 1 || streams.Cols()%n != 0 {
		b.fail("alternating updates: %d columns of weights for streams in %d columns", weights.Cols(), streams.Cols())
		return
	}
	op.width = streams.Cols() / n
	b.alternate(op, streams, tensor.Tensor{}, weights)
}

// CorrectStreams implements [backend.Alternating].
func (b *Backend) CorrectStreams(streams, y, weights tensor.Tensor, active int) {
	op := alternating{step: alternatingCorrect, count: weights.Cols(), width: y.Cols(), active: active}
	if op.count < 1 || streams.Cols() != op.count*op.width || active < 0 || active >= op.count {
		b.fail("alternating updates: stream %d of %d of width %d in %d columns", active, op.count, op.width, streams.Cols())
		return
	}
	b.alternate(op, streams, y, weights)
}

// Magnify implements [backend.Alternating].
func (b *Backend) Magnify(x, as tensor.Tensor) {
	b.alternate(alternating{step: alternatingMagnify, count: 1, width: x.Cols()}, x, as, tensor.Tensor{})
}

// CutOff implements [backend.Alternating].
func (b *Backend) CutOff(x tensor.Tensor, by float32) {
	b.alternate(alternating{step: alternatingCutOff, count: 1, width: x.Cols(), by: by}, x, tensor.Tensor{}, tensor.Tensor{})
}

// alternate checks the operands of an operation and runs it. y and weights may be absent.
func (b *Backend) alternate(op alternating, x, y, weights tensor.Tensor) {
	if b.failed.Load() {
		return
	}
	const name = "alternating updates"
	rows := x.Rows()
	var ok bool
	if op.x, ok = b.floats(name, "streams", x, rows, op.count*op.width); !ok {
		return
	}
	if !y.IsZero() {
		if op.y, ok = b.floats(name, "operand", y, rows, op.width); !ok {
			return
		}
	}
	if !weights.IsZero() {
		op.wide = weights.Cols()
		if op.weights, ok = b.floats(name, "weights", weights, rows, op.wide); !ok {
			return
		}
	}
	if !b.reserve(op.count * op.width) {
		return
	}
	b.alternating = op
	b.run(&b.alternating, rows, rows*op.count*op.count*op.width)
}

func (op *alternating) run(w *worker, r int) {
	x := row(op.x, r, op.count*op.width)
	switch op.step {
	case alternatingPredict:
		op.predict(x, row(op.weights, r, op.wide), w.scratch.v[:len(x)])
	case alternatingCorrect:
		weights, innovation := row(op.weights, r, op.wide), w.scratch.v[:op.width]
		for i, v := range row(op.y, r, op.width) {
			innovation[i] = v - x[op.active*op.width+i]
		}
		for k := range op.count {
			to, by := x[k*op.width:][:op.width], weights[k]+1
			for i, v := range innovation {
				to[i] += float32(v * by)
			}
		}
	case alternatingMagnify:
		want := float32(math.Sqrt(meanSquare(row(op.y, r, op.width))))
		got := float32(math.Sqrt(max(meanSquare(x), leastSquare)))
		for i, v := range x {
			x[i] = float32(v*want) / got
		}
	case alternatingCutOff:
		cut := op.cut(x)
		for i, v := range x {
			x[i] = max(0, v-cut)
		}
	}
}

// predict adds to each stream its weighted sum of all streams.
func (op *alternating) predict(x, weights, sums []float32) {
	clear(sums)
	for k := range op.count {
		to := sums[k*op.width:][:op.width]
		for j := range op.count {
			by := weights[k*op.count+j]
			for i, v := range x[j*op.width:][:op.width] {
				to[i] += float32(by * v)
			}
		}
	}
	for i, v := range sums {
		x[i] += v
	}
}

// cut returns the threshold that lies op.by standard deviations above the mean of x.
func (op *alternating) cut(x []float32) float32 {
	mean, deviation := moments(x)
	return edge(mean, deviation, op.by)
}

// edge returns the threshold that lies by standard deviations above the mean.
func edge(mean, deviation float64, by float32) float32 {
	return float32(mean) + float32(float32(deviation)*by)
}

// moments returns the mean and the standard deviation of x.
func moments(x []float32) (mean, deviation float64) {
	sum, squares := 0.0, 0.0
	for _, v := range x {
		sum += float64(v)
	}
	mean = sum / float64(len(x))
	for _, v := range x {
		squares += (float64(v) - mean) * (float64(v) - mean)
	}
	return mean, math.Sqrt(squares / float64(len(x)))
}

// meanSquare returns the mean of the squares of x.
func meanSquare(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum / float64(len(x))
}
