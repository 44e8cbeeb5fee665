package cpu

import (
	"math"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
)

// CrossEntropy computes one row at a time.
func (b *Backend) CrossEntropy(losses []float32, dlogits, logits tensor.Tensor, labels []int32, scale, smoothing float32) {
	if b.failed.Load() {
		return
	}
	rows, n := logits.Rows(), logits.Cols()
	in, ok1 := b.floats("cross-entropy", "logits", logits, rows, n)
	out, ok2 := b.optional("cross-entropy", "gradient", dlogits, rows, n)
	if !ok1 || !ok2 {
		return
	}
	if len(losses) != rows || len(labels) != rows {
		b.fail("cross-entropy: %d losses of %d labels for %d rows", len(losses), len(labels), rows)
		return
	}
	for i, l := range labels {
		if int(l) >= n {
			b.fail("cross-entropy: label %d of row %d, of %d classes", l, i, n)
			return
		}
	}
	inPlace := out.V != nil && &out.V[0] == &in.V[0]
	if !inPlace && !b.reserve(n) {
		return
	}
	b.each(rows, 4*n, func(w *worker, r int) {
		x, label := row(in, r, n), int(labels[r])
		losses[r] = 0
		switch {
		case label < 0 && inPlace:
			clear(x)
		case label < 0:
		case inPlace:
			losses[r] = crossEntropy(b.set, x, label, scale, smoothing)
		default:
			g := w.scratch.v[:n]
			copy(g, x)
			losses[r] = crossEntropy(b.set, g, label, scale, smoothing)
			if out.V != nil {
				b.set.Vector.AddScaled(row(out, r, n), g, 1)
			}
		}
	})
}

// crossEntropy returns the loss of a row of logits, and replaces the logits by scale times the
// loss's gradient.
func crossEntropy(set *kernels.Set, x []float32, label int, scale, smoothing float32) float32 {
	at, level, share := float64(x[label]), 0.0, float64(smoothing)
	if smoothing > 0 {
		level = sum(x) / float64(len(x))
	}
	top := set.Vector.ScaleMax(x, 1)
	total := set.Vector.ExpSum(x, top)
	lse := float64(top) + math.Log(float64(total))
	by, spread := float32(float64(scale)/float64(total)), float32(share*float64(scale)/float64(len(x)))
	set.Vector.ScaleShift(x, by, spread)
	x[label] -= float32((1 - share) * float64(scale))
	return float32(lse - (1-share)*at - share*level)
}
