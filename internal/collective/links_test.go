package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// pipe is a Link of channels between goroutines.
type pipe struct {
	rank, size int
	to         [][]chan []byte // [from][to]
	ctx        context.Context
	cancel     context.CancelCauseFunc
}

func (p *pipe) Rank() int { return p.rank }
func (p *pipe) Size() int { return p.size }

func (p *pipe) Send(_ context.Context, to int, b []byte) error {
	select {
	case p.to[p.rank][to] <- append([]byte(nil), b...):
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p *pipe) Receive(_ context.Context, from int, b []byte) error {
	select {
	case got := <-p.to[from][p.rank]:
		if len(got) != len(b) {
			return fmt.Errorf("got %d bytes, want %d", len(got), len(b))
		}
		copy(b, got)
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p *pipe) Fail(err error) { p.cancel(err) }

// launchLinks is Launch over links of channels.
func launchLinks(ctx context.Context, n int, fn func(context.Context, Comm) error) error {
	to := make([][]chan []byte, n)
	for i := range to {
		for range n {
			to[i] = append(to[i], make(chan []byte))
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, n)
	for r := range n {
		go func() {
			err := fn(ctx, Over(&pipe{rank: r, size: n, to: to, ctx: ctx, cancel: cancel}))
			if err != nil {
				cancel(fmt.Errorf("rank %d: %w", r, err))
			}
			ended <- err
		}()
	}
	var all []error
	for range n {
		all = append(all, <-ended)
	}
	return errors.Join(all...)
}

func TestRanksWithDifferentCallsOverLinksGetAnError(t *testing.T) {
	err := launchLinks(t.Context(), 2, func(ctx context.Context, c Comm) error {
		return AllReduce(ctx, c, Sum, make([]float32, 4+c.Rank()))
	})
	if err == nil || !strings.Contains(err.Error(), "rank 1: calls all-reduce (sum of 5 float32") {
		t.Error(err)
	}
}

func TestObjectsAreExchangedOverLinks(t *testing.T) {
	err := launchLinks(t.Context(), 3, func(ctx context.Context, c Comm) error {
		got, err := AllGather(ctx, c, record{fmt.Sprint(c.Rank()), make([]int32, c.Rank())})
		if err != nil || got[2].Name != "2" || len(got[2].IDs) != 2 {
			return fmt.Errorf("%v, %w", got, err)
		}
		one, err := Broadcast(ctx, c, 2, c.Rank())
		if err != nil || one != 2 {
			return fmt.Errorf("%v, %w", one, err)
		}
		return Barrier(ctx, c)
	})
	if err != nil {
		t.Error(err)
	}
}
