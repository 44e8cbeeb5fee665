// Resnet trains ResNet18 on small pictures with windows of four batches: gradients are
// computed in each iteration, parameters move in a window's last one only. It makes its
// pictures itself, in the form of CIFAR-10's, cropped, mirrored and normalised.
//
//	go run ./examples/resnet
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

const (
	accumulation = 4
	batchSize    = 8
	classes      = 10
	side         = 32
)

// pictures are waves, whose direction and colour depend on the class.
func pictures(n int, g *rng.Generator) data.Slice[data.Image] {
	all := make(data.Slice[data.Image], n)
	for i := range all {
		label := g.IntN(classes)
		angle, shift := float64(label)*math.Pi/classes, 6*g.Float64()
		img := data.Image{Channels: 3, Height: side, Width: side, Pixels: make([]byte, 3*side*side), Label: label}
		for p := range img.Pixels {
			x, y := float64(p%side), float64(p/side%side)
			wave := math.Sin((x*math.Cos(angle)+y*math.Sin(angle))*0.8 + shift + float64(p/(side*side)*label))
			img.Pixels[p] = byte(128 + 90*wave + 30*(g.Float64()-0.5))
		}
		all[i] = img
	}
	return all
}

// row is what is seen after an iteration.
type row struct {
	loss    float64
	stepped bool
	first   []float32 // of the first parameter
}

// fit trains for some iterations, stepping where due says so.
func fit(ctx context.Context, width, iterations int, due func(idx int) bool) ([]row, error) {
	g := rng.New(1)
	model, tape := newResNet18(width, classes, g), tensor.NewTape(tensor.Options{})
	set := data.NewAugmented(pictures(iterations*batchSize, g), data.Chain(data.RandomCrop(side, 4), data.RandomFlip(0.5)), 1)
	loader, err := data.NewLoader(set, data.Normalize(data.CIFAR10Mean(), data.CIFAR10Std()), data.Options{BatchSize: batchSize, Shuffle: true, Generator: g, DropLast: true})
	if err != nil {
		return nil, err
	}
	sgd, err := optim.NewSGD(train.Params(model), optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 5e-4})
	if err != nil {
		return nil, err
	}
	var opt optim.Optimizer = sgd
	acc, err := train.New(train.Config{GradientAccumulationSteps: accumulation})
	if err != nil {
		return nil, err
	}
	if err := acc.Prepare(model, &opt, loader); err != nil {
		return nil, err
	}
	var rows []row
	for batch, err := range loader.All(ctx) {
		if err != nil {
			return nil, err
		}
		r, labels := row{stepped: due(len(rows))}, make([]int, batch.Rows)
		for i, l := range batch.Labels {
			labels[i] = int(l)
		}
		pass := func() error { // forward and backward, the loss divided by the window
			x := tape.Input(batch.Pixels, batch.Rows, batch.Channels, batch.Height, batch.Width)
			loss := tape.CrossEntropy(model.forward(tape, x), labels, tensor.CrossEntropyOptions{})
			r.loss = float64(loss.Item())
			return acc.Backward(ctx, loss)
		}
		if r.stepped {
			if err := pass(); err != nil {
				return nil, err
			}
			if err := opt.Step(); err != nil {
				return nil, err
			}
			opt.ZeroGrad()
		} else if err := acc.NoSync(model, pass); err != nil { // gradients stay here and add up
			return nil, err
		}
		r.first = slices.Clone(model.params["conv1.weight"].Data()[:10])
		rows = append(rows, r)
	}
	return rows, nil
}

func table(to io.Writer, rows []row) {
	for i, r := range rows {
		var first []string
		for _, v := range r.first {
			first = append(first, fmt.Sprintf("%7.4f", v))
		}
		mark := " "
		if r.stepped {
			mark = "*"
		}
		fmt.Fprintf(to, "iteration %d%s loss %.4f, first 10 elements of param: [%s]\n", i, mark, r.loss, strings.Join(first, ", "))
	}
}

func write(ctx context.Context, to io.Writer, width int) error {
	fmt.Fprintf(to, "ResNet18 of width %d, batches of %d, windows of %d; * steps\n", width, batchSize, accumulation)
	rows, err := fit(ctx, width, 2*accumulation, func(idx int) bool { return (idx+1)%accumulation == 0 })
	if err != nil {
		return err
	}
	table(to, rows)
	for i := 1; i < len(rows); i++ {
		if moved := !slices.Equal(rows[i].first, rows[i-1].first); moved != rows[i].stepped {
			return fmt.Errorf("iteration %d: the parameters moved: %v", i, moved)
		}
	}
	fmt.Fprintln(to, "The parameters are only updated in the last iteration of a window.")
	fmt.Fprintf(to, "\nWith the rule idx %% %d == 0 the first iteration steps as well, and windows have %d batches:\n", accumulation-1, accumulation-1)
	rows, err = fit(ctx, width, accumulation, func(idx int) bool { return idx%(accumulation-1) == 0 })
	if err != nil {
		return err
	}
	table(to, rows)
	return nil
}

func main() {
	if err := write(context.Background(), os.Stdout, 32); err != nil {
		log.Fatal(err)
	}
}
