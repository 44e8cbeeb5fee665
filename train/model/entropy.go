package model

import (
	"math"
	"sync"

	view "github.com/heftai/heft/internal/tensor"
)

// measure computes the entropies of rows from their logits.
func (l *loss) measure(rows []int32, logits view.Tensor) {
	workers := min(max(l.threads, 1), len(rows))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(rows); i += workers {
				l.spreads[rows[i]] = entropyOf(logits.Row(i), float64(l.cooling))
			}
		})
	}
	all.Wait()
}

// entropyOf returns the entropy of the softmax of scale times logits.
func entropyOf(logits []float32, scale float64) float32 {
	most := math.Inf(-1)
	for _, v := range logits {
		most = max(most, scale*float64(v))
	}
	sum, weighted := 0.0, 0.0
	for _, v := range logits {
		d := scale*float64(v) - most
		e := math.Exp(d)
		sum += e
		if e > 0 {
			weighted += e * d
		}
	}
	return float32(math.Log(sum) - weighted/sum)
}
