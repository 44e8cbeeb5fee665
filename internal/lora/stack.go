package lora

import "github.com/heftai/heft/internal/tensor"

// stack converts B of a stack from PEFT's layout [Out, Rank, Experts] to matrices [Out, Rank]
// concatenated by rows.
func (t *Target) stack(b tensor.Tensor) tensor.Tensor {
	out := t.empty(b, t.Experts*t.Out, t.Rank)
	t.move(func(stacked, theirs int) { copyElement(out, stacked, b, theirs) })
	return out
}

// unstack is the inverse of stack.
func (t *Target) unstack(b tensor.Tensor) tensor.Tensor {
	out := t.empty(b, t.Out, t.Rank*t.Experts)
	t.move(func(stacked, theirs int) { copyElement(out, theirs, b, stacked) })
	return out
}

func (t *Target) empty(like tensor.Tensor, rows, cols int) tensor.Tensor {
	out := tensor.Tensor{DType: like.DType, Rank: 2, Data: make([]byte, like.Bytes())}
	out.Dims = [tensor.MaxRank]int{rows, cols}
	return out
}

// move calls f with the indices of each element in both layouts.
func (t *Target) move(f func(stacked, theirs int)) {
	for e := range t.Experts {
		for o := range t.Out {
			for r := range t.Rank {
				f((e*t.Out+o)*t.Rank+r, (o*t.Rank+r)*t.Experts+e)
			}
		}
	}
}

func copyElement(dst tensor.Tensor, i int, src tensor.Tensor, j int) {
	n := dst.DType.Bits() / 8
	copy(dst.Data[i*n:(i+1)*n], src.Data[j*n:])
}

// rows returns B, or another matrix with its rows, with rows in the order of the checkpoint. Without into, it
// is the inverse.
func (t *Target) rows(b tensor.Tensor, into bool) tensor.Tensor {
	switch {
	case t.spec == nil:
		return b
	case t.spec.RowTiling != nil:
		return t.arranged(b, into, func(row, col int) (int, int) { return t.spec.RowTiling.Place(row), col })
	case t.spec.PairRows > 0:
		// A checkpoint that rotates neighbours has row i+half of each head behind row i.
		size, half := t.spec.PairRows, t.spec.PairRows/2
		return t.arranged(b, into, func(row, col int) (int, int) {
			head, i := row-row%size, row%size
			return head + 2*(i%half) + i/half, col
		})
	}
	return b
}

// columns is rows for the columns of A.
func (t *Target) columns(a tensor.Tensor, into bool) tensor.Tensor {
	if t.spec == nil || t.spec.ColumnTiling == nil {
		return a
	}
	return t.arranged(a, into, func(row, col int) (int, int) { return row, t.spec.ColumnTiling.Place(col) })
}

// arranged returns a matrix with the elements of m where place says, or, without into, back from there.
func (t *Target) arranged(m tensor.Tensor, into bool, place func(row, col int) (int, int)) tensor.Tensor {
	out := t.empty(m, m.Rows(), m.Cols())
	for row := range m.Rows() {
		for col := range m.Cols() {
			r, c := place(row, col)
			theirs, file := row*m.Cols()+col, r*m.Cols()+c
			if !into {
				file, theirs = theirs, file
			}
			copyElement(out, file, m, theirs)
		}
	}
	return out
}
