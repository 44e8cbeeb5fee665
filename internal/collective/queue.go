package collective

import (
	"context"
	"sync"
)

// Queue runs operations of a [Comm] one after the other while its caller computes. All ranks must
// queue the same operations in the same order, and call nothing else of the Comm until Wait has
// returned. The zero value without a Comm is not usable.
type Queue struct {
	Comm Comm

	mu      sync.Mutex
	pending []*Handle
	running bool
	err     error // the first
}

// Handle is an operation of a [Queue] that may not have ended.
type Handle struct {
	run  func(Comm) error
	done chan struct{}
	err  error
}

// Wait returns the operation's error once it has ended. Any goroutine may call it, repeatedly.
func (h *Handle) Wait() error {
	<-h.done
	return h.err
}

// Go queues an operation. After one has failed, later ones do not run and return the same error.
func (q *Queue) Go(run func(Comm) error) *Handle {
	h := &Handle{run: run, done: make(chan struct{})}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, h)
	if !q.running {
		q.running = true
		go q.work()
	}
	return h
}

// work runs what is pending and ends.
func (q *Queue) work() {
	for {
		q.mu.Lock()
		if len(q.pending) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		h, err := q.pending[0], q.err
		q.pending = q.pending[1:]
		q.mu.Unlock()
		if err == nil {
			err = h.run(q.Comm)
		}
		q.mu.Lock()
		if q.err == nil {
			q.err = err
		}
		q.mu.Unlock()
		h.err = err
		close(h.done)
	}
}

// AllReduce queues an AllReduce of x, which the caller must not touch until the handle has ended.
func (q *Queue) AllReduce(ctx context.Context, op Op, x Buffer) *Handle {
	return q.Go(func(c Comm) error { return c.AllReduce(ctx, op, x) })
}

// Wait returns when everything that was queued has ended, with the first error since the last Wait.
func (q *Queue) Wait() error {
	_ = q.Go(func(Comm) error { return nil }).Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.err
	q.err = nil
	return err
}
