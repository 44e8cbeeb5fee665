package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// An arena allocates float32 matrices like a stack: a rule saves used, allocates, and restores
// used. The scratch methods, which mirror what the rules allocate, compute its size in advance.
type arena struct {
	memory tensor.Tensor
	used   int // floats
	// recorder, if set, allocates memory that stays unchanged while it records.
	recorder backend.Recorder
}

// floats returns the size of a matrix, rounded up so that each begins on a 64-byte boundary.
func floats(rows, cols int) int { return (rows*cols + 15) &^ 15 }

// take allocates a matrix without clearing it.
func (a *arena) take(rows, cols int) tensor.Tensor {
	if a.recorder != nil && a.recorder.Recording() {
		return a.recorder.Take(rows, cols)
	}
	return a.passing(rows, cols)
}

// passing is take for results that Backward does not read again, even while recording: those added
// to something, stored elsewhere, or cheap to recompute.
func (a *arena) passing(rows, cols int) tensor.Tensor {
	begin := a.used
	a.used += floats(rows, cols)
	return matrix(a.memory.Slice(begin, begin+rows*cols), rows, cols)
}

// pause stops recording until resume is called, for results that have no gradient, such as those that positions are chosen
// by: weights they are made of then have none either, not zeros.
func (a *arena) pause() (resume func()) {
	if a.recorder == nil || !a.recorder.Recording() {
		return func() {}
	}
	a.recorder.Pause()
	return a.recorder.Record
}

// matrix is a rows × cols view of the first elements of t.
func matrix(t tensor.Tensor, rows, cols int) tensor.Tensor {
	if t.Data != nil {
		t.Data = t.Data[: 4*rows*cols : 4*rows*cols]
	}
	t.DType, t.Rank, t.Stride = meta.Float32, 2, 0
	t.Dims = [tensor.MaxRank]int{rows, cols}
	return t
}

// spare returns memory for a result that may overwrite x: x itself, unless a recorder has to keep
// it. In that case the memory taken for x is free, because the recorder has placed x elsewhere.
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
