package trainer

import (
	"context"
	"slices"
)

// Meter sums values of passes between logs, separately for training and evaluation. train.Meter
// documents it. The zero value measures nothing.
type Meter struct {
	names      []string
	evaluating bool
	sums       [2]map[string][2]float64 // total and count, of training and of evaluation
	byBatch    bool
	window     map[string][][2]float64 // of the batches of the window, if byBatch
}

// NewMeter returns a meter of values with the given names.
func NewMeter(names ...string) *Meter {
	m := &Meter{names: slices.Sorted(slices.Values(names))}
	m.sums[0], m.sums[1] = map[string][2]float64{}, map[string][2]float64{}
	return m
}

// NewBatchMeter returns a meter of means of batches: train.NewBatchMeter.
func NewBatchMeter(names ...string) *Meter {
	m := NewMeter(names...)
	m.byBatch, m.window = true, map[string][][2]float64{}
	return m
}

// Add adds the sum of n values. It ignores names that the meter was not created with.
func (m *Meter) Add(name string, sum float64, n int) {
	if m == nil || !slices.Contains(m.names, name) {
		return
	}
	if m.byBatch {
		if !m.evaluating {
			m.window[name] = append(m.window[name], [2]float64{sum, float64(n)})
		}
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

// batches returns this rank's sums of the batches of a window, to be summed over all ranks. The
// result has the same length on each rank.
func (m *Meter) batches(most int) []float64 {
	if m == nil || !m.byBatch {
		return nil
	}
	var all []float64
	for _, name := range m.names {
		for i := range most {
			var s [2]float64
			if own := m.window[name]; i < len(own) {
				s = own[i]
			}
			all = append(all, s[0], s[1])
		}
	}
	clear(m.window)
	return all
}

// fold adds the means of a window's batches. all is the sum of what batches returned. The mean of a batch
// without values is 0, as in TRL.
func (m *Meter) fold(all []float64, most int) {
	for i := 0; i < len(all); i += 2 {
		name := m.names[i/(2*most)]
		mean := 0.0
		if all[i+1] > 0 {
			mean = all[i] / all[i+1]
		}
		of := m.sums[0]
		s := of[name]
		of[name] = [2]float64{s[0] + mean, s[1] + 1}
	}
}

// read returns the means over all ranks since the last call, with prefix before their names. All
// ranks must call it.
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
