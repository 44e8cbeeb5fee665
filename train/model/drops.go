package model

import "github.com/heftai/heft/train/tensor"

// drops records which inputs of adapters a pass drops. It keeps one bit per draw, so that a
// recomputed unit drops the same inputs.
type drops struct {
	source tensor.RandomSource
	p      float64
	kept   map[int][]uint64 // by linear map
}

func newDrops(source tensor.RandomSource, p float64) *drops {
	return &drops{source: source, p: p, kept: map[int][]uint64{}}
}

// Factors returns 0 or 1/(1-p) for each input.
func (d *drops) Factors(linear, rows, cols int) []float32 {
	n := rows * cols
	bits := d.kept[linear]
	if bits == nil {
		bits = make([]uint64, (n+63)/64)
		for i := range n {
			if float64(d.source.Float32()) >= d.p {
				bits[i/64] |= 1 << (i % 64)
			}
		}
		d.kept[linear] = bits
	}
	by := float32(1 / (1 - d.p))
	out := make([]float32, n)
	for i := range out {
		if bits[i/64]>>(i%64)&1 != 0 {
			out[i] = by
		}
	}
	return out
}
