package tensor

import (
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/matmul"
)

// Options of a [Tape]. The zero value is good.
type Options struct {
	// Threads computes results; 0 means as many as Go runs at once.
	Threads int
	// Kernels is the variant of the inner loops: "go", "avx2", … The best one if empty.
	Kernels string
	// Autocast is the precision of products where [Tape.Autocast] says nothing else.
	Autocast Precision
}

// Tape computes tensors and records how. One tape serves any number of passes, one after
// another.
type Tape struct {
	threads int
	set     *kernels.Set
	gemm    *matmul.Multiplier
	panels  sync.Pool // of *panel
	err     error
	silent  int // depth of NoGrad

	autocast Precision
	casts    map[*Tensor]*Tensor // parameters in another precision, for one pass
	pass     int
	ops      []op
	frees    []func() // of Functions, when the record is freed
	uses     map[used]*Tensor
	acquired []*Parameter   // of uses, whose numbers are not always in memory
	spare    map[int]*shelf // memory to use again, by length
	scope    int            // depth of Within
	lent     []*Tensor      // memory that comes back at the end of the pass
}

// op is one recorded operation. back reads out's gradient and adds to those of its
// inputs.
type op struct {
	out  *Tensor
	back func(grad []float32)
}

// NewTape makes an empty tape. An unknown variant of kernels is the tape's first error.
func NewTape(o Options) *Tape {
	tp := &Tape{threads: o.Threads, autocast: o.Autocast, uses: map[used]*Tensor{}, spare: map[int]*shelf{}}
	if tp.threads <= 0 {
		tp.threads = runtime.GOMAXPROCS(0)
	}
	tp.panels.New = func() any { return new(panel) }
	if tp.set, tp.err = kernels.Select(o.Kernels); tp.err != nil {
		tp.err = fmt.Errorf("tensor: %w", tp.err)
	}
	tp.gemm = matmul.New(tp.set, tp.parallel)
	return tp
}

// Err is the first error since the tape was new or reset.
func (tp *Tape) Err() error { return tp.err }

// Reset forgets what was recorded, as after a pass that is not to be differentiated, and
// returns and clears the error. Backward does it by itself.
func (tp *Tape) Reset() error {
	err := tp.err
	tp.err = nil
	for _, o := range tp.ops {
		tp.recycle(o.out)
	}
	clear(tp.ops)
	tp.ops = tp.ops[:0]
	for _, free := range tp.frees {
		free()
	}
	clear(tp.frees)
	tp.frees = tp.frees[:0]
	clear(tp.uses)
	if e := tp.release(); err == nil {
		err = e
	}
	tp.tidy()
	tp.pass++
	return err
}

// NoGrad runs f without recording: what it computes is constant to Backward.
func (tp *Tape) NoGrad(f func()) {
	tp.silent++
	defer func() { tp.silent-- }()
	f()
}

func (tp *Tape) recording() bool { return tp.silent == 0 }

// Input puts data, which the tape keeps and does not change, under a shape; none stands
// for a vector. It is constant to Backward: a [Parameter] is what gets a gradient.
func (tp *Tape) Input(data []float32, shape ...int) *Tensor {
	if tp.err != nil {
		return tp.void()
	}
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	if !sized(shape, len(data)) {
		return tp.fail("input: %d numbers for the shape %v", len(data), shape)
	}
	return &Tensor{tape: tp, data: data, shape: slices.Clone(shape), pass: tp.pass}
}

// Scalar is a constant without dimensions.
func (tp *Tape) Scalar(v float32) *Tensor {
	if tp.err != nil {
		return tp.void()
	}
	return &Tensor{tape: tp, data: []float32{v}, pass: tp.pass}
}

// fail records the first error and returns the empty tensor that stands for no result.
func (tp *Tape) fail(format string, args ...any) *Tensor {
	if tp.err == nil {
		tp.err = fmt.Errorf("tensor: "+format, args...)
	}
	return tp.void()
}

func (tp *Tape) void() *Tensor { return &Tensor{tape: tp, shape: []int{0}, pass: tp.pass} }

// ready reports whether an operation can run on its inputs; nil ones are refused.
func (tp *Tape) ready(name string, ins ...*Tensor) bool {
	if tp.err != nil {
		return false
	}
	for i, t := range ins {
		switch {
		case t == nil:
			tp.fail("%s: operand %d is missing", name, i+1)
		case t.tape != tp:
			tp.fail("%s: operand %d, %v, is of another tape", name, i+1, t)
		case t.needs && t.pass != tp.pass:
			tp.fail("%s: operand %d, %v, is of a pass whose record is freed", name, i+1, t)
		default:
			continue
		}
		return false
	}
	return true
}

// result makes the tensor of an operation, filled with zeros.
func (tp *Tape) result(shape []int, ins ...*Tensor) *Tensor {
	if tp.scope == 0 {
		return tp.made(make([]float32, count(shape)), shape, ins...)
	}
	out := tp.blank(shape, ins...)
	clear(out.data)
	return out
}

// blank is result with any numbers, all of which the operation will set.
func (tp *Tape) blank(shape []int, ins ...*Tensor) *Tensor {
	out := tp.made(tp.borrow(count(shape)), shape, ins...)
	if tp.scope > 0 {
		tp.lend(out)
	}
	return out
}

// view makes a tensor of count(shape) numbers of x from at on.
func (tp *Tape) view(x *Tensor, at int, shape []int) *Tensor {
	n := count(shape)
	out := tp.made(x.data[at:at+n:at+n], shape, x)
	out.base, out.at = x, at
	if x.wide != nil {
		out.wide = x.wide[at : at+n : at+n]
	}
	return out
}

// made makes the tensor of an operation of data that is there.
func (tp *Tape) made(data []float32, shape []int, ins ...*Tensor) *Tensor {
	out := &Tensor{tape: tp, data: data, shape: slices.Clone(shape), pass: tp.pass}
	for _, t := range ins {
		out.needs = out.needs || t != nil && t.needs && tp.recording()
	}
	return out
}

// record keeps the reverse of out's operation, if out needs a gradient.
func (tp *Tape) record(out *Tensor, back func(grad []float32)) *Tensor {
	if out.needs {
		tp.ops = append(tp.ops, op{out, back})
	}
	return out
}

// Backward adds scale times the gradient of loss, a tensor of one element, to the Grad
// of each trainable parameter that loss depends on. It frees the record, error or not.
func (tp *Tape) Backward(loss *Tensor, scale float32) error {
	if tp.ready("backward", loss) && loss.Len() != 1 {
		tp.fail("backward: the loss has shape %v, want one element", loss)
	}
	return tp.BackwardFrom(loss, []float32{scale})
}

// Backward is [Tape.Backward] of the tape that t is on.
func Backward(loss *Tensor, scale float32) error {
	if loss == nil {
		return fmt.Errorf("tensor: backward: no loss")
	}
	return loss.tape.Backward(loss, scale)
}

// BackwardFrom is [Tape.Backward] of any tensor, given the gradient of what depends on
// it, element by element.
func (tp *Tape) BackwardFrom(t *Tensor, grad []float32) error {
	if tp.ready("backward", t) {
		switch {
		case !t.needs:
			tp.fail("backward: no trainable parameter is behind the tensor of shape %v", t)
		case len(grad) != len(t.data):
			tp.fail("backward: a gradient of %d numbers for the shape %v", len(grad), t)
		default:
			addTo(tp.gradient(t), grad)
			tp.unwind()
		}
	}
	return tp.Reset()
}

// unwind runs the record in reverse.
func (tp *Tape) unwind() {
	for i := len(tp.ops) - 1; i >= 0 && tp.err == nil; i-- {
		o := tp.ops[i]
		tp.ops[i] = op{}
		if o.out.grad != nil {
			o.back(o.out.grad)
			tp.recycle(o.out)
		}
		tp.takeBack(o.out)
		tp.ops = tp.ops[:i]
	}
}

// add is dst += src on all threads.
func (tp *Tape) add(dst, src []float32) {
	tp.ranges(len(dst), func(lo, hi int) { addTo(dst[lo:hi], src[lo:hi]) })
}

func addTo(dst, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] += src[i]
	}
}
