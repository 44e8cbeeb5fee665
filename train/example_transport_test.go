package train_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/heftai/heft/train"
)

// wire is a Transport over channels: the ranks are goroutines, and pipes[from][to] has the messages of
// one rank to another. A transport over a network has a connection instead of each channel.
type wire struct {
	rank   int
	pipes  [][]chan []byte
	failed context.Context
	fail   context.CancelCauseFunc
}

func (w *wire) Rank() int { return w.rank }
func (w *wire) Size() int { return len(w.pipes) }

func (w *wire) Send(ctx context.Context, to int, b []byte) error {
	select {
	case w.pipes[w.rank][to] <- append([]byte(nil), b...):
		return nil
	case <-w.failed.Done():
		return context.Cause(w.failed)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Receive(ctx context.Context, from int, b []byte) error {
	select {
	case message := <-w.pipes[from][w.rank]:
		if len(message) != len(b) {
			return fmt.Errorf("got %d bytes of rank %d, want %d", len(message), from, len(b))
		}
		copy(b, message)
		return nil
	case <-w.failed.Done():
		return context.Cause(w.failed)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *wire) Fail(err error) { w.fail(err) }

// Two ranks share a mean over a transport of their own.
func ExampleNewWorld() {
	ctx := context.Background()
	failed, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	pipes := make([][]chan []byte, 2)
	for from := range pipes {
		for range pipes {
			pipes[from] = append(pipes[from], make(chan []byte, 1))
		}
	}
	means, errs := make([][]float64, len(pipes)), make([]error, len(pipes))
	var ranks sync.WaitGroup
	for rank := range pipes {
		ranks.Go(func() {
			acc, err := train.New(train.Config{World: train.NewWorld(ctx, &wire{rank, pipes, failed, fail})})
			if err == nil {
				means[rank], err = train.Reduce(ctx, acc, []float64{1, 10 * float64(rank)}, train.ReduceMean)
			}
			errs[rank] = err
		})
	}
	ranks.Wait()
	fmt.Println(means, errors.Join(errs...))
	// Output: [[1 5] [1 5]] <nil>
}
