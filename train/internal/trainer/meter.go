package trainer

import (
	"context"
	"slices"
)

// Meter sums values of passes between logs, apart for training and evaluation. train.Meter documents
// it. The zero value measures nothing.
type Meter struct {
	names      []string
	evaluating bool
	sums       [2]map[string][2]float64 // total and count, of training and of evaluation
}

// NewMeter makes a meter of values with these names.
func NewMeter(names ...string) *Meter {
	m := &Meter{names: slices.Sorted(slices.Values(names))}
	m.sums[0], m.sums[1] = map[string][2]float64{}, map[string][2]float64{}
	return m
}

// Add adds the sum of n values. Names that the meter was not made for are ignored.
func (m *Meter) Add(name string, sum float64, n int) {
	if m == nil || !slices.Contains(m.names, name) {
		return
	}
	of := m.sums[m.of()]
	s := of[name]
	of[name] = [2]float64{s[0] + sum, s[1] + float64(n)}
}

func (m *Meter) of() int {
	if m.evaluating {
		return 1
	}
	return 0
}

// read returns the means over all ranks since the last call, with prefix before their names. All ranks
// must call it.
func (t *Trainer[B]) read(ctx context.Context, prefix string) (map[string]float64, error) {
	m := t.c.Meter
	if m == nil {
		return nil, nil
	}
	of := m.sums[m.of()]
	all := make([]float64, 0, 2*len(m.names))
	for _, name := range m.names {
		s := of[name]
		all = append(all, s[0], s[1])
	}
	clear(of)
	if err := t.sum(ctx, all); err != nil {
		return nil, err
	}
	means := map[string]float64{}
	for i, name := range m.names {
		if n := all[2*i+1]; n > 0 {
			means[prefix+name] = all[2*i] / n
		}
	}
	return means, nil
}

// evaluate switches the meter between evaluation and training.
func (m *Meter) evaluate(on bool) {
	if m != nil {
		m.evaluating = on
	}
}
