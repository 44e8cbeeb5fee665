package data

import (
	"context"
	"iter"
	"sync"
)

// batches walks a source, in the caller's goroutine or with workers.
func (l *Loader[B]) batches(ctx context.Context, src source[B]) iter.Seq2[B, error] {
	if l.opts.Workers > 0 {
		ahead := l.opts.Prefetch
		if ahead <= 0 {
			ahead = 2 * l.opts.Workers
		}
		return prefetched(ctx, src.jobs(), l.opts.Workers, ahead)
	}
	return func(yield func(B, error) bool) {
		for job, err := range src.jobs() {
			var b B
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				b, err = job()
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

type result[B any] struct {
	b   B
	err error
}

// prefetched runs jobs in workers goroutines, at most ahead jobs before the caller requests them,
// and yields the results in order. One more goroutine walks the jobs. All goroutines have ended
// when the loop ends, for whatever reason.
func prefetched[B any](ctx context.Context, jobs iter.Seq2[func() (B, error), error], workers, ahead int) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		queue := make(chan chan result[B], ahead) // in order; each slot holds one result
		busy := make(chan struct{}, workers)
		wg.Go(func() {
			defer close(queue)
			for job, err := range jobs {
				slot := make(chan result[B], 1)
				select {
				case queue <- slot:
				case <-ctx.Done():
					return
				}
				if err != nil {
					slot <- result[B]{err: err}
					return
				}
				busy <- struct{}{} // a worker that ends never blocks
				wg.Go(func() {
					defer func() { <-busy }()
					b, err := job()
					slot <- result[B]{b, err}
				})
			}
		})
		for {
			var zero B
			select {
			case <-ctx.Done():
				yield(zero, ctx.Err())
				return
			case slot, more := <-queue:
				if !more {
					if err := ctx.Err(); err != nil {
						yield(zero, err)
					}
					return
				}
				r := <-slot
				if !yield(r.b, r.err) || r.err != nil {
					return
				}
			}
		}
	}
}
