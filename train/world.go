package train

import (
	"context"
	"errors"
	"fmt"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/errtext"
)

// World is one rank's place among the ranks that train together: goroutines of [Launch], processes
// of [FromEnvironment], or the ranks of a [Transport]. It must be used only by the goroutine of its
// rank. A nil World is a world of one rank.
type World struct {
	comm  collective.Comm
	ctx   context.Context // limits Prepare's waiting; the ranks of a world end together
	local int             // the rank on its machine
	close func(error)
}

// Launch runs fn on n ranks, each in a goroutine of this process, and waits for all of them. fn's
// context ends with ctx or when a rank fails. Launch returns the error of the first rank that
// failed, with its number. Each rank must build its own model, optimizer and loaders.
func Launch(ctx context.Context, n int, fn func(context.Context, *World) error) error {
	if fn == nil {
		return errors.New("train: launch: got a nil function")
	}
	err := collective.Launch(ctx, n, func(ctx context.Context, c collective.Comm) error {
		return fn(ctx, &World{comm: c, ctx: ctx, local: c.Rank()})
	})
	if err != nil {
		return fmt.Errorf("train: %w", errtext.Below("train", err))
	}
	return nil
}

// Rank returns this rank's number, from 0 to Size-1.
func (w *World) Rank() int { return w.transport().Rank() }

// Size returns the number of ranks.
func (w *World) Size() int { return w.transport().Size() }

// LocalRank returns this rank's number among the ranks of its machine.
func (w *World) LocalRank() int {
	if w == nil {
		return 0
	}
	return w.local
}

// Context returns a context that ends when any rank fails.
func (w *World) Context() context.Context { return w.context() }

// Traffic returns the bytes that this rank has sent to the others and received. Within one process
// it counts the bytes that a transport between processes would send. Any goroutine may call it.
func (w *World) Traffic() (sent, received int64) {
	t := w.transport().Traffic()
	return t.Sent, t.Received
}

// Close leaves a world of [FromEnvironment]. With an error the other ranks fail, too, with an error
// that names this rank. It returns err. Worlds of [Launch] need no Close.
func (w *World) Close(err error) error {
	if w != nil && w.close != nil {
		w.close(err)
		w.close = nil
	}
	return err
}

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
