//go:build cuda

package cuda

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend/cuda/driver"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func (b *Backend) allocate(n int64) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(b.context); err != nil {
		return 0, err
	}
	p, err := cu.MemAlloc(max(n, 1))
	if err == nil {
		b.counters.bytes.Add(n)
	}
	return uintptr(p), err
}

// free frees n bytes returned by allocate.
func (b *Backend) free(p uintptr, n int64) {
	b.counters.bytes.Add(-n)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cu.SetCurrentContext(b.context) == nil {
		_ = cu.MemFree(cu.DevicePtr(p)) // on a lost device, nothing can or need be freed
	}
}

// New allocates GPU memory, set to zeros.
func (b *Backend) New(dtype meta.DType, dims ...int) (tensor.Tensor, error) {
	t, n, err := b.newTensor(dtype, dims)
	if err != nil {
		return t, err
	}
	b.live.add(t.Address, n)
	return t, b.clear(t.Address, n)
}

// newTensor allocates memory. It returns the size n in bytes.
func (b *Backend) newTensor(dtype meta.DType, dims []int) (t tensor.Tensor, n int64, err error) {
	t = tensor.Tensor{DType: dtype, Rank: len(dims)}
	if len(dims) > tensor.MaxRank {
		return tensor.Tensor{}, 0, fmt.Errorf("cuda: tensor of shape %v has more than %d dimensions", dims, tensor.MaxRank)
	}
	for i, d := range dims {
		if d < 0 {
			return tensor.Tensor{}, 0, fmt.Errorf("cuda: tensor of shape %v", dims)
		}
		t.Dims[i] = d
	}
	n = dtype.Bytes(meta.Elements(dims))
	if t.Address, err = b.allocate(n); err != nil {
		return tensor.Tensor{}, 0, fmt.Errorf("cuda: allocate %d bytes: %w", n, err)
	}
	return t, n, nil
}

// clear sets new memory to zeros.
func (b *Backend) clear(p uintptr, n int64) error {
	if err := b.flushed().Clear(p, int(max(n, 1))); err != nil {
		return err
	}
	return b.flushed().Wait() // the next use may be a Fill, on another queue
}

// Free waits for the operations queued so far.
func (b *Backend) Free(t tensor.Tensor) {
	if n, ok := b.live.remove(t.Address); ok {
		b.check("wait", b.flushed().Wait())
		b.free(t.Address, n)
	}
}

// allocation is memory returned by New.
type allocation struct {
	address uintptr
	size    int64
}

// allocations are sorted by address.
type allocations []allocation

// find returns the index of an address among the allocations, and whether an allocation begins
// there.
func (l allocations) find(p uintptr) (at int, ok bool) {
	return slices.BinarySearchFunc(l, p, func(a allocation, p uintptr) int { return cmp.Compare(a.address, p) })
}

func (l *allocations) add(p uintptr, n int64) {
	at, _ := l.find(p)
	*l = slices.Insert(*l, at, allocation{p, n})
}

// remove removes the allocation that begins at p and returns its size.
func (l *allocations) remove(p uintptr) (n int64, ok bool) {
	at, ok := l.find(p)
	if ok {
		n = (*l)[at].size
		*l = slices.Delete(*l, at, at+1)
	}
	return n, ok
}

// holds reports whether the n bytes at p are within one allocation.
func (l allocations) holds(p uintptr, n int) bool {
	at, ok := l.find(p)
	if !ok {
		at--
	}
	return n <= 0 || at >= 0 && int64(p-l[at].address)+int64(n) <= l[at].size
}

// holds reports whether the n bytes at p are within one allocation, so that a kernel may access
// them.
func (b *Backend) holds(p uintptr, n int) bool { return b.live.holds(p, n) || b.shared.holds(p, n) }

// Copy copies between host and GPU through pinned memory, so the host memory may be of any kind. It
// does not pass memory of a mapped file to the driver, which could not survive a page fault that
// fails.
func (b *Backend) Copy(dst, src tensor.Tensor) error {
	if b.err != nil {
		return b.Sync()
	}
	return (&copyQueue{b.flushed(), b.bounce}).copy(dst, src, &b.counters)
}

// A copyQueue copies between host and GPU through pinned memory.
type copyQueue struct {
	queue  *driver.Queue
	bounce []byte
}

// copy copies src to dst and waits for the end.
func (q *copyQueue) copy(dst, src tensor.Tensor, count *counters) error {
	if dst.DType != src.DType || dst.Rank != src.Rank || dst.Dims != src.Dims {
		return fmt.Errorf("cuda: copy of %v %v to %v %v", src.DType, src.Shape(), dst.DType, dst.Shape())
	}
	began := time.Now()
	defer func() { count.copying.Add(int64(time.Since(began))) }()
	rows, width := max(dst.Rows(), 1), int(dst.DType.Bytes(int64(dst.Cols())))
	to, from := int(dst.DType.Bytes(int64(dst.RowStride()))), int(src.DType.Bytes(int64(src.RowStride())))
	if to == width && from == width || dst.Rank == 0 {
		rows, width = 1, rows*width
	}
	if dst.Elements() == 0 {
		return nil
	}
	for r := range rows {
		for at := 0; at < width; at += len(q.bounce) {
			if err := q.copyPart(dst, src, r*to+at, r*from+at, min(len(q.bounce), width-at), count); err != nil {
				return fmt.Errorf("cuda: copy of %v %v: %w", src.DType, src.Shape(), err)
			}
		}
	}
	return q.queue.Wait()
}

// copyPart copies n bytes between the given offsets, at most the size of the bounce buffer.
func (q *copyQueue) copyPart(dst, src tensor.Tensor, to, from, n int, count *counters) error {
	switch {
	case dst.Data != nil && src.Data != nil:
		copy(dst.Data[to:to+n], src.Data[from:from+n])
		return nil
	case src.Data != nil:
		if err := q.queue.Wait(); err != nil { // of the previous copy
			return err
		}
		copy(q.bounce, src.Data[from:from+n])
		count.toDevice.Add(int64(n))
		return q.queue.ToDevice(dst.Address+uintptr(to), q.bounce[:n])
	case dst.Data != nil:
		count.toHost.Add(int64(n))
		if err := q.queue.ToHost(q.bounce[:n], src.Address+uintptr(from)); err != nil {
			return err
		}
		if err := q.queue.Wait(); err != nil {
			return err
		}
		copy(dst.Data[to:to+n], q.bounce)
		return nil
	}
	return q.queue.OnDevice(dst.Address+uintptr(to), src.Address+uintptr(from), n)
}

// ring holds small operands of queued operations, in pinned host memory and in as much GPU memory.
type ring struct {
	host   []byte
	device uintptr
	used   int
	sent   [sentMost]sent // the latest operands, which need not be sent again
	next   int
}

// sent is the place of operands in the ring.
type sent struct{ at, bytes int }

// sentMost is the number of recent operands that can be found again. It suffices for the operands
// of one layer, for all groups of layers.
const sentMost = 16

// empty discards the ring's contents. No queued operation may read them.
func (r *ring) empty() {
	r.used, r.next = 0, 0
	r.sent = [sentMost]sent{}
}

// find returns the offset of the bytes of v in the ring, if they have been sent.
func (r *ring) find(v []byte) (at int, ok bool) {
	for _, s := range r.sent {
		if s.bytes == len(v) && bytes.Equal(r.host[s.at:s.at+s.bytes], v) {
			return s.at, true
		}
	}
	return 0, false
}

const (
	ringBytes = 4 << 20
	ringAlign = 64
)

// room makes room for the operands of one operation, which are stored separately.
func (b *Backend) room(operands ...int) {
	total := 0
	for _, n := range operands {
		total += 4*n + ringAlign
	}
	switch {
	case b.err != nil:
	case total > ringBytes:
		b.fail("%d bytes of operands, at most %d are possible", total, ringBytes)
	case b.ring.used+total > ringBytes: // queued operations may still read the ring
		b.check("wait", b.flushed().Wait())
		b.ring.empty()
	}
}

// send copies host values to the GPU, where [Backend.room] has made room for them, and returns
// their address. It reuses equal operands that have been sent for another layer. The caller may
// change v afterwards.
func send[T int32 | float32](b *Backend, v []T) uint64 {
	n := 4 * len(v)
	if n == 0 || b.err != nil {
		return 0
	}
	r, raw := &b.ring, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), n)
	if at, ok := r.find(raw); ok {
		return uint64(r.device) + uint64(at)
	}
	at := (r.used + ringAlign - 1) &^ (ringAlign - 1)
	r.used = at + n
	copy(r.host[at:], raw)
	r.sent[r.next] = sent{at, n}
	r.next = (r.next + 1) % sentMost
	b.check("operands", b.toDevice(r.device+uintptr(at), r.host[at:at+n]))
	return uint64(r.device) + uint64(at)
}
