package train

import (
	"context"
	"errors"
	"syscall"
)

// ErrOutOfMemory is what a function under [FindExecutableBatchSize] returns, wrapped or
// bare, to be called again with less.
var ErrOutOfMemory = errors.New("train: out of memory")

// ErrNoBatchSize says that not even one sample fits.
var ErrNoBatchSize = errors.New("train: no executable batch size found, reached zero")

// FindExecutableBatchSize calls f with start, and as long as it is out of memory
// ([ErrOutOfMemory], or the system's ENOMEM) again with what reduce makes of the size.
// A nil reduce takes nine tenths, rounded down. Any other error ends it.
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
			return errors.Join(errors.New("train: a batch size that does not shrink"), err)
		}
		n = less
	}
	return ErrNoBatchSize
}
