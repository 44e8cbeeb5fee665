package cpu

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/internal/topology"
	"github.com/heftai/heft/meta"
)

var _ backend.Backend = (*Backend)(nil)

// Options configure a [Backend]. The zero value is one thread and the best kernels.
type Options struct {
	Threads int             // 0 means 1
	Variant string          // of the kernels; "" is the best one this processor has
	Ledger  *hostmem.Ledger // counts the memory; nil counts nothing
	Arena   *hostmem.Arena  // for tensors; nil means memory of their own
	// Layout says where threads run: all except the caller's stay on their memory nodes. nil leaves
	// them to the system.
	Layout *topology.Layout
	// Reading reports whether weights are being read that a pass waits for. If the threads, which are few, leave no
	// processor for reads, they sleep then as soon as they find no work. nil means never. Threads call it often.
	Reading func() bool
}

// Backend computes on the host. See the package comment.
type Backend struct {
	set    *kernels.Set
	pool   *pool
	ledger *hostmem.Ledger
	arena  *hostmem.Arena

	mu     sync.Mutex // guards err and blocks
	err    error
	failed atomic.Bool
	blocks map[*byte]*hostmem.Block

	vectors [4]scratch // of operands that had to be widened
	input   scratch    // of an input that was rounded
	gemm    *matmul.Multiplier
	// The operations. Their values are kept, so that a call allocates nothing.
	products        products
	attention       attentionOp
	byRole          spansByRole
	norm            norm
	rope            rope
	gate            gate
	conv            shortConv
	delta           deltaRule
	space           stateSpace
	scan            selectiveScan
	lru             gatedLRU
	wkv             wkv
	sparse          sparseRows
	choose          choose
	chosen          attentionChosen
	chooseBlocks    chooseBlocks
	attentionBlocks attentionBlocks
	averageKeys     averageKeys
	gateStreams     gateStreams
	entries         entryPool
	streams         streams

	alternating   alternating
	chooseEntries chooseEntries
	toEntries     attentionEntries

	embed   embed
	store   storeKV
	rows    moveRows
	scatter scatterAdd
	scale   scale
	route   route
	widen   widen
	turn    turn
	move    move
}

// New starts a backend's threads. It fails if the processor lacks o.Variant.
func New(o Options) (*Backend, error) {
	set, err := kernels.Select(o.Variant)
	if err != nil {
		return nil, err
	}
	b := &Backend{set: set, ledger: o.Ledger, arena: o.Arena, blocks: map[*byte]*hostmem.Block{}}
	reading := o.Reading
	if o.Threads > crowd || o.Threads < runtime.GOMAXPROCS(0) {
		reading = nil
	}
	b.pool = newPool(o.Threads, o.Layout, reading, b.recovered)
	b.gemm = matmul.New(set, b.Parallel)
	b.gemm.Threads = max(o.Threads, 1)
	return b, nil
}

// Variant returns the name of the kernels in use.
func (b *Backend) Variant() string { return b.set.Name }

// Lanes returns the number of partial sums of a dot product in float32.
func (b *Backend) Lanes() int { return b.set.Lanes }

// Threads returns the number of threads that share an operation.
func (b *Backend) Threads() int { return len(b.pool.workers) }

// New allocates off the Go heap, in whole pages.
func (b *Backend) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	return b.alloc(hostmem.Activations, dtype, dims)
}

// Memory returns the backend's memory, counted for another purpose than activations.
func (b *Backend) Memory(p hostmem.Purpose) backend.Memory { return purposeful{b, p} }

type purposeful struct {
	*Backend
	purpose hostmem.Purpose
}

func (m purposeful) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	return m.alloc(m.purpose, dtype, dims)
}

// Discard returns the pages of t, a part of what New returned, to the system. t's elements are undefined
// until they are written.
func (b *Backend) Discard(t tensor.Tensor) { hostmem.Discard(t.Data[:t.Bytes()]) }

// SmallPages backs t, an unused part of what New returned, by pages of the smallest size, also where it
// shares a huge page with its neighbour.
func (b *Backend) SmallPages(t tensor.Tensor) { hostmem.SmallPages(t.Data[:t.Bytes()]) }

func (b *Backend) alloc(p hostmem.Purpose, dtype meta.DType, dims []int) (tensor.Tensor, error) {
	for _, d := range dims {
		if d < 0 {
			return tensor.Tensor{}, fmt.Errorf("backend: tensor of shape %v", dims)
		}
	}
	size := int(dtype.Bytes(meta.Elements(dims)))
	block, err := b.block(p, max(size, 1))
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("backend: %w", err)
	}
	t, err := tensor.Of(block.Bytes()[:size:size], dtype, dims...)
	if err != nil {
		return tensor.Tensor{}, errors.Join(fmt.Errorf("backend: %w", err), block.Release())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks[unsafe.SliceData(t.Data)] = block
	return t, nil
}

func (b *Backend) block(p hostmem.Purpose, size int) (*hostmem.Block, error) {
	if b.arena != nil {
		return b.arena.Alloc(p, size)
	}
	return hostmem.Alloc(b.ledger, p, size)
}

// Free frees t, which New returned. It ignores other tensors, and views with another start.
func (b *Backend) Free(t tensor.Tensor) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := unsafe.SliceData(t.Data)
	if block := b.blocks[key]; block != nil {
		delete(b.blocks, key)
		if err := block.Release(); err != nil {
			b.setError(fmt.Errorf("backend: free: %w", err))
		}
	}
}

// Sync returns the first error since the last Sync. The operations are done already.
func (b *Backend) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.err
	b.err = nil
	b.failed.Store(false)
	return err
}

// Close ends the threads and frees all memory.
func (b *Backend) Close() error {
	b.pool.close()
	var errs []error
	for key, block := range b.blocks {
		errs = append(errs, block.Release())
		delete(b.blocks, key)
	}
	for _, w := range b.pool.workers {
		errs = append(errs, w.scratch.free())
	}
	for i := range b.vectors {
		errs = append(errs, b.vectors[i].free())
	}
	errs = append(errs, b.input.free())
	return errors.Join(errs...)
}

// fail keeps the first error.
func (b *Backend) fail(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setError(fmt.Errorf("backend: "+format, args...))
}

func (b *Backend) setError(err error) {
	if b.err == nil {
		b.err = err
	}
	b.failed.Store(true)
}

// recovered turns a panic of a unit into the sticky error: a memory fault if it has an address,
// else an operand that the checks did not reject.
func (b *Backend) recovered(r any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if address, ok := hostmem.FaultAddress(r); ok {
		b.setError(&backend.FaultError{Address: address})
		return
	}
	b.setError(fmt.Errorf("backend: operation failed: %v\n%s", r, debug.Stack()))
}

// run runs an operation unless an earlier one failed. work is the number of steps of all units.
func (b *Backend) run(t task, units, work int) {
	if !b.failed.Load() {
		b.pool.run(t, units, work)
	}
}

// Parallel calls f for each unit, in any order, on the backend's threads, as operations do. A panic of f
// is the error of the next Sync.
func (b *Backend) Parallel(units int, f func(unit int)) {
	b.run(taskFunc(func(_ *worker, unit int) { f(unit) }), units, worthSharing)
}
