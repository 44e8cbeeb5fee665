package model

import (
	"iter"
	"slices"

	"github.com/heftai/heft/train/tensor"
)

// headRows returns the number of rows whose logits a loss holds at a time without LogitRows.
func (m *Model) headRows() int { return max(headLogits/max(m.spec.Vocab, 1), leastLogitRows) }

// outputs returns the number of rows whose logits a loss holds at a time.
func (m *Model) outputs() int {
	if m.logitRows == 0 || m.headTrains() || m.headQuantised() {
		return m.headRows()
	}
	return min(m.headRows(), m.logitRows)
}

// headTrains reports whether the last unit has a parameter that trains.
func (m *Model) headTrains() bool {
	return slices.ContainsFunc(m.units[len(m.units)-1].trained, func(t *tensor.Parameter) bool { return t.Trainable })
}

// headQuantised reports whether the last unit has quantised weights in the checkpoint.
func (m *Model) headQuantised() bool {
	for _, n := range m.program.Units[len(m.program.Units)-1].Modules {
		for _, module := range n.Module.Walk() {
			for _, p := range module.Resolve().Params {
				for _, source := range p.Resolve().Sources {
					if source.Quant != nil {
						return true
					}
				}
			}
		}
	}
	return false
}

// groups divides rows into groups of at most most rows. It first makes groups of headRows, and
// divides these into equal parts for LogitRows. A part thus has few rows, which other kernels
// compute, only if its group does.
func (m *Model) groups(rows []int32, most int) iter.Seq[[]int32] {
	return func(yield func([]int32) bool) {
		for group := range slices.Chunk(rows, m.headRows()) {
			for parts := (len(group) + most - 1) / most; parts > 0; parts-- {
				n := (len(group) + parts - 1) / parts
				if !yield(group[:n]) {
					return
				}
				group = group[n:]
			}
		}
	}
}
