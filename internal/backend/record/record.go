package record

import (
	"slices"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Recorder = (*Recorder)(nil)

// Weights distinguishes trainable weights from frozen ones.
type Weights interface {
	// Gradient returns the float32 memory in which the gradient of w accumulates. If w is a view of
	// a trainable weight, of any dtype, it is the same view of the gradient. ok is false if w is
	// frozen.
	Gradient(w tensor.Tensor) (t tensor.Tensor, ok bool)
	// Trains reports whether Gradient has memory for w. It allocates none.
	Trains(w tensor.Tensor) bool
}

// Recorder is a [backend.Recorder]. It is not safe for concurrent use.
type Recorder struct {
	backend.Backend // for operations that are neither recorded nor changed
	compute         backend.Gradients
	weights         Weights

	on      bool
	reverse []func()
	values  []value
	live    []int // values that are still in place and could be overwritten
	recipes []recipe
	remade  []int // values that were recomputed, by age
	hosts   []host
	memory
	iota []int32
	ones []float32
}

// New returns a recorder on top of b. Closing the recorder closes b.
func New(b backend.Gradients, w Weights) *Recorder {
	return &Recorder{Backend: b, compute: b, weights: w, memory: memory{backend: b, blocks: map[int32]*block{}}}
}

// Record starts recording.
func (r *Recorder) Record() { r.on = true }

// Pause stops recording. The record stays: values that later operations overwrite are saved.
func (r *Recorder) Pause() { r.on = false }

// Recording reports whether operations are remembered.
func (r *Recorder) Recording() bool { return r.on }

// Mark returns the current end of the record. Memory that Take returned earlier is not written
// again, so the recorder no longer tracks its values. It copies other values now, or stores how
// to recompute them, because a copy made after the mark would be dropped before them.
func (r *Recorder) Mark() backend.Mark {
	for _, i := range r.live {
		if b := r.blocks[r.values[i].t.Owner]; b != nil && !b.chunk { // nor is the host's
			r.keepValue(i)
		}
	}
	r.live, r.recipes = r.live[:0], r.recipes[:0]
	return backend.Mark{Operations: len(r.reverse), Values: len(r.values), Hosts: len(r.hosts), Chunk: r.chunk, Used: r.used}
}

// Reverse runs the record backwards to the mark and drops it. Sync returns its errors.
func (r *Recorder) Reverse(to backend.Mark) {
	on := r.on
	r.on = false
	for i := len(r.reverse) - 1; i >= to.Operations; i-- {
		r.reverse[i]()
	}
	r.on = on
	r.drop(to)
	r.lendIdle()
}

// Forget drops the record after the mark without running it.
func (r *Recorder) Forget(to backend.Mark) { r.drop(to) }

// Clear drops all operations and sets all gradients to 0.
func (r *Recorder) Clear() {
	r.drop(backend.Mark{})
	r.clearShadows(r.compute)
}

// Drop sets the gradient of a view to 0, even if it is infinite or NaN.
func (r *Recorder) Drop(t tensor.Tensor) {
	if g := r.Gradient(t); !g.IsZero() {
		r.compute.Zero(g)
	}
}

func (r *Recorder) drop(to backend.Mark) {
	clear(r.reverse[to.Operations:])
	r.reverse = r.reverse[:to.Operations]
	r.values = r.values[:to.Values]
	clear(r.hosts[to.Hosts:])
	r.hosts = r.hosts[:to.Hosts]
	r.live = slices.DeleteFunc(r.live, func(i int) bool { return i >= to.Values })
	r.recipes = r.recipes[:0]
	r.forgetRemade(0)
	r.replaced.owner, r.replaced.lo, r.replaced.hi = 0, 0, 0
	r.rewind(to.Chunk, to.Used)
}

// New allocates memory that has gradients.
func (r *Recorder) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	return r.alloc(dtype, dims...)
}

// Free frees memory and its shadow.
func (r *Recorder) Free(t tensor.Tensor) { r.free(t) }

// Take returns memory for a result.
func (r *Recorder) Take(rows, cols int) tensor.Tensor {
	t, err := r.take(rows, cols)
	if err != nil {
		r.fail(err)
		return tensor.Tensor{}
	}
	return t
}

// Gradient returns a view of the shadow. It is absent for memory that the recorder did not
// allocate.
func (r *Recorder) Gradient(t tensor.Tensor) tensor.Tensor {
	if t.IsZero() {
		return t
	}
	s, err := r.shadow(t)
	if err != nil {
		r.fail(err)
	}
	return s
}

// fail makes Sync return an error of the recorder.
func (r *Recorder) fail(err error) {
	if r.failed == nil {
		r.failed = err
	}
}

// Sync waits for the operations and returns the first error.
func (r *Recorder) Sync() error {
	err := r.Backend.Sync()
	if r.failed != nil {
		err, r.failed = r.failed, nil
	}
	return err
}

// A value is an operand that a backward operation reads.
type value struct {
	t      tensor.Tensor
	lo, hi uintptr
	// remake recomputes the value. It is nil if storing the value is cheaper.
	remake func(to tensor.Tensor)
	gone   bool // until it is recomputed
}

// keep stores an operand and returns its index, or -1 for an absent one.
func (r *Recorder) keep(t tensor.Tensor) int {
	if t.IsZero() {
		return -1
	}
	for i := len(r.live) - 1; i >= 0; i-- {
		if v := &r.values[r.live[i]]; tensor.Same(v.t, t) {
			return r.live[i]
		}
	}
	lo, hi := extent(t)
	r.values = append(r.values, value{t: t, lo: lo, hi: hi, remake: r.recipeOf(t)})
	r.live = append(r.live, len(r.values)-1)
	return len(r.values) - 1
}

func (r *Recorder) value(i int) tensor.Tensor {
	if i < 0 {
		return tensor.Tensor{}
	}
	if r.values[i].gone {
		r.makeAgain(i)
	}
	return r.values[i].t
}

// unrecorded reports whether an operation that is about to overwrite dst is not recorded. It then
// saves the values that the operation overwrites.
func (r *Recorder) unrecorded(dst tensor.Tensor) bool {
	if !r.on {
		r.write(dst)
	}
	return !r.on
}

// write saves the values that an operation is about to overwrite.
func (r *Recorder) write(dst tensor.Tensor) {
	lo, hi := extent(dst)
	r.recipes = slices.DeleteFunc(r.recipes, func(x recipe) bool { return x.lo < hi && lo < x.hi })
	r.live = slices.DeleteFunc(r.live, func(i int) bool {
		v := &r.values[i]
		if v.hi <= lo || hi <= v.lo {
			return false
		}
		r.keepValue(i)
		return true
	})
}

// keepValue copies a value out of its memory, or marks it to be recomputed when it is read.
func (r *Recorder) keepValue(i int) {
	if v := &r.values[i]; v.remake != nil {
		v.gone = true
		return
	}
	r.move(i)
}

// move copies a value to memory that does not change.
func (r *Recorder) move(i int) {
	v := &r.values[i]
	old := v.t
	v.t = r.Take(old.Rows(), old.Cols())
	r.Backend.Gather(v.t, old, r.count(old.Rows()))
}

// push records the backward operation of an operation that has overwritten dst. reverse receives
// the gradient of dst, which is then cleared.
func (r *Recorder) push(dst tensor.Tensor, reverse func(dy tensor.Tensor), operands ...tensor.Tensor) {
	lo, hi := extent(dst)
	inPlace := slices.ContainsFunc(operands, func(t tensor.Tensor) bool {
		a, b := extent(t)
		return !t.IsZero() && lo < b && a < hi && overlap(dst, t)
	})
	r.reverse = append(r.reverse, func() {
		dy := r.Gradient(dst)
		switch {
		case dy.IsZero():
		case inPlace:
			chunk, used, made := r.chunk, r.used, len(r.remade)
			moved := r.Take(dy.Rows(), dy.Cols())
			r.compute.Gather(moved, dy, r.count(dy.Rows()))
			r.compute.Zero(dy)
			reverse(moved)
			r.forgetRemade(made)
			r.rewind(chunk, used)
		default:
			reverse(dy)
			if !tensor.Same(dy, dst) {
				r.compute.Zero(dy)
			}
		}
	})
}

// Replace returns the gradient of t in the memory of t, valid until the backward pass, if no
// backward operation reads the values of t. It initially has the values of t. If the values are
// needed, the gradient is zeros in memory of its own.
func (r *Recorder) Replace(t tensor.Tensor) tensor.Tensor {
	lo, hi := extent(t)
	wanted := slices.ContainsFunc(r.live, func(i int) bool { return r.values[i].lo < hi && lo < r.values[i].hi })
	if r.blocks[t.Owner] != nil && !wanted {
		r.replaced.owner, r.replaced.lo, r.replaced.hi = t.Owner, lo, hi
	}
	return r.Gradient(t)
}

// count returns 0, 1, …, n-1.
func (r *Recorder) count(n int) []int32 {
	for i := len(r.iota); i < n; i++ {
		r.iota = append(r.iota, int32(i))
	}
	return r.iota[:n]
}

func (r *Recorder) units(n int) []float32 {
	for len(r.ones) < n {
		r.ones = append(r.ones, 1)
	}
	return r.ones[:n]
}

// extent returns the range of addresses of a view, including the gaps between rows.
func extent(t tensor.Tensor) (lo, hi uintptr) {
	if t.Elements() == 0 {
		return 0, 0
	}
	n := t.Rows()
	lo = address(t)
	return lo, lo + uintptr(t.DType.Bytes(int64((n-1)*t.RowStride()+t.Cols())))
}

func address(t tensor.Tensor) uintptr {
	if t.Data != nil {
		return uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
	}
	return t.Address
}

// overlap reports whether two views whose extents overlap share an element. Different columns of
// one matrix do not.
func overlap(a, b tensor.Tensor) bool {
	if a.Rank != 2 || b.Rank != 2 || a.RowStride() != b.RowStride() || a.DType != b.DType {
		return true
	}
	stride := int(a.DType.Bytes(int64(a.RowStride())))
	apart := int(address(b)) - int(address(a))
	apart = (apart%stride + stride) % stride
	width, other := int(a.DType.Bytes(int64(a.Cols()))), int(b.DType.Bytes(int64(b.Cols())))
	return apart < width || apart+other > stride
}
