package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

var _ backend.Streams = (*Backend)(nil)

// streams is one operation of hyper-connections. A unit is a row.
type streams struct {
	set         *kernels.Set
	step        streamStep
	x, y        mat.Floats // all streams, and the operand or the result of a branch
	weights     mat.Floats
	base, scale []float32
	a           backend.StreamArgs
	width, hide int // columns of weights, and channels of a stream
}

// streamStep selects what a unit of streams does.
type streamStep int

const (
	streamWeights streamStep = iota
	streamCollapse
	streamExpand
)

// StreamWeights implements [backend.Streams].
func (b *Backend) StreamWeights(weights, base, scale tensor.Tensor, a backend.StreamArgs) {
	if b.failed.Load() {
		return
	}
	rows, width := weights.Rows(), weights.Cols()
	op := streams{set: b.set, step: streamWeights, a: a, width: width}
	scales := op.scales()
	var ok, ok2, ok3 bool
	op.weights, ok = b.floats("streams", "weights", weights, rows, width)
	op.base, ok2 = b.vector("streams", "base", base, slotBias, width)
	op.scale, ok3 = b.vector("streams", "scale", scale, slotWeight, scales)
	if !ok || !ok2 || !ok3 || !op.check(b, width == a.Count) {
		return
	}
	b.streams = op
	b.run(&b.streams, rows, 32*rows*width*max(1, a.Iterations/4))
}

// scales returns the number of scales: one each for pre, post and comb.
func (op *streams) scales() int {
	switch {
	case op.width == op.a.Count:
		return 1
	case op.a.Independent:
		return 2
	}
	return 3
}

// kind returns 0, 1 or 2 for a column of pre, post or comb.
func (op *streams) kind(column int) int { return min(column/op.a.Count, 2) }

// check checks the number of streams and the columns of the weights. alone allows weights that
// consist of pre only.
func (op *streams) check(b *Backend, alone bool) bool {
	n := op.a.Count
	all := (2 + n) * n
	if op.a.Independent {
		all = 2 * n
	}
	if n < 1 || op.width != all && !(alone && op.width == n) {
		b.fail("streams: %d columns of weights for %d streams", op.width, n)
		return false
	}
	return true
}

// CollapseStreams implements [backend.Streams].
func (b *Backend) CollapseStreams(dst, x, weights tensor.Tensor, a backend.StreamArgs) {
	b.mixStreams(streamCollapse, x, dst, weights, a)
}

// ExpandStreams implements [backend.Streams].
func (b *Backend) ExpandStreams(x, y, weights tensor.Tensor, a backend.StreamArgs) {
	b.mixStreams(streamExpand, x, y, weights, a)
}

func (b *Backend) mixStreams(step streamStep, x, y, weights tensor.Tensor, a backend.StreamArgs) {
	if b.failed.Load() {
		return
	}
	rows := x.Rows()
	op := streams{set: b.set, step: step, a: a, width: weights.Cols(), hide: y.Cols()}
	if !op.check(b, step == streamCollapse) {
		return
	}
	var ok, ok2, ok3 bool
	op.x, ok = b.floats("streams", "streams", x, rows, a.Count*op.hide)
	op.y, ok2 = b.floats("streams", "branch", y, rows, op.hide)
	op.weights, ok3 = b.floats("streams", "weights", weights, rows, op.width)
	if !ok || !ok2 || !ok3 || !b.reserve(a.Count*op.hide) {
		return
	}
	b.streams = op
	b.run(&b.streams, rows, rows*a.Count*a.Count*op.hide)
}

func (op *streams) run(w *worker, r int) {
	weights, n := row(op.weights, r, op.width), op.a.Count
	switch op.step {
	case streamWeights:
		op.weigh(weights)
	case streamCollapse:
		x, y := row(op.x, r, n*op.hide), row(op.y, r, op.hide)
		clear(y)
		for j := range n {
			op.add(y, x[j*op.hide:], weights[j])
		}
	case streamExpand:
		x, y, old := row(op.x, r, n*op.hide), row(op.y, r, op.hide), w.scratch.v[:n*op.hide]
		copy(old, x)
		clear(x)
		for k := range n {
			to := x[k*op.hide:][:op.hide]
			op.add(to, y, weights[n+k])
			if op.a.Independent {
				op.add(to, old[k*op.hide:], 1)
				continue
			}
			for j := range n {
				op.add(to, old[j*op.hide:], weights[2*n+j*n+k])
			}
		}
	}
}

// add computes dst += by·x.
func (op *streams) add(dst, x []float32, by float32) {
	for i, v := range x[:len(dst)] {
		dst[i] += float32(by * v)
	}
}

// weigh turns one row of the linear map into weights.
func (op *streams) weigh(x []float32) {
	n := op.a.Count
	for i := range min(len(x), 2*n) {
		scale, times, plus := op.scale[0], float32(1), op.a.Eps
		if i >= n {
			scale, times, plus = op.scale[1], 2, 0
			if op.a.Independent {
				times, plus = op.a.Magnitude, op.a.Eps
			}
		}
		v := float32(x[i]*scale) + op.base[i]
		x[i] = times*float32(1/(1+math.Exp(-float64(v)))) + plus
	}
	if len(x) == n || op.a.Independent {
		return
	}
	comb, base := x[2*n:], op.base[2*n:]
	for i, v := range comb {
		comb[i] = float32(v*op.scale[2]) + base[i]
	}
	for j := range n {
		softmax(comb[j*n:][:n])
	}
	for i := range comb {
		comb[i] += op.a.Eps
	}
	op.divide(comb, 1, n)
	for range op.a.Iterations - 1 {
		op.divide(comb, n, 1)
		op.divide(comb, 1, n)
	}
}

// divide divides the series of a square matrix by their sums. Series begin step apart, and their
// elements are each apart.
func (op *streams) divide(x []float32, step, each int) {
	n := op.a.Count
	for i := range n {
		sum := op.sum(x, i*step, each)
		for j := range n {
			x[i*step+j*each] /= sum
		}
	}
}

// sum returns the number that divide divides a series by.
func (op *streams) sum(x []float32, begin, each int) float32 {
	var sum float32
	for j := range op.a.Count {
		sum += x[begin+j*each]
	}
	return sum + op.a.Eps
}
