package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.NGrams = (*Backend)(nil)

// DilatedConv implements [backend.NGrams].
func (b *Backend) DilatedConv(dst, x, weight tensor.Tensor, s backend.States, step int, act meta.Activation) {
	b.convolve(dst, x, weight, tensor.Tensor{}, s, step, act)
}

// leastGate is the smallest number of which a gate takes the square root.
const leastGate = 1e-6

// gateStreams is one call of GateStreams. A unit is a row.
type gateStreams struct {
	set                       *kernels.Set
	dst, value, keys, queries mat.Floats
	width, count              int // channels of a stream, and number of streams
}

// GateStreams implements [backend.NGrams].
func (b *Backend) GateStreams(dst, value, keys, queries tensor.Tensor) {
	if b.failed.Load() {
		return
	}
	rows, all, width := dst.Rows(), dst.Cols(), value.Cols()
	if width < 1 || all%width != 0 {
		b.fail("gates of streams: %d channels of streams of %d", all, width)
		return
	}
	op := gateStreams{set: b.set, width: width, count: all / width}
	if !b.allFloats("gates of streams", rows, wanted{&op.dst, "result", dst, all}, wanted{&op.value, "value", value, width},
		wanted{&op.keys, "keys", keys, all}, wanted{&op.queries, "queries", queries, all}) {
		return
	}
	b.gateStreams = op
	b.run(&b.gateStreams, rows, 2*rows*all)
}

func (op *gateStreams) run(_ *worker, r int) {
	all := op.count * op.width
	dst, value, keys, queries := row(op.dst, r, all), row(op.value, r, op.width), row(op.keys, r, all), row(op.queries, r, all)
	for from := 0; from < all; from += op.width {
		to := from + op.width
		by := float32(gateOf(op.set.Vector.Dot64(keys[from:to], queries[from:to]) / math.Sqrt(float64(op.width))))
		for i, v := range value {
			dst[from+i] = by * v
		}
	}
}

// gateOf returns the gate for a dot product d.
func gateOf(d float64) float64 {
	g := math.Sqrt(max(math.Abs(d), leastGate))
	switch {
	case d < 0:
		g = -g
	case d == 0:
		g = 0
	}
	return 1 / (1 + math.Exp(-g))
}
