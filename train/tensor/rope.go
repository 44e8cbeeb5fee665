package tensor

import (
	"math"

	"github.com/heftai/heft/internal/backend/cpu"
	view "github.com/heftai/heft/internal/tensor"
)

// Rotary is a table of rotary-embedding angles for positions 0 … positions-1.
type Rotary struct {
	pairs, positions int
	cos, sin         []float32 // [positions, pairs]
}

// NewRotary returns the table of the standard rotary embedding: pair i of a head of dim elements
// is rotated by position·theta^(-2i/dim). The angles are float32, as in the reference.
func NewRotary(dim, positions int, theta float64) *Rotary {
	inverse := make([]float32, max(dim/2, 0))
	for i := range inverse {
		inverse[i] = 1 / float32(math.Pow(theta, float64(2*i)/float64(dim)))
	}
	return NewRotaryFrom(inverse, positions, 1)
}

// NewRotaryFrom returns a table for given inverse frequencies, one per pair. scale multiplies
// sines and cosines.
func NewRotaryFrom(inverse []float32, positions int, scale float64) *Rotary {
	positions = max(positions, 0)
	t := &Rotary{pairs: len(inverse), positions: positions}
	t.cos, t.sin = make([]float32, positions*t.pairs), make([]float32, positions*t.pairs)
	for p := range positions {
		for i, f := range inverse {
			sin, cos := math.Sincos(float64(float32(p) * f))
			t.cos[p*t.pairs+i] = float32(float32(cos) * float32(scale))
			t.sin[p*t.pairs+i] = float32(float32(sin) * float32(scale))
		}
	}
	return t
}

// Rope rotates the heads of x [batch, length, heads, width]. In the first 2·pairs elements of a
// head, it pairs element i of the first half with element i of the second half. positions has one
// entry per position of the length; nil means 0, 1, …. A position beyond the table is an error.
func (tp *Tape) Rope(x *Tensor, t *Rotary, positions []int) *Tensor {
	if !tp.ready("rope", x) {
		return tp.void()
	}
	if t == nil || x.dims() != 4 || 2*t.pairs > x.last() {
		return tp.fail("rope: x has shape %v, want [batch length heads width] with a width of at least 2·pairs", x)
	}
	length, n := x.shape[1], x.last()
	if positions == nil {
		positions = make([]int, length)
		for i := range positions {
			positions[i] = i
		}
	}
	if len(positions) != length || !within(positions, t.positions) {
		return tp.fail("rope: x has shape %v: got %d positions, want one per token and each below %d", x, len(positions), t.positions)
	}
	out := tp.blank(x.shape, x)
	copy(out.data, x.data)
	cos, sin := t.at(positions)
	each := func(x []float32, rotate func(b *cpu.Backend, rows view.Tensor)) {
		if len(x) == 0 {
			return
		}
		tp.compute("rope", func(b *cpu.Backend) {
			for batch := range out.shape[0] {
				size := len(x) / out.shape[0]
				rotate(b, matrixOf(x[batch*size:(batch+1)*size], size/length))
			}
		})
	}
	each(out.data, func(b *cpu.Backend, rows view.Tensor) { b.Rope(rows, n, cos, sin, false) })
	return tp.record(out, func(grad []float32) {
		// Rotate the gradient back in place: it is not read afterwards.
		each(grad, func(b *cpu.Backend, rows view.Tensor) { b.RopeGrad(rows, n, cos, sin, false) })
		tp.hand(out, x, grad)
	})
}

// at returns the cosines and sines of positions, [len, pairs].
func (t *Rotary) at(positions []int) (cos, sin view.Tensor) {
	var both [2][]float32
	for i, table := range [...][]float32{t.cos, t.sin} {
		for _, p := range positions {
			both[i] = append(both[i], table[p*t.pairs:(p+1)*t.pairs]...)
		}
	}
	return view.Floats(both[0], len(positions), t.pairs), view.Floats(both[1], len(positions), t.pairs)
}
