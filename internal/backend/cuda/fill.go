//go:build cuda

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cuda/driver"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

var _ backend.Filler = (*Backend)(nil)

const (
	fillChunks     = 16 // of the pinned ring
	fillChunkBytes = 2 << 20
	fillAhead      = 12 // chunks that goroutines fill at a time, while the GPU copies from the others
	marks          = 64 // fences that can be told apart; older ones count as the oldest of these
)

// filling is the second queue of a Backend, for copies that overlap operations, with the pinned
// ring that they pass through. The first Fill creates it.
type filling struct {
	queue   driver.Queue
	copiers *copiers
	chunks  [fillChunks]chunk
	next    int                 // the chunk to fill next
	marks   [marks]driver.Event // in the queue of operations
	made    backend.Fence       // the latest one
	over    backend.Fence       // before which all operations are known to have ended
}

// A chunk is pinned memory from which one copy at a time reads.
type chunk struct {
	host   []byte
	copied driver.Event // recorded after the last copy
	used   bool
	filled chan any // see copying
}

// startFilling creates the queue of copies.
func (b *Backend) startFilling() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(b.context); err != nil {
		return err
	}
	stream, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return err
	}
	f := &filling{copiers: usualCopiers(), queue: driver.Queue{Context: b.queue.Context, Stream: *(*unsafe.Pointer)(unsafe.Pointer(&stream))}}
	b.filling = f // release frees it, even if only partly made
	for i := range f.chunks {
		c := &f.chunks[i]
		if c.host, err = f.queue.Pinned(fillChunkBytes); err != nil {
			return err
		}
		if c.copied, err = f.queue.NewEvent(); err != nil {
			return err
		}
		c.filled = make(chan any, 1)
	}
	for i := range f.marks {
		if f.marks[i], err = f.queue.NewEvent(); err != nil {
			return err
		}
	}
	return nil
}

// Fence implements [backend.Filler].
func (b *Backend) Fence() backend.Fence {
	f := b.filling
	if f == nil || b.err != nil { // no fills yet, or an error has stopped the queue
		return 0
	}
	f.made++
	b.check("fence", b.flushed().Record(f.marks[f.made%marks]))
	return f.made
}

// Fill implements [backend.Filler]. Several goroutines copy src to pinned memory, from which the
// GPU copies it.
func (b *Backend) Fill(dst tensor.Tensor, src []byte, after backend.Fence) error {
	if dst.DType != meta.Uint8 || dst.Data != nil || dst.Elements() != len(src) || !b.holds(dst.Address, len(src)) {
		return fmt.Errorf("cuda: fill of %v %v with %d bytes", dst.DType, dst.Shape(), len(src))
	}
	if b.err != nil {
		return b.Sync()
	}
	if b.filling == nil {
		if err := b.startFilling(); err != nil {
			return fmt.Errorf("cuda: fill: %w", err)
		}
	}
	f := b.filling
	if after > f.over {
		b.check("fill", f.queue.WaitBehind(f.marks[max(after, f.made-min(f.made, marks-1))%marks]))
	}
	b.fillChunks(dst.Address, src)
	return nil
}

// fillChunks copies src in chunks, which several goroutines fill. Like a plain copy, it panics if
// the memory of a mapped file cannot be read.
func (b *Backend) fillChunks(to uintptr, src []byte) {
	f, panicked := b.filling, any(nil)
	first := f.next
	chunkAt := func(at int) *chunk { return &f.chunks[(first+at/fillChunkBytes)%fillChunks] }
	var last driver.Event
	begun, done := 0, 0 // bytes
	for done < len(src) {
		if begun < len(src) && begun-done < fillAhead*fillChunkBytes && panicked == nil && b.err == nil {
			c := chunkAt(begun)
			if c.used {
				b.check("fill", f.queue.WaitFor(c.copied))
			}
			n := min(len(src)-begun, fillChunkBytes)
			f.copiers.work <- copying{c.host[:n], src[begun : begun+n], c.filled}
			begun += n
			continue
		}
		if done == begun { // after an error
			break
		}
		c, n := chunkAt(done), min(len(src)-done, fillChunkBytes)
		if p := <-c.filled; p != nil {
			panicked = p
		}
		if panicked == nil && b.err == nil {
			b.check("fill", b.fillPart(c, to+uintptr(done), n))
			last = c.copied
		}
		done += n
	}
	f.next = (first + ceil(begun, fillChunkBytes)) % fillChunks
	if panicked != nil {
		panic(panicked)
	}
	if len(src) > 0 && b.err == nil {
		b.check("fill", b.flushed().WaitBehind(last))
	}
}

// fillPart queues the copy of n bytes of a chunk to the GPU.
func (b *Backend) fillPart(c *chunk, to uintptr, n int) error {
	f := b.filling
	b.counters.toDevice.Add(int64(n))
	if err := f.queue.ToDevice(to, c.host[:n]); err != nil {
		return err
	}
	c.used = true
	return f.queue.Record(c.copied)
}

// stopFilling frees the queue of copies and its memory.
func (b *Backend) stopFilling() {
	f := b.filling
	if f == nil {
		return
	}
	_ = f.queue.Wait() // if the device is lost, the error is known
	for i := range f.chunks {
		f.queue.FreeEvent(f.chunks[i].copied)
		driver.FreePinned(f.chunks[i].host)
	}
	for _, e := range f.marks {
		f.queue.FreeEvent(e)
	}
	f.queue.Free()
	f.copiers.close()
	b.filling = nil
}
