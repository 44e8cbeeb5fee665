package train

import (
	"context"
	"fmt"

	"github.com/heftai/heft/internal/collective"
)

// World is one rank's place among the ranks that train together. It belongs to the goroutine that
// [Launch] started for the rank. A nil World is a world of one.
type World struct {
	comm collective.Comm
	ctx  context.Context // what Prepare waits under; the ranks of a world end together
}

// Launch runs fn on n ranks, each in a goroutine of this process, and waits for all of them. fn's
// context ends with ctx or when a rank fails. Launch returns the error of the first rank that
// failed, with its number. Each rank must build its own model, optimizer and loaders.
func Launch(ctx context.Context, n int, fn func(context.Context, *World) error) error {
	err := collective.Launch(ctx, n, func(ctx context.Context, c collective.Comm) error {
		return fn(ctx, &World{comm: c, ctx: ctx})
	})
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	return nil
}

// Rank returns this rank's number, from 0 to Size-1.
func (w *World) Rank() int { return w.transport().Rank() }

// Size returns the number of ranks.
func (w *World) Size() int { return w.transport().Size() }

func (w *World) context() context.Context {
	if w == nil || w.ctx == nil {
		return context.Background()
	}
	return w.ctx
}

func (w *World) transport() collective.Comm {
	if w == nil || w.comm == nil {
		return collective.Alone()
	}
	return w.comm
}
