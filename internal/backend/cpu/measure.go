package cpu

import (
	"math"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
)

// Measure computes one row at a time.
func (b *Backend) Measure(m backend.Measures, logits tensor.Tensor, labels []int32, scale float32) {
	if b.failed.Load() {
		return
	}
	rows, n := logits.Rows(), logits.Cols()
	in, ok := b.floats("measure", "logits", logits, rows, n)
	if !ok {
		return
	}
	for _, list := range [][]float32{m.Entropies, m.Means, m.Tops} {
		if list != nil && len(list) != rows {
			b.fail("measure: %d values of %d rows", len(list), rows)
			return
		}
	}
	if m.Tops != nil && (len(labels) != rows || !b.inside("measure", labels, n)) {
		b.fail("measure: %d labels of %d rows", len(labels), rows)
		return
	}
	if !b.reserve(n) {
		return
	}
	b.each(rows, 4*n, func(w *worker, r int) {
		x, scratch := row(in, r, n), w.scratch.v[:n]
		if m.Means != nil {
			m.Means[r] = float32(sum(x) / float64(n))
		}
		copy(scratch, x)
		if m.Tops != nil {
			m.Tops[r] = 0
			if isTop(x, b.set.Vector.ScaleMax(scratch, 1), int(labels[r])) {
				m.Tops[r] = 1
			}
		}
		if m.Entropies != nil {
			m.Entropies[r] = entropy(b.set, x, scratch, scale)
		}
	})
}

// isTop reports whether label is the first of the highest logits.
func isTop(x []float32, top float32, label int) bool {
	return x[label] == top && !slices.Contains(x[:label], top)
}

// entropy returns the entropy of the softmax of scale times x. It overwrites e, which is a copy
// of x.
func entropy(set *kernels.Set, x, e []float32, scale float32) float32 {
	top := set.Vector.ScaleMax(e, scale)
	total := float64(set.Vector.ExpSum(e, top))
	weighted := set.Vector.Dot64(e, x)
	if math.IsNaN(weighted) { // for logits of −Inf, whose probability is 0
		weighted = 0
		for i, p := range e {
			if p > 0 {
				weighted += float64(p) * float64(x[i])
			}
		}
	}
	return float32(math.Log(total) + float64(top) - float64(scale)*weighted/total)
}
