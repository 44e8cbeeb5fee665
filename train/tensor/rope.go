package tensor

import "math"

// Rotary is a table of rotary-embedding angles for positions 0 … positions-1.
type Rotary struct {
	pairs, positions int
	cos, sin         []float32 // [positions, pairs]
}

// NewRotary makes the table of the standard rotary embedding: pair i of a head of dim elements is
// rotated by position·theta^(-2i/dim). The angles are float32, as in the reference.
func NewRotary(dim, positions int, theta float64) *Rotary {
	inverse := make([]float32, max(dim/2, 0))
	for i := range inverse {
		inverse[i] = 1 / float32(math.Pow(theta, float64(2*i)/float64(dim)))
	}
	return NewRotaryFrom(inverse, positions, 1)
}

// NewRotaryFrom makes a table from given inverse frequencies, one per pair. scale multiplies sines
// and cosines.
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

// Rope rotates the heads of x [batch, length, heads, width]. Of a head's first 2·pairs elements it
// pairs element i of the first half with element i of the second half. positions has one entry per
// position of the length; nil means 0, 1, ….
func (tp *Tape) Rope(x *Tensor, t *Rotary, positions []int) *Tensor {
	if !tp.ready("rope", x) {
		return tp.void()
	}
	if t == nil || x.dims() != 4 || 2*t.pairs > x.last() {
		return tp.fail("rope: x has shape %v, want [batch length heads width] with a width of at least 2·pairs", x)
	}
	length, heads, n := x.shape[1], x.shape[2], x.last()
	if positions == nil {
		positions = make([]int, length)
		for i := range positions {
			positions[i] = i
		}
	}
	if len(positions) != length || !within(positions, t.positions) {
		return tp.fail("rope: x has shape %v: got %d positions, want one per token and each below %d", x, len(positions), t.positions)
	}
	out := tp.result(x.shape, x)
	tp.rows(x.shape[0]*length, heads*n, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			copy(out.data[r*heads*n:(r+1)*heads*n], x.data[r*heads*n:])
			t.turn(out.data[r*heads*n:(r+1)*heads*n], n, positions[r%length], 1)
		}
	})
	return tp.record(out, func(grad []float32) {
		// Rotate the gradient back in place: it is not read afterwards.
		tp.rows(x.shape[0]*length, heads*n, func(lo, hi int) {
			for r := lo; r < hi; r++ {
				t.turn(grad[r*heads*n:(r+1)*heads*n], n, positions[r%length], -1)
			}
		})
		tp.hand(out, x, grad)
	})
}

// turn rotates heads of width n by a position's angles; sign -1 rotates back.
func (t *Rotary) turn(heads []float32, n, position int, sign float32) {
	cos, sin := t.cos[position*t.pairs:(position+1)*t.pairs], t.sin[position*t.pairs:(position+1)*t.pairs]
	for h := 0; h < len(heads); h += n {
		a, b := heads[h:h+t.pairs], heads[h+t.pairs:h+2*t.pairs]
		for i, c := range cos {
			s := sign * sin[i]
			u, v := a[i], b[i]
			a[i], b[i] = u*c-v*s, v*c+u*s
		}
	}
}
