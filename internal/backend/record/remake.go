package record

import "github.com/heftai/heft/internal/tensor"

// Some results are cheaper to recompute than to store: norms, and the products of gates. If their
// memory is overwritten before a backward operation reads them, the record has a recipe instead
// of a copy. The same operation on the same operands gives the same bits.

// A recipe says how to compute a result that is still in its memory.
type recipe struct {
	t      tensor.Tensor
	lo, hi uintptr
	remake func(to tensor.Tensor)
}

// made records how t, which was just written, was computed from values that do not change.
func (r *Recorder) made(t tensor.Tensor, remake func(to tensor.Tensor)) {
	lo, hi := extent(t)
	r.recipes = append(r.recipes, recipe{t, lo, hi, remake})
}

// recipeOf returns the recipe of t, or nil.
func (r *Recorder) recipeOf(t tensor.Tensor) func(to tensor.Tensor) {
	for i := len(r.recipes) - 1; i >= 0; i-- {
		if x := &r.recipes[i]; tensor.Same(x.t, t) {
			return x.remake
		}
	}
	return nil
}

// makeAgain recomputes a value in memory that is valid until the record is reversed to its mark.
func (r *Recorder) makeAgain(i int) {
	t := r.Take(r.values[i].t.Rows(), r.values[i].t.Cols())
	r.values[i].remake(t)
	v := &r.values[i]
	v.t, v.gone = t, false
	r.remade = append(r.remade, i)
}

// forgetRemade frees the memory of all recomputed values except the first n.
func (r *Recorder) forgetRemade(n int) {
	for _, i := range r.remade[n:] {
		if i < len(r.values) {
			r.values[i].gone = true
		}
	}
	r.remade = r.remade[:n]
}
