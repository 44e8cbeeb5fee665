package hub

import (
	"context"
	"sync"
)

// each calls do for every item, for n of them at a time. The first error stops the others. each
// returns it when all have ended.
func each[T any](ctx context.Context, n int, items []T, do func(ctx context.Context, i int, item T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, len(items)) {
		wg.Go(func() {
			for i := range next {
				if err := do(ctx, i, items[i]); err != nil {
					stop(err)
					return
				}
			}
		})
	}
	for i := range items {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
	}
	close(next)
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
