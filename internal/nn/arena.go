package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// An arena allocates float32 matrices like a stack: a rule saves used, allocates, and restores
// used. The scratch methods mirror the allocations of the rules to compute the size in advance.
type arena struct {
	memory tensor.Tensor
	used   int // floats
	// recorder, if not nil, allocates memory that is not reused while it records.
	recorder backend.Recorder
}

// floats returns the size of a matrix, rounded up to a multiple of 64 bytes.
func floats(rows, cols int) int { return (rows*cols + 15) &^ 15 }

// take allocates a matrix without clearing it.
func (a *arena) take(rows, cols int) tensor.Tensor {
	if a.recorder != nil && a.recorder.Recording() {
		return a.recorder.Take(rows, cols)
	}
	return a.passing(rows, cols)
}

// passing is take for results that Backward does not read again, even while recording: results
// that are added to something, copied elsewhere, or cheap to recompute.
func (a *arena) passing(rows, cols int) tensor.Tensor {
	begin := a.used
	a.used += floats(rows, cols)
	return matrix(a.memory.Slice(begin, begin+rows*cols), rows, cols)
}

// pause stops recording until resume is called. It is for results without a gradient, such as
// scores by which positions are selected. The weights of these results then have no gradient, not
// a zero gradient.
func (a *arena) pause() (resume func()) {
	if a.recorder == nil || !a.recorder.Recording() {
		return func() {}
	}
	a.recorder.Pause()
	return a.recorder.Record
}

// matrix returns the first elements of t as a rows × cols matrix.
func matrix(t tensor.Tensor, rows, cols int) tensor.Tensor {
	if t.Data != nil {
		t.Data = t.Data[: 4*rows*cols : 4*rows*cols]
	}
	t.DType, t.Rank, t.Stride = meta.Float32, 2, 0
	t.Dims = [tensor.MaxRank]int{rows, cols}
	return t
}

// spare returns memory for a result that may overwrite x. This is x itself, unless a recorder has
// to keep it. Then it is the memory that was taken for x, which is free because the recorder has
// placed x elsewhere.
func (a *arena) spare(x tensor.Tensor) tensor.Tensor {
	if a.recorder != nil && a.recorder.Recording() {
		return a.passing(x.Rows(), x.Cols())
	}
	return x
}

// floats returns the size of a context's memory.
func (p *Program) floats(l Limits) int {
	n := floats(1, p.zeros) + floats(l.Rows, p.width) + floats(l.Outputs, p.vocab) + floats(l.states(), p.hidden)
	n += floats(l.Rows, p.perLayer) + floats(l.Rows, p.chosen) + floats(l.Rows, p.joins)
	if p.moves {
		n += floats(l.Rows, p.width)
	}
	for _, r := range p.ropes {
		n += 2 * floats(l.Rows, r.Dim/2)
	}
	most := 0
	for _, u := range p.Units {
		most = max(most, u.step.scratch(l))
	}
	return n + most
}
