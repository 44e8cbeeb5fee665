package model

import "github.com/heftai/heft/train/tensor"

// dropMask records which inputs of adapters a pass drops. It keeps one bit per draw, so that a
// recomputed unit drops the same inputs.
type dropMask struct {
	source tensor.RandomSource
	p      float64
	bits   []uint64
	drawn  int         // bits drawn
	given  int         // bits assigned to maps
	first  map[int]int // first bit by linear map
}

func newDropMask(source tensor.RandomSource, p float64) *dropMask {
	return &dropMask{source: source, p: p, first: map[int]int{}}
}

// draw draws n bits. Maps later take them in order.
func (d *dropMask) draw(n int) {
	for range n {
		if d.drawn%64 == 0 {
			d.bits = append(d.bits, 0)
		}
		if float64(d.source.Float32()) >= d.p {
			d.bits[d.drawn/64] |= 1 << (d.drawn % 64)
		}
		d.drawn++
	}
}

// Factors returns 0 or 1/(1-p) for each input.
func (d *dropMask) Factors(linear, rows, cols int) []float32 {
	n := rows * cols
	first, ok := d.first[linear]
	if !ok {
		first = d.given
		d.first[linear], d.given = first, first+n
		d.draw(max(d.given-d.drawn, 0))
	}
	by := float32(1 / (1 - d.p))
	out := make([]float32, n)
	for i := range out {
		if at := first + i; d.bits[at/64]>>(at%64)&1 != 0 {
			out[i] = by
		}
	}
	return out
}
