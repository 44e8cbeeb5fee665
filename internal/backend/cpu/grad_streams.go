package cpu

import (
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// streamGrad is one backward operation of hyper-connections. A unit is a row. Gradients whose V
// is nil are not computed.
type streamGrad struct {
	streams
	dx, dbranch, dweights mat.Floats
	dy                    mat.Floats
	dmap                  []float32 // of what scale and base make of the maps, by row
}

// CollapseStreamsGrad implements [backend.StreamGradients].
func (b *Backend) CollapseStreamsGrad(dx, dweights, dy, x, weights tensor.Tensor, a backend.StreamArgs) {
	op := &streamGrad{streams: streams{set: b.set, a: a, width: weights.Cols(), hide: dy.Cols()}}
	all := a.Count * op.hide
	b.reverseStreams(op, op.collapse, dy.Rows(), all, true, wanted{&op.dx, "gradient of streams", dx, all}, wanted{&op.dweights, "gradient of weights", dweights, op.width},
		wanted{&op.dy, "result", dy, op.hide}, wanted{&op.x, "streams", x, all}, wanted{&op.weights, "weights", weights, op.width})
}

// ExpandStreamsGrad implements [backend.StreamGradients].
func (b *Backend) ExpandStreamsGrad(dx, dbranch, dweights, dy, x, y, weights tensor.Tensor, a backend.StreamArgs) {
	op := &streamGrad{streams: streams{set: b.set, a: a, width: weights.Cols(), hide: y.Cols()}}
	all := a.Count * op.hide
	b.reverseStreams(op, op.expand, dy.Rows(), all*a.Count, false, wanted{&op.dx, "gradient of streams", dx, all}, wanted{&op.dbranch, "gradient of the branch", dbranch, op.hide},
		wanted{&op.dweights, "gradient of weights", dweights, op.width}, wanted{&op.dy, "result", dy, all}, wanted{&op.x, "streams", x, all},
		wanted{&op.y, "branch", y, op.hide}, wanted{&op.weights, "weights", weights, op.width})
}

// reverseStreams checks the operands of op and runs it for each row. alone allows weights that
// consist of pre only.
func (b *Backend) reverseStreams(op *streamGrad, step func(w *worker, r int), rows, work int, alone bool, operands ...wanted) {
	if b.failed.Load() || !op.check(b, alone) || !b.allOptional("gradient of streams", rows, operands...) {
		return
	}
	b.each(rows, work, step)
}

// collapse computes the backward pass of CollapseStreams for a row.
func (op *streamGrad) collapse(_ *worker, r int) {
	n, hide := op.a.Count, op.hide
	dy, x, weights := row(op.dy, r, hide), row(op.x, r, n*hide), row(op.weights, r, op.width)
	for j := range n {
		if op.dx.V != nil {
			op.set.Vector.AddScaled(row(op.dx, r, n*hide)[j*hide:][:hide], dy, weights[j])
		}
		if op.dweights.V != nil {
			row(op.dweights, r, op.width)[j] += float32(dot(dy, x[j*hide:][:hide]))
		}
	}
}

// expand computes the backward pass of ExpandStreams for a row.
func (op *streamGrad) expand(_ *worker, r int) {
	n, hide := op.a.Count, op.hide
	x, y, weights := row(op.x, r, n*hide), row(op.y, r, hide), row(op.weights, r, op.width)
	for k := range n {
		dy := row(op.dy, r, n*hide)[k*hide:][:hide]
		if op.dbranch.V != nil {
			op.set.Vector.AddScaled(row(op.dbranch, r, hide), dy, weights[n+k])
		}
		if op.dweights.V != nil {
			row(op.dweights, r, op.width)[n+k] += float32(dot(dy, y))
		}
		for j := range n {
			by, at := float32(1), 2*n+j*n+k
			switch {
			case !op.a.Independent:
				by = weights[at]
			case j != k:
				continue
			}
			if op.dx.V != nil {
				op.set.Vector.AddScaled(row(op.dx, r, n*hide)[j*hide:][:hide], dy, by)
			}
			if op.dweights.V != nil && !op.a.Independent {
				row(op.dweights, r, op.width)[at] += float32(dot(dy, x[j*hide:][:hide]))
			}
		}
	}
}

// StreamWeightsGrad recomputes the weights.
func (b *Backend) StreamWeightsGrad(draw, dbase, dscale, dy, raw, base, scale tensor.Tensor, a backend.StreamArgs) {
	if b.failed.Load() {
		return
	}
	const name = "gradient of streams"
	rows, width := dy.Rows(), dy.Cols()
	op := &streamGrad{streams: streams{set: b.set, a: a, width: width}}
	scales := op.scales()
	var ok, ok2 bool
	op.base, ok = b.vector(name, "base", base, slotBias, width)
	op.scale, ok2 = b.vector(name, "scale", scale, slotWeight, scales)
	toBase, _, ok3 := b.gradient(name, "gradient of the base", dbase, width)
	toScale, _, ok4 := b.gradient(name, "gradient of the scale", dscale, scales)
	if !ok || !ok2 || !ok3 || !ok4 || !b.reserve(op.kept()) {
		return
	}
	op.dmap = make([]float32, rows*width)
	b.reverseStreams(op, op.weighBack, rows, 64*width*max(1, a.Iterations), width == a.Count, wanted{&op.dx, "gradient of maps", draw, width},
		wanted{&op.dy, "result", dy, width}, wanted{&op.x, "maps", raw, width})
	if b.failed.Load() {
		return
	}
	sums := make([]float64, scales)
	for r := range rows {
		for i, g := range op.dmap[r*width:][:width] {
			sums[op.kind(i)] += float64(g) * float64(row(op.x, r, width)[i])
			if toBase != nil {
				toBase[i] += g
			}
		}
	}
	for i := range toScale {
		toScale[i] += float32(sums[i])
	}
}

// kept returns the length of the memory that weighBack needs for a row.
func (op *streamGrad) kept() int {
	n := op.a.Count
	return op.width + n*n + (2*max(op.a.Iterations, 1)-1)*(n*n+n)
}

// weighBack computes the backward pass of StreamWeights for a row.
func (op *streamGrad) weighBack(w *worker, r int) {
	n := op.a.Count
	raw, dy, dmap, memory := row(op.x, r, op.width), row(op.dy, r, op.width), op.dmap[r*op.width:][:op.width], w.scratch.v[op.width:]
	x := w.scratch.v[:op.width]
	for i, v := range raw {
		x[i] = float32(v*op.scale[op.kind(i)]) + op.base[i]
	}
	for i := range min(op.width, 2*n) {
		times := float32(1)
		if i >= n {
			if times = 2; op.a.Independent {
				times = op.a.Magnitude
			}
		}
		share := 1 / (1 + math.Exp(-float64(x[i])))
		dmap[i] = dy[i] * times * float32(share*(1-share))
	}
	if op.width > 2*n {
		copy(dmap[2*n:], dy[2*n:])
		op.combBack(dmap[2*n:], x[2*n:], memory)
	}
	if op.dx.V != nil {
		for i, g := range dmap {
			row(op.dx, r, op.width)[i] += g * op.scale[op.kind(i)]
		}
	}
}

// combBack turns the gradient d of comb into that of the maps x, from which it recomputes comb in
// memory.
func (op *streamGrad) combBack(d, x, memory []float32) {
	n := op.a.Count
	shares := memory[:n*n]
	copy(shares, x)
	for j := range n {
		softmax(shares[j*n:][:n])
	}
	type division struct {
		result, sums []float32
		step, each   int
	}
	var done []division
	memory = memory[n*n:]
	divide := func(step, each int) {
		last, next := memory[:n*n], division{memory[:n*n], memory[n*n:][:n], step, each}
		if len(done) == 0 {
			for i, v := range shares {
				last[i] = v + op.a.Eps
			}
		} else {
			copy(last, done[len(done)-1].result)
		}
		for i := range next.sums {
			next.sums[i] = op.sum(last, i*step, each)
		}
		op.divide(last, step, each)
		done, memory = append(done, next), memory[n*n+n:]
	}
	divide(1, n)
	for range op.a.Iterations - 1 {
		divide(n, 1)
		divide(1, n)
	}
	for k := len(done) - 1; k >= 0; k-- {
		y := done[k]
		for i := range n {
			along := 0.0
			for j := range n {
				along += float64(d[i*y.step+j*y.each]) * float64(y.result[i*y.step+j*y.each])
			}
			for j := range n {
				at := i*y.step + j*y.each
				d[at] = (d[at] - float32(along)) / y.sums[i]
			}
		}
	}
	for j := range n {
		p, g := shares[j*n:][:n], d[j*n:][:n]
		along := float32(dot(p, g))
		for i := range g {
			g[i] = p[i] * (g[i] - along)
		}
	}
}
