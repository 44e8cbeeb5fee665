package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/vector"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// rowsPerUnit returns the number of rows per unit of pointwise operations, so that a unit has
// some thousands of elements.
func rowsPerUnit(cols int) int { return max(1, 8192/max(cols, 1)) }

type gate struct {
	set        *kernels.Set
	dst, g, up mat.Floats
	rows, cols int
	act        meta.Activation
	limit      float32
}

// Gate computes the plain sigmoid one element at a time, and other activations in vectors.
func (b *Backend) Gate(dst, g, up tensor.Tensor, act meta.Activation, limit float32) {
	if b.failed.Load() {
		return
	}
	rows, cols := dst.Rows(), dst.Cols()
	op := gate{set: b.set, rows: rows, cols: cols, act: act, limit: limit}
	var ok bool
	if op.dst, ok = b.floats("gate", "result", dst, rows, cols); !ok {
		return
	}
	if op.g, ok = b.floats("gate", "gate", g, rows, cols); !ok {
		return
	}
	if !up.IsZero() {
		if op.up, ok = b.floats("gate", "up", up, rows, cols); !ok {
			return
		}
	}
	if act > meta.ActExp {
		b.fail("gate: unknown activation %d", act)
		return
	}
	if (act == meta.ActClampedSwiGLU || act == meta.ActClampedSiLU) && !b.reserve(cols) {
		return
	}
	b.gate = op
	b.run(&b.gate, ceil(rows, rowsPerUnit(cols)), 8*rows*cols)
}

func (op *gate) run(w *worker, unit int) {
	per := rowsPerUnit(op.cols)
	for r := unit * per; r < min((unit+1)*per, op.rows); r++ {
		dst, g := row(op.dst, r, op.cols), row(op.g, r, op.cols)
		var up []float32
		if op.up.V != nil {
			up = row(op.up, r, op.cols)
		}
		op.row(dst, g, up, w.scratch.v)
	}
}

// geluScale is 2√(2/π): tanh(u) = 2σ(2u) − 1 makes the tanh form of GELU x·σ(2u).
const geluScale = 1.5957691216057307117

func (op *gate) row(dst, g, up, scratch []float32) {
	switch op.act {
	case meta.ActSiLU:
		op.set.Vector.Gate(dst, g, up, 1, 0)
		return
	case meta.ActGELUTanh:
		op.set.Vector.Gate(dst, g, up, geluScale, geluScale*0.044715)
		return
	case meta.ActClampedSwiGLU:
		op.clamped(dst, g, up, scratch[:op.cols])
		return
	case meta.ActClampedSiLU:
		op.clampedSiLU(dst, g, up, scratch[:op.cols])
		return
	}
	switch op.act {
	case meta.ActGELU:
		op.set.Vector.GELU(dst, g)
	case meta.ActReLU:
		op.set.Vector.ReLU(dst, g)
	case meta.ActReLU2:
		op.set.Vector.ReLU(dst, g)
		op.set.Vector.Times(dst, dst)
	case meta.ActTanh:
		copy(dst, g)
		op.set.Vector.Tanh(dst, 1, 1)
	case meta.ActExpRest:
		for i, v := range g {
			dst[i] = expRest(v, op.limit)
		}
	case meta.ActClamp:
		for i, v := range g {
			dst[i] = max(min(v, op.limit), -op.limit)
		}
	case meta.ActSigmoid:
		op.set.Vector.Sigmoid(dst, g)
	case meta.ActExp:
		for i, v := range g {
			dst[i] = float32(vector.AccurateExp(float64(v)))
		}
	case meta.ActSoftplus:
		for i, v := range g {
			dst[i] = float32(softplus(float64(v)))
		}
	default:
		copy(dst, g)
	}
	if up != nil {
		op.set.Vector.Times(dst, up)
	}
}

// expRest returns exp(min(x, -limit)) - 1 - x for x up to 0.
func expRest(x, limit float32) float32 {
	if x > 0 {
		return 0
	}
	return float32(vector.AccurateExpm1(min(float64(x), -float64(limit))) - float64(x))
}

// clamped computes gpt-oss's gate: (clamp(up, ±limit) + 1) · g·σ(1.702 g) with g = min(gate,
// limit). Without up it computes only the second factor.
func (op *gate) clamped(dst, g, up, buf []float32) {
	limit := op.limit
	if limit <= 0 {
		limit = float32(math.Inf(1))
	}
	op.set.Vector.AtMost(buf, g, limit)
	op.set.Vector.Gate(buf, buf, nil, 1.702, 0)
	if up == nil {
		copy(dst, buf)
		return
	}
	op.set.Vector.TimesClamped(dst, buf, up, limit)
}

// clampedSiLU computes silu(min(gate, limit)) · clamp(up, ±limit). Without up it computes only
// the first factor.
func (op *gate) clampedSiLU(dst, g, up, buf []float32) {
	limit := op.limit
	if limit <= 0 {
		limit = float32(math.Inf(1))
	}
	op.set.Vector.AtMost(buf, g, limit)
	op.set.Vector.Gate(buf, buf, nil, 1, 0)
	for i, v := range buf {
		if up != nil {
			v *= max(min(up[i], limit), -limit)
		}
		dst[i] = v
	}
}

type scale struct {
	set        *kernels.Set
	x          mat.Floats
	rows, cols int
	scale, cap float32
}

// Scale reads x once for the factor and once for the softcap.
func (b *Backend) Scale(x tensor.Tensor, by, softcap float32) {
	if b.failed.Load() {
		return
	}
	rows, cols := x.Rows(), x.Cols()
	in, ok := b.floats("scale", "operand", x, rows, cols)
	if !ok {
		return
	}
	b.scale = scale{set: b.set, x: in, rows: rows, cols: cols, scale: by, cap: softcap}
	b.run(&b.scale, rows*ceil(cols, 8192), rows*cols)
}

func (op *scale) run(_ *worker, unit int) {
	parts := ceil(op.cols, 8192)
	begin := unit % parts * 8192
	x := row(op.x, unit/parts, op.cols)[begin:min(begin+8192, op.cols)]
	op.set.Vector.ScaleMax(x, op.scale)
	if op.cap > 0 {
		op.set.Vector.Tanh(x, 1/op.cap, op.cap)
	}
}

// moveRows is an operation on whole rows: Add or Gather.
type moveRows struct {
	set        *kernels.Set
	dst, x     mat.Floats
	from       []int32 // of Gather
	rows, cols int
	scale      float32
}

// Add works row by row.
func (b *Backend) Add(dst, x tensor.Tensor, scale float32) {
	if b.failed.Load() {
		return
	}
	rows, cols := dst.Rows(), dst.Cols()
	out, ok1 := b.floats("add", "result", dst, rows, cols)
	in, ok2 := b.floats("add", "operand", x, rows, cols)
	if ok1 && ok2 {
		b.rows = moveRows{set: b.set, dst: out, x: in, rows: rows, cols: cols, scale: scale}
		b.run(&b.rows, ceil(rows, rowsPerUnit(cols)), rows*cols)
	}
}

// Gather copies rows. It checks their indices.
func (b *Backend) Gather(dst, x tensor.Tensor, rows []int32) {
	if b.failed.Load() {
		return
	}
	out, ok1 := b.floats("gather", "result", dst, len(rows), x.Cols())
	in, ok2 := b.floats("gather", "operand", x, x.Rows(), x.Cols())
	if ok1 && ok2 && b.inside("gather", rows, x.Rows()) {
		b.rows = moveRows{set: b.set, dst: out, x: in, from: rows, rows: len(rows), cols: x.Cols()}
		b.run(&b.rows, ceil(len(rows), rowsPerUnit(x.Cols())), len(rows)*x.Cols())
	}
}

// inside checks the indices of an operation.
func (b *Backend) inside(op string, indices []int32, n int) bool {
	for i, v := range indices {
		if v < 0 || int(v) >= n {
			b.fail("%s: index %d is %d of %d", op, i, v, n)
			return false
		}
	}
	return true
}

func (op *moveRows) run(_ *worker, unit int) {
	per := rowsPerUnit(op.cols)
	for r := unit * per; r < min((unit+1)*per, op.rows); r++ {
		dst := row(op.dst, r, op.cols)
		if op.from != nil {
			copy(dst, row(op.x, int(op.from[r]), op.cols))
		} else {
			op.set.Vector.AddRounded(dst, row(op.x, r, op.cols), op.scale)
		}
	}
}

// axpy computes dst += a·x. The product is rounded before the addition, never fused with it.
func axpy(dst, x []float32, a float32) {
	x = x[:len(dst)]
	if a == 1 {
		for i, v := range x {
			dst[i] += v
		}
		return
	}
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

type scatterAdd struct {
	set     *kernels.Set
	dst, x  mat.Floats
	rows    []int32
	weights []float32
	cols    int
}

// scatterCols is the number of columns in a unit of ScatterAdd, which processes all rows in
// order.
const scatterCols = 512

// ScatterAdd distributes the columns over the threads.
func (b *Backend) ScatterAdd(dst, x tensor.Tensor, rows []int32, weights []float32) {
	if b.failed.Load() {
		return
	}
	cols := dst.Cols()
	out, ok1 := b.floats("scatter", "result", dst, dst.Rows(), cols)
	in, ok2 := b.floats("scatter", "operand", x, len(rows), cols)
	if !ok1 || !ok2 || !b.inside("scatter", rows, dst.Rows()) {
		return
	}
	if len(weights) != len(rows) {
		b.fail("scatter: %d weights for %d rows", len(weights), len(rows))
		return
	}
	b.scatter = scatterAdd{set: b.set, dst: out, x: in, rows: rows, weights: weights, cols: cols}
	b.run(&b.scatter, ceil(cols, scatterCols), len(rows)*cols)
}

func (op *scatterAdd) run(_ *worker, unit int) {
	begin := unit * scatterCols
	n := min(scatterCols, op.cols-begin)
	for i, r := range op.rows {
		op.set.Vector.AddRounded(from(op.dst, int(r), begin).V[:n], from(op.x, i, begin).V[:n], op.weights[i])
	}
}
