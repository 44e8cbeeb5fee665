// Package logbuffer writes a log without blocking the program that logs. The reader of a log may
// stop: a pipe is full, a terminal is paused with Ctrl-S, a network file system does not answer.
// Lines then wait in a buffer of limited size, and further ones are dropped and counted.
package logbuffer

import (
	"bytes"
	"io"
	"sync"
	"time"
)

// A Buffer is an io.Writer whose Write never waits. A goroutine writes to the underlying writer
// while there is something to write. A Buffer is safe for concurrent use.
type Buffer struct {
	out     io.Writer
	limit   int
	dropped func(lines int)

	mu      sync.Mutex
	queue   [][]byte
	bytes   int // of the queue and of what is being written
	lost    int
	written chan struct{} // closed when the queue is empty; nil if it is
}

// New returns a Buffer of at most limit bytes in front of out. When out accepts data again after
// lines were dropped, dropped is called with their number. It may write to the Buffer.
func New(out io.Writer, limit int, dropped func(lines int)) *Buffer {
	return &Buffer{out: out, limit: limit, dropped: dropped}
}

// Write implements io.Writer. It returns no error: errors of the underlying writer are ignored, as
// loggers ignore them.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+len(p) > b.limit {
		b.lost += max(1, bytes.Count(p, []byte("\n")))
		return len(p), nil
	}
	b.queue = append(b.queue, bytes.Clone(p))
	b.bytes += len(p)
	if b.written == nil {
		b.written = make(chan struct{})
		go b.drain()
	}
	return len(p), nil
}

// drain writes the queue until it is empty.
func (b *Buffer) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) > 0 || b.lost > 0 {
		queue, lost := b.queue, 0
		if b.queue = nil; len(queue) == 0 {
			lost, b.lost = b.lost, 0
		}
		b.mu.Unlock()
		size := b.write(queue)
		if lost > 0 {
			b.dropped(lost)
		}
		b.mu.Lock()
		b.bytes -= size
	}
	close(b.written)
	b.written = nil
}

// write writes the entries of a queue, and returns their size.
func (b *Buffer) write(queue [][]byte) (size int) {
	for _, p := range queue {
		_, _ = b.out.Write(p) // a log has no other place for its errors
		size += len(p)
	}
	return size
}

// Flush waits until everything is written, at most for the given time. It reports whether it is.
func (b *Buffer) Flush(wait time.Duration) bool {
	b.mu.Lock()
	written := b.written
	b.mu.Unlock()
	if written == nil {
		return true
	}
	select {
	case <-written:
		return true
	case <-time.After(wait):
		return false
	}
}
