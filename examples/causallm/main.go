// Causallm accumulates gradients over texts of different lengths. The loss of a step must
// be that of all its tokens together, not the mean of the batches' means: batches are read
// ahead, their tokens counted on all ranks, and each loss weighted by that count. The
// result is that of one big batch on one rank.
//
//	go run ./examples/causallm
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"sync"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// texts is a batch padded to its longest text. The token at place i, from 1, is i, its
// label whether i is odd.
type texts struct {
	tokens []float32
	labels []int
}

// collate makes a batch of texts of those lengths.
func collate(lengths []int) (texts, error) {
	longest := 0
	for _, n := range lengths {
		longest = max(longest, n)
	}
	var b texts
	for _, n := range lengths {
		for i := 1; i <= longest; i++ {
			if i > n { // padding
				b.tokens, b.labels = append(b.tokens, tensor.IgnoreIndex), append(b.labels, tensor.IgnoreIndex)
				continue
			}
			b.tokens, b.labels = append(b.tokens, float32(i)), append(b.labels, i%2)
		}
	}
	return b, nil
}

// items counts the labels that are not padding.
func (b texts) items() int {
	n := 0
	for _, l := range b.labels {
		if l != tensor.IgnoreIndex {
			n++
		}
	}
	return n
}

// corpus has texts of the lengths 1 to n.
func corpus(n int) data.Slice[int] {
	s := make(data.Slice[int], n)
	for i := range s {
		s[i] = i + 1
	}
	return s
}

const (
	steps     = 2 // batches of a window
	batchSize = 4
	rate      = 0.08
)

// newModel is torch's Linear(1, 2, bias=False) after set_seed(0).
func newModel() *tensor.Parameter {
	w := make([]float32, 2)
	rng.New(0).Linear(w, nil, 1)
	return tensor.NewParameter(w, 2, 1)
}

// crossEntropy is the loss of the logits w·token.
func crossEntropy(tape *tensor.Tape, w *tensor.Parameter, b texts, r tensor.Reduction) *tensor.Tensor {
	logits := tape.Linear(tape.Input(b.tokens, len(b.tokens), 1), tape.Use(w), nil)
	return tape.CrossEntropy(logits, b.labels, tensor.CrossEntropyOptions{Reduction: r})
}

func show(w *tensor.Parameter) string { return fmt.Sprintf("[%.4f, %.4f]", w.Data()[0], w.Data()[1]) }

// accumulate trains one epoch, a single step, on the rank of acc.
func accumulate(ctx context.Context, acc *train.Accelerator, say func(format string, args ...any)) error {
	model, tape := newModel(), tensor.NewTape(tensor.Options{})
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: rate})
	if err != nil {
		return err
	}
	var opt optim.Optimizer = sgd
	loader, err := data.NewLoader(corpus(batchSize*steps*acc.NumProcesses()), collate, data.Options{BatchSize: batchSize})
	if err != nil {
		return err
	}
	if err := acc.Prepare(model, &opt, loader); err != nil {
		return err
	}
	for w, err := range train.Windows(ctx, acc, loader.All(ctx), texts.items) {
		if err != nil {
			return err
		}
		say("device %d: %d items in the local batch, %d in all", acc.ProcessIndex(), w.Local, w.Items)
		_, err := w.Each(ctx, func(_ context.Context, b texts) (*tensor.Tensor, error) {
			return crossEntropy(tape, model, b, tensor.Sum), nil
		})
		if err != nil {
			return err
		}
		if err := opt.Step(); err != nil {
			return err
		}
		opt.ZeroGrad()
	}
	say("device %d: w/ accumulation, the final model weight is %s", acc.ProcessIndex(), show(model))
	return nil
}

// whole takes the same step on one big batch.
func whole(samples int) (*tensor.Parameter, error) {
	model, tape := newModel(), tensor.NewTape(tensor.Options{})
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: rate})
	if err != nil {
		return nil, err
	}
	batch, err := collate(corpus(samples))
	if err != nil {
		return nil, err
	}
	if err := tape.Backward(crossEntropy(tape, model, batch, tensor.Mean), 1); err != nil {
		return nil, err
	}
	return model, sgd.Step()
}

func write(ctx context.Context, to io.Writer) error {
	fmt.Fprintf(to, "initial model weight is %s\n", show(newModel()))
	for _, ranks := range []int{1, 2} {
		fmt.Fprintf(to, "\n%d rank(s), %d batches of %d texts for a step\n", ranks, steps, batchSize)
		var mu sync.Mutex
		err := train.Launch(ctx, ranks, func(ctx context.Context, w *train.World) error {
			acc, err := train.New(train.Config{World: w, GradientAccumulationSteps: steps})
			if err != nil {
				return err
			}
			return accumulate(ctx, acc, func(format string, args ...any) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(to, "  "+format+"\n", args...)
			})
		})
		if err != nil {
			return err
		}
		model, err := whole(batchSize * steps * ranks)
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "  w/o accumulation, on one rank, the final model weight is %s\n", show(model))
	}
	return nil
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: causallm\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
