// Resnet trains ResNet18 on small pictures with windows of four batches: gradients are computed in
// each iteration, and parameters move in a window's last one only. It makes its pictures itself, in
// the form of CIFAR-10's, cropped, mirrored and normalised.
//
//	go run ./examples/resnet
//	go run ./examples/resnet -plugin gemini                     or ddp, zero1, zero2
//	go run ./examples/resnet -plugin gemini -memory 12          MiB for weights, gradients and momentum
//	go run ./cmd/train launch --nproc_per_node 2 ./examples/resnet
package main

import (
	"context"
	"flag"
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
	moments []float32 // running means of the last norm
}

// setup is how ranks share the work.
type setup struct {
	world     *train.World
	plugin    train.Plugin
	recompute bool // blocks in the backward pass, so that few weights are in memory at a time
}

// newSetup makes the plugin of a name, for the ranks of train launch or torchrun. memory, if not 0, limits
// the bytes of weights, gradients and the optimizer's state.
func newSetup(world *train.World, name string, memory int64) (setup, error) {
	if memory != 0 && name != "gemini" {
		return setup{}, fmt.Errorf("-memory needs -plugin gemini, got %s", name)
	}
	switch name {
	case "ddp":
		return setup{world: world, plugin: &train.TorchDDPPlugin{World: world}}, nil
	case "zero1":
		return setup{world: world, plugin: &train.LowLevelZeroPlugin{World: world, Stage: 1}}, nil
	case "zero2":
		return setup{world: world, plugin: &train.LowLevelZeroPlugin{World: world, Stage: 2}}, nil
	case "gemini":
		return setup{world: world, recompute: memory != 0,
			plugin: &train.GeminiPlugin{World: world, EnableGradientAccumulation: true, MemoryLimit: memory}}, nil
	}
	return setup{}, fmt.Errorf("-plugin %s: want ddp, zero1, zero2 or gemini", name)
}

// components are what a loop needs.
type components struct {
	model  *resnet18
	tape   *tensor.Tape
	loader *data.Loader[data.ImageBatch]
	opt    optim.Optimizer
}

func build(width, images int) (*components, error) {
	g := rng.New(1)
	c := &components{model: newResNet18(width, classes, g), tape: tensor.NewTape(tensor.Options{})}
	set := data.NewAugmented(pictures(images, g), data.Chain(data.RandomCrop(side, 4), data.RandomFlip(0.5)), 1)
	var err error
	c.loader, err = data.NewLoader(set, data.Normalize(data.CIFAR10Mean(), data.CIFAR10Std()), data.Options{BatchSize: batchSize, Shuffle: true, Generator: g, DropLast: true})
	if err != nil {
		return nil, err
	}
	c.opt, err = optim.NewSGD(train.Params(c.model), optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 5e-4})
	return c, err
}

// criterion is the mean cross-entropy.
func (c *components) criterion(batch data.ImageBatch) *tensor.Tensor {
	labels := make([]int, batch.Rows)
	for i, l := range batch.Labels {
		labels[i] = int(l)
	}
	x := c.tape.Input(batch.Pixels, batch.Rows, batch.Channels, batch.Height, batch.Width)
	return c.tape.CrossEntropy(c.model.forward(c.tape, x), labels, tensor.CrossEntropyOptions{})
}

// fit trains for some iterations, stepping where due says so.
func (s setup) fit(ctx context.Context, width, iterations int, due func(idx int) bool) ([]row, error) {
	c, err := build(width, iterations*batchSize*s.world.Size())
	if err != nil {
		return nil, err
	}
	c.model.recompute = s.recompute
	booster, err := train.NewBooster(s.plugin)
	if err != nil {
		return nil, err
	}
	if err := s.plugin.PrepareDataLoader(c.loader); err != nil {
		return nil, err
	}
	if _, c.opt, _, _, _, err = booster.Boost(c.model, c.opt, nil, c.loader, nil); err != nil {
		return nil, err
	}
	var rows []row
	for batch, err := range c.loader.All(ctx) {
		if err != nil {
			return nil, err
		}
		r := row{stepped: due(len(rows))}
		pass := func() error {
			loss := c.criterion(batch)
			r.loss = float64(loss.Item())
			return booster.Backward(ctx, c.tape.Scale(loss, 1.0/accumulation), c.opt)
		}
		if r.stepped || !s.plugin.SupportNoSync() { // stage 2 and Gemini average each batch
			err = pass()
		} else {
			err = booster.NoSync(c.model, pass) // gradients stay on this rank and add up
		}
		if err == nil && r.stepped {
			err = c.opt.Step()
			c.opt.ZeroGrad() // Gemini has done so
		}
		if err != nil {
			return nil, err
		}
		err = c.model.params["conv1.weight"].Access(false, func(values []float32) error {
			r.first = slices.Clone(values[:10])
			return nil
		})
		if err != nil {
			return nil, err
		}
		r.moments = slices.Clone(c.model.norms["layer4.1.bn2"].Mean)
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

func (s setup) write(ctx context.Context, to io.Writer, width int) error {
	fmt.Fprintf(to, "ResNet18 of width %d, batches of %d, windows of %d; * steps\n", width, batchSize, accumulation)
	rows, err := s.fit(ctx, width, 2*accumulation, func(idx int) bool { return (idx+1)%accumulation == 0 })
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
	rows, err = s.fit(ctx, width, accumulation, func(idx int) bool { return idx%(accumulation-1) == 0 })
	if err != nil {
		return err
	}
	table(to, rows)
	return nil
}

// run is a rank's part, or all of the program without ranks.
func run(ctx context.Context, to io.Writer, plugin string, memory int64, width int) error {
	world, err := train.FromEnvironment(ctx)
	if err != nil {
		return err
	}
	s, err := newSetup(world, plugin, memory)
	if err == nil {
		err = s.write(world.Context(), to, width)
	}
	return world.Close(err)
}

func main() {
	plugin := flag.String("plugin", "ddp", "Share the work as ddp, zero1, zero2 or gemini.")
	memory := flag.Int64("memory", 0, "Limit weights, gradients and momentum to so many MiB (0: no limit).")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *plugin, *memory<<20, 32); err != nil {
		log.Fatal(err)
	}
}
