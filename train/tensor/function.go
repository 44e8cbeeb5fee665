package tensor

import "strings"

// Function is an operation that the caller computes and differentiates, for [Tape.Function].
type Function struct {
	Name string // for messages. Errors of Backward that begin with it stay as they are
	// Data holds the result, with shape Shape.
	Data  []float32
	Shape []int
	// Inputs are the tensors that the result depends on. Trains says that it also depends on a
	// trainable parameter that is not among them.
	Inputs []*Tensor
	Trains bool
	// Backward is called at most once, with the result's gradient. It adds to the Grad of parameters and to
	// the slices that [Tape.Gradient] returns for inputs.
	Backward func(grad []float32) error
	// Free, if not nil, is called when the record is freed by Backward or Reset, and at once if
	// nothing is recorded. It is not called for a result that the caller drops without either.
	Free func()
}

// Function records a custom operation on the tape.
func (tp *Tape) Function(f Function) *Tensor {
	if !tp.ready(f.Name, f.Inputs...) {
		tp.keepFree(tp.void(), f.Free)
		return tp.void()
	}
	if !sized(f.Shape, len(f.Data)) {
		tp.keepFree(tp.void(), f.Free)
		return tp.fail("%s: got %d elements for shape %v", f.Name, len(f.Data), f.Shape)
	}
	tp.opaque = true
	out := tp.made(f.Data, f.Shape, f.Inputs...)
	out.needs = out.needs || f.Trains && tp.recording()
	tp.recordOnce(f.Name, out, func(grad []float32) {
		switch err := f.Backward(grad); {
		case err == nil || tp.err != nil:
		case strings.HasPrefix(err.Error(), f.Name+": "):
			tp.err = err // it says where it comes from
		default:
			tp.fail("%s: %w", f.Name, err)
		}
	})
	tp.keepFree(out, f.Free)
	return out
}

// Gradient returns the slice in which an input's gradient is summed during Backward, or nil if the
// input needs none.
func (tp *Tape) Gradient(t *Tensor) []float32 { return tp.gradient(t) }

// Recording reports whether operations are recorded. It is false within [Tape.NoGrad].
func (tp *Tape) Recording() bool { return tp.recording() }

// Threads returns the number of threads that compute results.
func (tp *Tape) Threads() int { return tp.threads }

// Kernels returns the name of the kernel variant in use.
func (tp *Tape) Kernels() string {
	if tp.set == nil {
		return ""
	}
	return tp.set.Name
}
