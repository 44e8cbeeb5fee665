package model

import (
	"github.com/heftai/heft/internal/backend"
	view "github.com/heftai/heft/internal/tensor"
)

// measures are requested statistics of the distributions that labels are predicted from, for each
// row.
type measures struct {
	whole backend.Measures // of all rows
	some  backend.Measures // of the rows whose logits are in memory
}

// make allocates the statistics that the options request.
func (m *measures) make(o *Options, rows int) {
	of := func(wanted bool) []float32 {
		if !wanted {
			return nil
		}
		return make([]float32, rows)
	}
	m.whole = backend.Measures{Entropies: of(o.Entropies != nil), Means: of(o.MeanLogits != nil), Tops: of(o.Top != nil)}
}

func (m *measures) wanted() bool {
	return m.whole.Entropies != nil || m.whole.Means != nil || m.whole.Tops != nil
}

// take copies the statistics to the options. A pass that runs again has done so before.
func (m *measures) take(o *Options, l *layout) {
	if o.Entropies != nil {
		*o.Entropies = l.spread(m.whole.Entropies, 1)
	}
	if o.MeanLogits != nil {
		*o.MeanLogits = l.spread(m.whole.Means, 1)
	}
	if o.Top != nil {
		tops := l.spread(m.whole.Tops, 1)
		*o.Top = make([]bool, len(tops))
		for i, v := range tops {
			(*o.Top)[i] = v > 0
		}
	}
	*m = measures{}
}

// measure measures the logits of some rows before the loss overwrites them.
func (l *loss) measure(logits view.Tensor, labels []int32) {
	if !l.wanted() {
		return
	}
	part := func(whole []float32) []float32 {
		if whole == nil {
			return nil
		}
		return make([]float32, len(labels))
	}
	l.some = backend.Measures{Entropies: part(l.whole.Entropies), Means: part(l.whole.Means), Tops: part(l.whole.Tops)}
	l.backend.Measure(l.some, logits, labels, l.cooling)
}

// keep stores the results of measure once they are computed.
func (l *loss) keep(rows []int32) {
	for _, list := range [][2][]float32{{l.whole.Entropies, l.some.Entropies}, {l.whole.Means, l.some.Means}, {l.whole.Tops, l.some.Tops}} {
		if list[0] == nil {
			continue
		}
		for i, r := range rows {
			list[0][r] = list[1][i]
		}
	}
}
