package tensor

// Function is an operation that its maker computed and differentiates, for
// [Tape.Function].
type Function struct {
	Name string // for messages
	// Data is the result, of Shape.
	Data  []float32
	Shape []int
	// Inputs are the tensors it depends on; Trains says that a trainable parameter is
	// behind it which is none of them.
	Inputs []*Tensor
	Trains bool
	// Backward is called once with the result's gradient. It adds to the Grad of
	// parameters and to what [Tape.Gradient] gives for inputs.
	Backward func(grad []float32) error
	// Free, which may be nil, is called when the record is freed, reversed or not.
	Free func()
}

// Function puts an operation of the caller's own on the tape.
func (tp *Tape) Function(f Function) *Tensor {
	if f.Free != nil {
		tp.frees = append(tp.frees, f.Free)
	}
	if !tp.ready(f.Name, f.Inputs...) {
		return tp.void()
	}
	if !sized(f.Shape, len(f.Data)) {
		return tp.fail("%s: %d numbers for the shape %v", f.Name, len(f.Data), f.Shape)
	}
	out := tp.made(f.Data, f.Shape, f.Inputs...)
	out.needs = out.needs || f.Trains && tp.recording()
	return tp.record(out, func(grad []float32) {
		if err := f.Backward(grad); err != nil {
			tp.fail("%s: %w", f.Name, err)
		}
	})
}

// Gradient returns the slice in which an input's gradient is summed during Backward, or nil if the
// input needs none.
func (tp *Tape) Gradient(t *Tensor) []float32 { return tp.gradient(t) }

// Recording reports whether operations are recorded: not within [Tape.NoGrad].
func (tp *Tape) Recording() bool { return tp.recording() }

// Threads is the number of threads that compute results.
func (tp *Tape) Threads() int { return tp.threads }

// Kernels is the name of the variant of the inner loops.
func (tp *Tape) Kernels() string {
	if tp.set == nil {
		return ""
	}
	return tp.set.Name
}
