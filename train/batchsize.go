package train

import (
	"context"
	"errors"
	"syscall"
)

// ErrOutOfMemory tells [FindExecutableBatchSize] to try a smaller batch. It may be wrapped.
var ErrOutOfMemory = errors.New("train: out of memory")

// ErrNoBatchSize is returned if not even a batch of one sample fits.
var ErrNoBatchSize = errors.New("train: no executable batch size found, reached zero")

// FindExecutableBatchSize calls f with start. While f runs out of memory ([ErrOutOfMemory], or the
// system's ENOMEM), it calls f again with the result of reduce. A nil reduce takes nine tenths,
// rounded down. Any other error ends the search.
func FindExecutableBatchSize(ctx context.Context, start int, f func(ctx context.Context, batchSize int) error, reduce func(int) int) error {
	if reduce == nil {
		reduce = func(n int) int { return int(float64(n) * 0.9) }
	}
	for n := start; n > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := f(ctx, n)
		if !errors.Is(err, ErrOutOfMemory) && !errors.Is(err, syscall.ENOMEM) {
			return err
		}
		less := reduce(n)
		if less >= n {
			return errors.Join(errors.New("train: reduce did not return a smaller batch size"), err)
		}
		n = less
	}
	return ErrNoBatchSize
}
