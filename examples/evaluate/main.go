// Evaluate measures a classifier on several ranks at once. Every rank sees its part of
// the data; predictions are gathered, and the samples that were repeated so that all
// ranks get as many are dropped: the metrics are those of a single rank. Generated texts,
// whose lengths differ from rank to rank, are padded first.
//
//	go run ./examples/evaluate
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"os"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

const (
	samples   = 101 // not a multiple of anything here
	batchSize = 8
	classes   = 3
)

// sample is a point, and a class that depends on it, but for some noise.
type sample struct {
	x     [2]float32
	label int
}

func points() data.Slice[sample] {
	g, all := rng.New(7), make(data.Slice[sample], samples)
	for i := range all {
		s := &all[i]
		s.x = [2]float32{2*g.Float32() - 1, 2*g.Float32() - 1}
		s.label = sector(float64(s.x[0]), float64(s.x[1]))
		if g.IntN(10) == 0 {
			s.label = g.IntN(classes)
		}
	}
	return all
}

// sector is which third of the plane a point lies in.
func sector(x, y float64) int {
	return int((math.Atan2(y, x) + math.Pi) / (2*math.Pi + 1e-9) * classes)
}

// model has one direction for each class.
func model() *tensor.Parameter {
	var w []float32
	for c := range classes {
		angle := (float64(c)+0.5)*2*math.Pi/classes - math.Pi
		w = append(w, float32(3*math.Cos(angle)), float32(3*math.Sin(angle)))
	}
	return tensor.NewParameter(w, classes, 2)
}

// result is what the main process measures.
type result struct {
	gathered, counted            int // samples, with and without those that were repeated
	loss, accuracy, withRepeated float64
	longest                      int
}

// evaluate runs on each rank.
func evaluate(ctx context.Context, w *train.World) (result, error) {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return result{}, err
	}
	m, tape := model(), tensor.NewTape(tensor.Options{})
	loader, err := data.NewLoader(points(), data.Samples[sample], data.Options{BatchSize: batchSize})
	if err != nil {
		return result{}, err
	}
	if err := acc.Prepare(m, loader); err != nil {
		return result{}, err
	}
	var r result
	var right, rightOfAll int
	for batch, err := range loader.All(ctx) {
		if err != nil {
			return r, err
		}
		e, err := predict(tape, m, batch)
		if err != nil {
			return r, err
		}
		all, err := train.Gather(ctx, acc, e) // with the padding
		if err != nil {
			return r, err
		}
		kept, err := train.GatherForMetrics(ctx, acc, e)
		if err != nil {
			return r, err
		}
		r.gathered, r.counted = r.gathered+len(all.Losses), r.counted+len(kept.Losses)
		for i, l := range kept.Losses {
			r.loss += l
			right += kept.Correct[i]
		}
		for _, c := range all.Correct {
			rightOfAll += c
		}
		texts, err := generated(ctx, acc, len(batch))
		if err != nil {
			return r, err
		}
		r.longest = max(r.longest, len(texts)/max(1, len(all.Losses)))
	}
	r.loss /= float64(r.counted)
	r.accuracy = float64(right) / float64(r.counted)
	r.withRepeated = float64(rightOfAll) / float64(r.gathered)
	return r, nil
}

// predict evaluates a batch, sample by sample.
func predict(tape *tensor.Tape, m *tensor.Parameter, batch []sample) (train.Evaluation, error) {
	var x []float32
	var labels []int
	for _, s := range batch {
		x, labels = append(x, s.x[:]...), append(labels, s.label)
	}
	logits := tape.Linear(tape.Input(x, len(batch), 2), tape.Use(m), nil)
	e, err := train.EvaluateLogits(logits, labels, len(batch))
	if err != nil {
		return e, err
	}
	return e, tape.Reset()
}

// generated gathers texts of n samples, longer on higher ranks: arrays of one shape are
// made of them first.
func generated(ctx context.Context, acc *train.Accelerator, n int) ([]float32, error) {
	length := 4 + acc.ProcessIndex()
	tokens := train.Array{Shape: []int{n, length}, Data: make([]float32, n*length)}
	padded, err := train.PadAcrossProcesses(ctx, acc, tokens, train.PadOptions{Dim: 1, Index: -1})
	if err != nil {
		return nil, err
	}
	all, err := train.Gather(ctx, acc, padded)
	return all.Data, err
}

func write(ctx context.Context, to io.Writer) error {
	fmt.Fprintf(to, "%d samples in batches of %d a rank\n", samples, batchSize)
	fmt.Fprintf(to, "%6s %9s %8s %8s %9s %11s %22s\n", "ranks", "gathered", "counted", "loss", "accuracy", "perplexity", "with repeated samples")
	for _, ranks := range []int{1, 2, 3, 4} {
		var main result
		err := train.Launch(ctx, ranks, func(ctx context.Context, w *train.World) error {
			r, err := evaluate(ctx, w)
			if w.Rank() == 0 {
				main = r
			}
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(to, "%6d %9d %8d %8.4f %9.4f %11.4f %22.4f\n", ranks, main.gathered, main.counted, main.loss, main.accuracy, math.Exp(main.loss), main.withRepeated)
		if want := 3 + ranks; main.longest != want {
			return fmt.Errorf("texts were padded to %d tokens, want %d", main.longest, want)
		}
	}
	_, err := fmt.Fprintln(to, "The repeated samples are dropped: loss and accuracy are the same on any number of ranks.")
	return err
}

func main() {
	flag.Usage = func() { fmt.Fprintln(flag.CommandLine.Output(), "Usage: evaluate\nIt has no flags.") }
	flag.Parse()
	if err := write(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
