package train

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/heftai/heft/internal/collective"
)

// NumProcesses returns the number of ranks.
func (a *Accelerator) NumProcesses() int { return a.rank.Comm.Size() }

// ProcessIndex returns this rank, from 0.
func (a *Accelerator) ProcessIndex() int { return a.rank.Comm.Rank() }

// LocalProcessIndex returns this rank's index on its machine.
func (a *Accelerator) LocalProcessIndex() int { return a.cfg.World.LocalRank() }

// IsMainProcess reports whether this is rank 0.
func (a *Accelerator) IsMainProcess() bool { return a.rank.Comm.Rank() == 0 }

// IsLocalMainProcess reports whether this is the first rank of its machine.
func (a *Accelerator) IsLocalMainProcess() bool { return a.LocalProcessIndex() == 0 }

// IsLastProcess reports whether this is the highest rank.
func (a *Accelerator) IsLastProcess() bool { return a.rank.Comm.Rank() == a.rank.Comm.Size()-1 }

// OnMainProcess runs f on rank 0 only.
func (a *Accelerator) OnMainProcess(f func() error) error { return a.OnProcess(0, f) }

// OnLocalMainProcess runs f on the first rank of each machine only.
func (a *Accelerator) OnLocalMainProcess(f func() error) error {
	if !a.IsLocalMainProcess() {
		return nil
	}
	return f()
}

// OnLastProcess runs f on the highest rank only.
func (a *Accelerator) OnLastProcess(f func() error) error {
	return a.OnProcess(a.rank.Comm.Size()-1, f)
}

// OnProcess runs f on one rank only.
func (a *Accelerator) OnProcess(rank int, f func() error) error {
	if a.rank.Comm.Rank() != rank {
		return nil
	}
	return f()
}

// OnLocalProcess runs f on one rank of each machine only.
func (a *Accelerator) OnLocalProcess(rank int, f func() error) error {
	if a.LocalProcessIndex() != rank {
		return nil
	}
	return f()
}

// Print writes a line to w on the first rank of each machine only, as [fmt.Fprintln] does.
func (a *Accelerator) Print(w io.Writer, args ...any) error {
	return a.OnLocalMainProcess(func() error {
		_, err := fmt.Fprintln(w, args...)
		return err
	})
}

// WaitForEveryone returns when all ranks have called it.
func (a *Accelerator) WaitForEveryone(ctx context.Context) error {
	return wrap("wait for everyone", a.rank.Wait(ctx))
}

// MainProcessFirst runs f on rank 0, and then on the others. If f fails on rank 0, the others run
// it nevertheless.
func (a *Accelerator) MainProcessFirst(ctx context.Context, f func() error) error {
	if !a.IsMainProcess() {
		if err := a.WaitForEveryone(ctx); err != nil {
			return err
		}
		return f()
	}
	err := f()
	if waited := a.WaitForEveryone(ctx); err == nil {
		err = waited
	}
	return err
}

// LocalMainProcessFirst is like [Accelerator.MainProcessFirst], on each machine.
func (a *Accelerator) LocalMainProcessFirst(ctx context.Context, f func() error) error {
	return a.MainProcessFirst(ctx, f)
}

// Logger returns a logger that writes on rank 0 only.
func (a *Accelerator) Logger() *slog.Logger { return a.logger }

// LoggerOnAll returns a logger that writes on every rank, with the rank in each record.
func (a *Accelerator) LoggerOnAll() *slog.Logger { return a.rankLogger(false) }

// LogInOrder runs f on every rank with its [Accelerator.LoggerOnAll], one rank after the
// other.
func (a *Accelerator) LogInOrder(ctx context.Context, f func(*slog.Logger)) error {
	for r := range a.rank.Comm.Size() {
		if r == a.rank.Comm.Rank() {
			f(a.LoggerOnAll())
		}
		if err := a.WaitForEveryone(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (a *Accelerator) rankLogger(mainOnly bool) *slog.Logger {
	if mainOnly && !a.IsMainProcess() {
		return slog.New(slog.DiscardHandler)
	}
	if a.rank.Comm.Size() == 1 {
		return a.base
	}
	return a.base.With("rank", a.rank.Comm.Rank())
}

// SetTrigger sets a flag that [Accelerator.CheckTrigger] reports on all ranks.
func (a *Accelerator) SetTrigger() { a.trigger = true }

// CheckTrigger reports on all ranks whether any rank has set its trigger, and then clears it
// everywhere. All ranks must call it.
func (a *Accelerator) CheckTrigger(ctx context.Context) (bool, error) {
	all, err := collective.AllGather(ctx, a.rank.Comm, a.trigger)
	if err != nil {
		return false, wrap("check trigger", err)
	}
	for _, set := range all {
		if set {
			a.trigger = false
			return true, nil
		}
	}
	return false, nil
}
