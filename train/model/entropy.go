package model

import (
	"math"
	"sync"

	view "github.com/heftai/heft/internal/tensor"
)

// measures are values of the distributions that labels are predicted from, of each row, if they are wanted.
type measures struct {
	spreads, means []float32 // entropies and mean logits
	tops           []float32 // 1 where the label has the highest logit
}

// make allocates what the options want.
func (m *measures) make(o *Options, rows int) {
	if o.Entropies != nil {
		m.spreads = make([]float32, rows)
	}
	if o.MeanLogits != nil {
		m.means = make([]float32, rows)
	}
	if o.Top != nil {
		m.tops = make([]float32, rows)
	}
}

func (m *measures) wanted() bool { return m.spreads != nil || m.means != nil || m.tops != nil }

// take gives the options what they want. A pass that runs again has computed it already.
func (m *measures) take(o *Options, l *layout) {
	if o.Entropies != nil {
		*o.Entropies = l.spread(m.spreads, 1)
	}
	if o.MeanLogits != nil {
		*o.MeanLogits = l.spread(m.means, 1)
	}
	if o.Top != nil {
		tops := l.spread(m.tops, 1)
		*o.Top = make([]bool, len(tops))
		for i, v := range tops {
			(*o.Top)[i] = v > 0
		}
	}
	*m = measures{}
}

// measure computes the measures of rows from their logits.
func (l *loss) measure(rows []int32, logits view.Tensor) {
	workers := min(max(l.threads, 1), len(rows))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(rows); i += workers {
				row, of := rows[i], logits.Row(i)
				if l.spreads != nil {
					l.spreads[row] = entropyOf(of, float64(l.cooling))
				}
				mean, top := meanAndTop(of)
				if l.means != nil {
					l.means[row] = mean
				}
				if l.tops != nil && int32(top) == l.labels[row] {
					l.tops[row] = 1
				}
			}
		})
	}
	all.Wait()
}

// meanAndTop returns the mean of logits and the index of the first of the highest.
func meanAndTop(logits []float32) (mean float32, top int) {
	sum := 0.0
	for i, v := range logits {
		if sum += float64(v); v > logits[top] {
			top = i
		}
	}
	return float32(sum / float64(len(logits))), top
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
