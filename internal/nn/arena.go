package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// An arena hands out float32 matrices like a stack: a rule remembers used, takes, and
// sets used back. Its size is worked out beforehand by the scratch methods, which
// mirror what the rules take.
type arena struct {
	memory tensor.Tensor
	used   int // floats
	// recorder, where there is one, hands out memory that stays as it is while it records.
	recorder backend.Recorder
}

// floats is what a matrix takes, rounded so that each begins on 64 bytes.
func floats(rows, cols int) int { return (rows*cols + 15) &^ 15 }

// take is a matrix of what was there before.
func (a *arena) take(rows, cols int) tensor.Tensor {
	if a.recorder != nil && a.recorder.Recording() {
		return a.recorder.Take(rows, cols)
	}
	return a.passing(rows, cols)
}

// passing is take for what no reverse reads again, whoever records: a result that is added
// to something, or stored elsewhere, or easily made again.
func (a *arena) passing(rows, cols int) tensor.Tensor {
	begin := a.used
	a.used += floats(rows, cols)
	return matrix(a.memory.Slice(begin, begin+rows*cols), rows, cols)
}

// matrix is t seen as rows × cols of the elements from its first on.
func matrix(t tensor.Tensor, rows, cols int) tensor.Tensor {
	if t.Data != nil {
		t.Data = t.Data[: 4*rows*cols : 4*rows*cols]
	}
	t.DType, t.Rank, t.Stride = meta.Float32, 2, 0
	t.Dims = [tensor.MaxRank]int{rows, cols}
	return t
}

// spare is memory for a result that may take the place of x, which was taken: x itself,
// unless a recorder has to keep it. Then x lies elsewhere, and what was meant for it is free.
func (a *arena) spare(x tensor.Tensor) tensor.Tensor {
	if a.recorder != nil && a.recorder.Recording() {
		return a.passing(x.Rows(), x.Cols())
	}
	return x
}

// floats is the size of a context's memory.
func (p *Program) floats(l Limits) int {
	n := floats(1, p.zeros) + 2*floats(l.Rows, p.width) + floats(l.Outputs, p.vocab) + floats(l.Outputs, p.hidden)
	for _, r := range p.ropes {
		n += 2 * floats(l.Rows, r.Dim/2)
	}
	most := 0
	for _, u := range p.Units {
		most = max(most, u.step.scratch(l))
	}
	return n + most
}
