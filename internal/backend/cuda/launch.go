//go:build cuda

package cuda

import (
	"unsafe"

	"github.com/heftai/heft/internal/backend/cuda/driver"
)

// mostWords is the maximum number of words of a launch's operands.
const mostWords = 160

// A pending launch is the last launch, which has not been passed to the driver yet. The next
// operation may replace it by a kernel that computes both. Anything else that is queued flushes it
// first.
type pending struct {
	kernel        kernel
	x, y, threads int
	shared        int // bytes of dynamic memory
	operands      int // words; 0 for no launch
	whole         bool
	words         [mostWords]uint64
}

// launch queues a kernel over x·y blocks of the given number of threads.
func (b *Backend) launch(k kernel, x, y, threads int, args ...uint64) {
	p := b.next(k, x, y, threads, len(args))
	if p != nil {
		copy(p.words[:], args)
	}
}

// launchShared is like launch, for blocks with the given bytes of dynamic shared memory.
func (b *Backend) launchShared(k kernel, x, y, threads, shared int, args ...uint64) {
	if b.launch(k, x, y, threads, args...); b.pending.is(k) {
		b.pending.shared = shared
	}
}

// launchStruct is like launch, for a kernel whose operand is a struct of words.
func launchStruct[T any](b *Backend, k kernel, x, y, threads int, operand *T) {
	n := int(unsafe.Sizeof(*operand) / 8)
	if p := b.next(k, x, y, threads, n); p != nil {
		p.whole = true
		copy(p.words[:n], unsafe.Slice((*uint64)(unsafe.Pointer(operand)), n))
	}
}

// next returns the pending launch, to be filled with words of operands. It returns nil if there is
// nothing to launch.
func (b *Backend) next(k kernel, x, y, threads, words int) *pending {
	if b.err != nil || x == 0 || y == 0 {
		return nil
	}
	b.flush()
	if words > mostWords {
		b.fail("%s: %d words of operands, at most %d are possible", kernelNames[k], words, mostWords)
		return nil
	}
	p := &b.pending
	p.kernel, p.x, p.y, p.threads, p.shared, p.operands, p.whole = k, x, y, threads, sharedBytes[k], words, false
	return p
}

// flush passes the pending launch to the driver.
func (b *Backend) flush() {
	p := &b.pending
	if p.operands == 0 {
		return
	}
	words := p.words[:p.operands]
	p.operands = 0
	if b.err != nil {
		return
	}
	b.launches++
	l := driver.Launch{Kernel: b.functions[p.kernel], X: p.x, Y: p.y, Threads: p.threads, Shared: p.shared, Struct: p.whole, Early: b.capability9 && p.kernel >= firstFast}
	b.check(kernelNames[p.kernel], b.queue.Launch(l, words))
}

// flushed flushes the pending launch and returns the queue.
func (b *Backend) flushed() *driver.Queue {
	b.flush()
	return &b.queue
}

// is reports whether the pending launch is for kernel k.
func (p *pending) is(k kernel) bool { return p.operands > 0 && p.kernel == k }
