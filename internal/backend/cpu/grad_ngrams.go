package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// gateStreamsGrad is one call of GateStreamsGrad. A unit is a row. Gradients whose V is nil are not computed.
type gateStreamsGrad struct {
	gateStreams
	dvalue, dkeys, dqueries, dy mat.Floats
}

// GateStreamsGrad implements [backend.NGramGradients].
func (b *Backend) GateStreamsGrad(dvalue, dkeys, dqueries, dy, value, keys, queries tensor.Tensor) {
	if b.failed.Load() {
		return
	}
	rows, all, width := dy.Rows(), dy.Cols(), value.Cols()
	if width < 1 || all%width != 0 {
		b.fail("gradient of gates of streams: %d channels of streams of %d", all, width)
		return
	}
	op := &gateStreamsGrad{gateStreams: gateStreams{set: b.set, width: width, count: all / width}}
	if !b.allOptional("gradient of gates of streams", rows, wanted{&op.dvalue, "gradient of the value", dvalue, width}, wanted{&op.dkeys, "gradient of keys", dkeys, all},
		wanted{&op.dqueries, "gradient of queries", dqueries, all}, wanted{&op.dy, "result", dy, all}, wanted{&op.value, "value", value, width},
		wanted{&op.keys, "keys", keys, all}, wanted{&op.queries, "queries", queries, all}) {
		return
	}
	b.each(rows, 6*all, op.back)
}

func (op *gateStreamsGrad) back(_ *worker, r int) {
	all, root := op.count*op.width, math.Sqrt(float64(op.width))
	dy, value, keys, queries := row(op.dy, r, all), row(op.value, r, op.width), row(op.keys, r, all), row(op.queries, r, all)
	for from := 0; from < all; from += op.width {
		k, q, g := keys[from:][:op.width], queries[from:][:op.width], dy[from:][:op.width]
		d := op.set.Vector.Dot64(k, q) / root
		gate := gateOf(d)
		if op.dvalue.V != nil {
			op.set.Vector.AddScaled(row(op.dvalue, r, op.width), g, float32(gate))
		}
		if math.Abs(d) < leastGate {
			continue
		}
		slope := float32(dot(g, value) * gate * (1 - gate) / (2 * math.Sqrt(math.Abs(d)) * root))
		if op.dkeys.V != nil {
			op.set.Vector.AddScaled(row(op.dkeys, r, all)[from:][:op.width], q, slope)
		}
		if op.dqueries.V != nil {
			op.set.Vector.AddScaled(row(op.dqueries, r, all)[from:][:op.width], k, slope)
		}
	}
}
