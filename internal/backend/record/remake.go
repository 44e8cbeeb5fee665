package record

import "github.com/heftai/heft/internal/tensor"

// Some results cost less to make again than to keep: norms, and the products of gates. Where
// their memory is written anew before the reverse reads them, the record has a recipe instead
// of a copy; the same operation on the same operands gives the same bits.

// A recipe is how a result was made that still lies where it was made.
type recipe struct {
	t      tensor.Tensor
	lo, hi uintptr
	remake func(to tensor.Tensor)
}

// made remembers how t, which was written just now, came about: from values, which stay.
func (r *Recorder) made(t tensor.Tensor, remake func(to tensor.Tensor)) {
	lo, hi := extent(t)
	r.recipes = append(r.recipes, recipe{t, lo, hi, remake})
}

// recipeOf is how t was made, or nil.
func (r *Recorder) recipeOf(t tensor.Tensor) func(to tensor.Tensor) {
	for i := len(r.recipes) - 1; i >= 0; i-- {
		if x := &r.recipes[i]; tensor.Same(x.t, t) {
			return x.remake
		}
	}
	return nil
}

// makeAgain makes a value in memory that is valid until the record is reversed as far as its
// mark.
func (r *Recorder) makeAgain(i int) {
	t := r.Take(r.values[i].t.Rows(), r.values[i].t.Cols())
	r.values[i].remake(t)
	v := &r.values[i]
	v.t, v.gone = t, false
	r.remade = append(r.remade, i)
}

// forgetRemade lets the memory go of all values that were made again but the first n.
func (r *Recorder) forgetRemade(n int) {
	for _, i := range r.remade[n:] {
		if i < len(r.values) {
			r.values[i].gone = true
		}
	}
	r.remade = r.remade[:n]
}
