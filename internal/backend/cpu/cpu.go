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

// Options configure a [Backend]. The zero value means one thread and the best kernels.
type Options struct {
	Threads int             // 0 means 1
	Variant string          // kernel variant; "" means the best one that this processor supports
	Ledger  *hostmem.Ledger // counts the memory; if nil, nothing is counted
	Arena   *hostmem.Arena  // memory for tensors; if nil, they are allocated separately
	// Layout determines where threads run: all except the caller's are pinned to their memory
	// nodes. If it is nil, the system places them.
	Layout *topology.Layout
	// Waiting returns how threads make room for the threads that read weights, and whether weights are
	// being read that a pass waits for. It matters if the threads leave no processor for reads. nil
	// means Spin. It is called often and must be safe for concurrent use.
	Waiting func() (how Waiting, reading bool)
}

// Waiting is how threads make room for the threads that read weights.
type Waiting uint8

const (
	Spin  Waiting = iota // they do not: threads without work spin for a while, then park
	Yield                // they let others run now and then, also while they compute during a read
	Sleep                // threads without work park at once during a read
)

// Backend computes on the host. See the package documentation.
type Backend struct {
	set    *kernels.Set
	pool   *pool
	ledger *hostmem.Ledger
	arena  *hostmem.Arena

	mu     sync.Mutex // guards err and blocks
	err    error
	failed atomic.Bool
	blocks map[*byte]*hostmem.Block

	vectors [4]scratch // operands that had to be widened
	input   scratch    // an input that was rounded
	gemm    *matmul.Multiplier
	// The operations. They are kept so that a call does not allocate.
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
	reverse reverseProfiles
	move    move
}

// New starts the threads of a backend. It returns an error if the processor does not support
// o.Variant.
func New(o Options) (*Backend, error) {
	set, err := kernels.Select(o.Variant)
	if err != nil {
		return nil, err
	}
	b := &Backend{set: set, ledger: o.Ledger, arena: o.Arena, blocks: map[*byte]*hostmem.Block{}}
	waiting := o.Waiting
	if o.Threads > maxYielding || o.Threads < runtime.GOMAXPROCS(0) {
		waiting = nil
	}
	b.pool = newPool(o.Threads, o.Layout, waiting, b.recovered)
	b.gemm = matmul.New(set, b.Parallel)
	b.gemm.Threads = max(o.Threads, 1)
	return b, nil
}

// Variant returns the name of the kernel variant in use.
func (b *Backend) Variant() string { return b.set.Name }

// Lanes returns the number of partial sums of a dot product in float32.
func (b *Backend) Lanes() int { return b.set.Lanes }

// Rouse wakes the threads that have parked, because an operation will follow at once. They wait for
// it some tenths of a millisecond, then park again. It is safe for concurrent use.
func (b *Backend) Rouse() { b.pool.rouseAfter(b.pool.workers[0]) }

// Threads returns the number of threads that share an operation.
func (b *Backend) Threads() int { return len(b.pool.workers) }

// New allocates a tensor outside the Go heap, in whole pages.
func (b *Backend) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	return b.alloc(hostmem.Activations, dtype, dims)
}

// Memory returns memory of the backend that is counted for purpose p instead of activations.
func (b *Backend) Memory(p hostmem.Purpose) backend.Memory { return purposeful{b, p} }

type purposeful struct {
	*Backend
	purpose hostmem.Purpose
}

func (m purposeful) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	return m.alloc(m.purpose, dtype, dims)
}

// Discard returns the pages of t to the system. t is a part of a tensor that New returned. Its
// elements are undefined until they are written.
func (b *Backend) Discard(t tensor.Tensor) { hostmem.Discard(t.Data[:t.Bytes()]) }

// SmallPages backs t with pages of the smallest size, even if it shares a huge page with its
// neighbour. t is an unused part of a tensor that New returned.
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

// Free frees t, which New returned. It ignores other tensors, including views that begin
// elsewhere.
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

// Sync returns the first error since the last Sync. It does not wait, because operations are
// complete when they return.
func (b *Backend) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.err
	b.err = nil
	b.failed.Store(false)
	return err
}

// Close stops the threads and frees all memory.
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

// fail keeps the error if it is the first.
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

// recovered turns a panic of a unit into the sticky error: a memory fault if the panic has an
// address, or else a fault in an operand that the checks did not find.
func (b *Backend) recovered(r any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if address, ok := hostmem.FaultAddress(r); ok {
		b.setError(&backend.FaultError{Address: address})
		return
	}
	b.setError(fmt.Errorf("backend: operation failed: %v\n%s", r, debug.Stack()))
}

// run runs an operation unless an earlier one failed. work is the number of steps of all units
// together.
func (b *Backend) run(t task, units, work int) {
	if !b.failed.Load() {
		b.pool.run(t, units, work)
	}
}

// Parallel calls f for each unit, in any order, on the backend's threads. A panic of f becomes
// the error of the next Sync.
func (b *Backend) Parallel(units int, f func(unit int)) {
	b.run(taskFunc(func(_ *worker, unit int) { f(unit) }), units, worthSharing)
}
