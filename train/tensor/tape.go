package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"weak"

	"github.com/heftai/heft/internal/kernels"
)

// Options configures a [Tape]. The zero value is ready to use.
type Options struct {
	// Threads is the number of compute threads. 0 means GOMAXPROCS.
	Threads int
	// Kernels names the kernel variant: "go", "avx2", …. "" selects the fastest.
	Kernels string
	// Autocast is the precision of products outside [Tape.Autocast].
	Autocast Precision
}

// Tape computes tensors and records the operations. A tape can be used for any number of passes,
// one after another.
type Tape struct {
	threads int
	set     *kernels.Set
	err     error
	silent  int // depth of NoGrad

	autocast Precision
	casts    map[*Tensor]*Tensor // parameters in another precision, for one pass
	pass     int                 // the number of Resets
	history
	complete  func(*Parameter)
	firsts    []firstUse          // of trainable parameters, in order
	begun     map[*Parameter]bool // parameters that are in firsts, or were
	reversing int                 // number of the operation that is being reversed
	opaque    bool                // an operation adds to parameters that the tape does not know
	uses      map[used]*Tensor
	acquired  []*Tensor              // of uses, whose values are not always in memory
	grads     []*Parameter           // whose gradients are acquired
	spare     map[int]*spareMemory   // memory for reuse, by length
	scope     int                    // depth of Within
	lent      []weak.Pointer[Tensor] // memory that is reclaimed at the end of the pass
	prune     int                    // the length of lent at which collected tensors are removed
}

// NewTape returns an empty tape. If the kernel variant is unknown, that is the tape's first
// error.
func NewTape(o Options) *Tape {
	tp := &Tape{threads: o.Threads, autocast: o.Autocast, uses: map[used]*Tensor{}, spare: map[int]*spareMemory{}}
	if tp.threads <= 0 {
		tp.threads = runtime.GOMAXPROCS(0)
	}
	if tp.set, tp.err = kernels.Select(o.Kernels); tp.err != nil {
		tp.err = fmt.Errorf("tensor: %w", tp.err)
	}
	return tp
}

// Err returns the first error since the tape was created or reset.
func (tp *Tape) Err() error { return tp.err }

// Reset discards the record, as after a pass without Backward. It returns and clears the error.
// Tensors that depend on parameters must not be used afterwards.
func (tp *Tape) Reset() error {
	tp.discard()
	tp.pass++
	return tp.end()
}

// end ends a pass. It reclaims lent memory, unless operations remain that may read it.
func (tp *Tape) end() error {
	tp.releaseGradients(nil)
	err := tp.err
	tp.err = nil
	clear(tp.uses)
	clear(tp.casts)
	tp.firsts, tp.opaque = tp.firsts[:0], false
	clear(tp.begun)
	if e := tp.release(); err == nil {
		err = e
	}
	if tp.open > 0 {
		tp.forget()
	}
	tp.open = 0
	tp.tidy()
	tp.epoch++
	return err
}

// NoGrad runs f without recording. Backward treats its results as constants.
func (tp *Tape) NoGrad(f func()) {
	tp.silent++
	defer func() { tp.silent-- }()
	f()
}

func (tp *Tape) recording() bool { return tp.silent == 0 }

// Input returns a constant tensor with data, which the tape keeps and does not change. Without a
// shape it is a vector. Data that does not fill the shape is an error. Only a [Parameter] gets a
// gradient.
func (tp *Tape) Input(data []float32, shape ...int) *Tensor {
	if tp.err != nil {
		return tp.void()
	}
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	if !sized(shape, len(data)) {
		return tp.fail("input: got %d elements for shape %v", len(data), shape)
	}
	return &Tensor{tape: tp, data: data, shape: slices.Clone(shape), pass: tp.pass}
}

// Scalar returns a constant without dimensions.
func (tp *Tape) Scalar(v float32) *Tensor {
	if tp.err != nil {
		return tp.void()
	}
	return &Tensor{tape: tp, data: []float32{v}, pass: tp.pass}
}

// fail records the first error and returns an empty tensor.
func (tp *Tape) fail(format string, args ...any) *Tensor {
	if tp.err == nil {
		tp.err = fmt.Errorf("tensor: "+format, args...)
	}
	return tp.void()
}

func (tp *Tape) void() *Tensor { return &Tensor{tape: tp, shape: []int{0}, pass: tp.pass} }

// ready reports whether an operation can run on its inputs. It rejects nil inputs.
func (tp *Tape) ready(name string, ins ...*Tensor) bool {
	if tp.err != nil {
		return false
	}
	for i, t := range ins {
		switch {
		case t == nil:
			tp.fail("%s: operand %d is missing", name, i+1)
		case t.tape != tp:
			tp.fail("%s: operand %d, %v, belongs to another tape", name, i+1, t)
		case t.needs && (t.pass != tp.pass || t.reversed()):
			tp.fail("%s: operand %d, %v, belongs to a pass whose record was freed by Backward or Reset: compute it again, or reverse the sum of the losses once", name, i+1, t)
		default:
			if tp.restore(t); tp.err == nil {
				continue
			}
		}
		return false
	}
	return true
}

// result returns a zeroed tensor for the result of an operation.
func (tp *Tape) result(shape []int, ins ...*Tensor) *Tensor {
	if tp.scope == 0 {
		return tp.made(make([]float32, count(shape)), shape, ins...)
	}
	out := tp.blank(shape, ins...)
	clear(out.data)
	return out
}

// blank is result without zeroing; the operation must set all elements.
func (tp *Tape) blank(shape []int, ins ...*Tensor) *Tensor {
	out := tp.made(tp.borrow(count(shape)), shape, ins...)
	if tp.scope > 0 {
		tp.lend(out)
	}
	return out
}

// view returns a tensor of count(shape) elements of x, from index at on.
func (tp *Tape) view(x *Tensor, at int, shape []int) *Tensor {
	n := count(shape)
	out := tp.made(x.data[at:at+n:at+n], shape, x)
	out.base, out.at = x, at
	if x.wide != nil {
		out.wide = x.wide[at : at+n : at+n]
	}
	return out
}

// made returns a tensor for the result of an operation from existing data.
func (tp *Tape) made(data []float32, shape []int, ins ...*Tensor) *Tensor {
	out := &Tensor{tape: tp, data: data, shape: slices.Clone(shape), pass: tp.pass}
	for _, t := range ins {
		if t == nil || !tp.recording() {
			continue
		}
		out.needs = out.needs || t.needs
		if p := t.root().param; t.needs || p != nil && p.memory == nil {
			out.ins = append(out.ins, t)
		}
	}
	return out
}

// Backward adds scale times the gradient of loss, a tensor of one element, to the Grad of each
// trainable parameter on which loss depends. It frees the operations that it reverses, except
// those on which another, unreversed result depends: several losses of one pass can each be
// reversed. An error frees the whole record.
func (tp *Tape) Backward(loss *Tensor, scale float32) error {
	if tp.ready("backward", loss) && loss.Len() != 1 {
		tp.fail("backward: the loss has shape %v, want one element", loss)
	}
	return tp.BackwardFrom(loss, []float32{scale})
}

// Backward calls [Tape.Backward] on loss's tape.
func Backward(loss *Tensor, scale float32) error {
	if loss == nil {
		return fmt.Errorf("tensor: backward: got a nil loss")
	}
	return loss.tape.Backward(loss, scale)
}

// BackwardFrom is [Tape.Backward] for a tensor of any shape. grad is the gradient with respect to
// t, element by element.
func (tp *Tape) BackwardFrom(t *Tensor, grad []float32) error {
	if tp.ready("backward", t) {
		switch {
		case !t.needs:
			tp.fail("backward: the tensor of shape %v depends on no trainable parameter", t)
		case len(grad) != len(t.data):
			tp.fail("backward: got a gradient of %d elements for shape %v", len(grad), t)
		default:
			all := t.reached()
			tp.reacquire(all)
			addTo(tp.gradient(t), grad)
			tp.unwind(all)
		}
	}
	if tp.err != nil {
		return tp.Reset()
	}
	return tp.end()
}

// firstUse is a parameter and the number of operations before its first one.
type firstUse struct {
	p  *Parameter
	at int
}

// report releases the gradients of parameters that no operation before number i uses, and calls
// complete for them.
func (tp *Tape) report(i int) {
	for n := len(tp.firsts) - 1; n >= 0 && tp.firsts[n].at >= i && !tp.opaque && tp.err == nil; n-- {
		tp.releaseGradients(tp.firsts[n].p)
		if tp.complete != nil {
			tp.complete(tp.firsts[n].p)
		}
		tp.firsts = tp.firsts[:n]
	}
}

// BackwardReady is [Backward] that calls ready for each parameter whose gradient is complete,
// during the pass and in its goroutine. It does not call it for parameters of a [Tape.Function]
// without Params or within [Tape.Checkpoint], nor for any other parameter of a pass that has one.
func BackwardReady(loss *Tensor, scale float32, ready func(*Parameter)) error {
	if loss == nil {
		return Backward(loss, scale)
	}
	loss.tape.complete = ready
	defer func() { loss.tape.complete = nil }()
	return loss.tape.Backward(loss, scale)
}

// add computes dst += src on all threads.
func (tp *Tape) add(dst, src []float32) {
	tp.ranges(len(dst), func(lo, hi int) { addTo(dst[lo:hi], src[lo:hi]) })
}

func addTo(dst, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}
