package tensor

import (
	"slices"
	"strings"
)

// Function is an operation that the caller computes and differentiates, for [Tape.Function].
type Function struct {
	Name string // for messages; errors of Backward that begin with it are not changed
	// Data holds the result, with shape Shape.
	Data  []float32
	Shape []int
	// Inputs are the tensors that the result depends on. Trains reports that it also depends on a
	// trainable parameter that is not among them.
	Inputs []*Tensor
	Trains bool
	// Params are all trainable parameters to which Backward adds, if the caller knows them. The
	// tape then knows when their gradients are complete; see [Tape.Complete]. nil means any
	// parameters.
	Params []*Parameter
	// Backward is called at most once, with the result's gradient. It adds to the Grad of parameters and to
	// the slices that [Tape.Gradient] returns for inputs.
	Backward func(grad []float32) error
	// Free, if not nil, is called when Backward or Reset frees the record, and at once if nothing
	// is recorded. It is not called for a result that is dropped without either.
	Free func()
}

// Function records a custom operation on the tape and returns its result, which shares f.Data. An error of
// f.Backward ends the pass: Backward returns it. It is an error if f.Data does not fill f.Shape, or if an
// input belongs to another tape.
func (tp *Tape) Function(f Function) *Tensor {
	if !tp.ready(f.Name, f.Inputs...) {
		tp.keepFree(tp.void(), f.Free)
		return tp.void()
	}
	if !sized(f.Shape, len(f.Data)) {
		tp.keepFree(tp.void(), f.Free)
		return tp.fail("%s: got %d elements for shape %v", f.Name, len(f.Data), f.Shape)
	}
	tp.opaque = tp.opaque || f.Params == nil
	out := tp.made(f.Data, f.Shape, f.Inputs...)
	out.needs = out.needs || f.Trains && tp.recording()
	tp.recordOnce(f.Name, out, func(grad []float32) {
		switch err := f.Backward(grad); {
		case err == nil || tp.err != nil:
		case strings.HasPrefix(err.Error(), f.Name+": "):
			tp.err = err // it already names its origin
		default:
			tp.fail("%s: %w", f.Name, err)
		}
	})
	if out.node != nil {
		for _, p := range f.Params {
			tp.begin(p, out.node.seq-1)
		}
	}
	tp.keepFree(out, f.Free)
	return out
}

// begin records that the first operation that uses p comes after at others.
func (tp *Tape) begin(p *Parameter, at int) {
	if tp.begun[p] {
		return
	}
	if tp.begun == nil {
		tp.begun = map[*Parameter]bool{}
	}
	tp.begun[p] = true
	tp.firsts = append(tp.firsts, firstUse{p, at})
}

// Complete tells the tape that the Function whose Backward is running adds nothing more to the
// gradient of one of its Params. [BackwardReady] then calls ready for the parameter, if no
// earlier operation uses it.
func (tp *Tape) Complete(p *Parameter) {
	if tp.complete == nil || tp.opaque || tp.err != nil {
		return
	}
	for n := len(tp.firsts) - 1; n >= 0 && tp.firsts[n].at >= tp.reversing-1; n-- {
		if tp.firsts[n].p == p {
			tp.firsts = slices.Delete(tp.firsts, n, n+1)
			tp.releaseGradients(p)
			tp.complete(p)
			return
		}
	}
}

// Gradient returns the slice in which an input's gradient is accumulated during Backward, or nil
// if the input needs none.
func (tp *Tape) Gradient(t *Tensor) []float32 { return tp.gradient(t) }

// Recording reports whether operations are recorded. It is false within [Tape.NoGrad].
func (tp *Tape) Recording() bool { return tp.recording() }

// Threads returns the number of compute threads.
func (tp *Tape) Threads() int { return tp.threads }

// Kernels returns the name of the kernel variant in use.
func (tp *Tape) Kernels() string {
	if tp.set == nil {
		return ""
	}
	return tp.set.Name
}
