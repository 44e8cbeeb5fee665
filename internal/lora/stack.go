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

// paired returns B with the rows of each head in the order of a file that rotates neighbours: row
// i+pairRows/2 behind row i. Without into, it is the inverse.
func (t *Target) paired(b tensor.Tensor, into bool) tensor.Tensor {
	out := t.empty(b, b.Rows(), b.Cols())
	half := t.pairRows / 2
	for row := range b.Rows() {
		head, i := row-row%t.pairRows, row%t.pairRows
		file, theirs := head+2*(i%half)+i/half, row
		if !into {
			file, theirs = theirs, file
		}
		for c := range b.Cols() {
			copyElement(out, file*b.Cols()+c, b, theirs*b.Cols()+c)
		}
	}
	return out
}
