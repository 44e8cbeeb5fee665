package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// testCmd is train test.
type testCmd struct {
	worldFlags
	NumProcesses int `help:"Test with this many ranks, one process each; 0 uses the configuration's, or 2." default:"0"`
}

// check is a property that must hold on every rank.
type check struct {
	name string
	run  func(ctx context.Context, w *train.World, dir string) error
}

var checks = []check{
	{"processes exchange values and wait for each other", checkProcesses},
	{"a seed gives all ranks equal numbers, or different ones", checkSeeds},
	{"every sample is read once, at any batch size", checkSharding},
	{"metrics count no sample twice", checkMetrics},
	{"values split between processes are complete", checkSplit},
	{"a trigger reaches all processes, once", checkTrigger},
	{"accumulating on several ranks equals one big batch", checkTraining},
	{"a saved run resumes with the same bits", checkState},
}

// Run checks that training works between processes, like accelerate test. If a launcher has set its
// variables, this process is one of the ranks.
func (c *testCmd) Run(ctx context.Context, out cmdline.Output, diag cmdline.Diagnostics) error {
	if ranks, _, err := train.Launched(); err != nil {
		return cmdline.Misuse(err)
	} else if ranks > 0 {
		return checkRank(ctx, out)
	}
	found, err := c.configuration()
	if err != nil {
		return err
	}
	if c.NumProcesses < 0 {
		return cmdline.Misusef("got --num-processes %d, want at least 1", c.NumProcesses)
	}
	if c.NumProcesses == 0 && c.NprocPerNode == 0 && found == nil {
		c.NumProcesses = 2 * max(1, c.NumMachines)
	}
	if err := c.settle(found, &c.NumProcesses); err != nil {
		return err
	}
	if c.NumProcesses == 1 {
		return checkAll(ctx, nil, out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return c.start(c.NumProcesses, []string{self, "test"}, nil, true, out, diag)
}

// checkRank runs the checks on the rank that the environment describes.
func checkRank(ctx context.Context, out io.Writer) error {
	world, err := train.FromEnvironment(ctx)
	if err != nil {
		return err
	}
	if world.Rank() > 0 {
		out = io.Discard // a failed check is an error on every rank
	}
	return world.Close(checkAll(world.Context(), world, out))
}

// checkAll runs the checks in a folder of rank 0 and prints a line for each. It stops at the first
// failure, because the ranks are out of step afterwards.
func checkAll(ctx context.Context, w *train.World, out io.Writer) error {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	dir := ""
	if w.Rank() == 0 {
		if dir, err = os.MkdirTemp("", "heft-train-test-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	shared, err := train.GatherObject(ctx, acc, []string{dir})
	if err != nil {
		return err
	}
	for i, k := range checks {
		begin := time.Now()
		if err := k.run(ctx, w, filepath.Join(shared[0], fmt.Sprint(i))); err != nil {
			return fmt.Errorf("%s: FAILED: %w", k.name, err)
		}
		if _, err := fmt.Fprintf(out, "%-56s %6.3fs  ok\n", k.name, time.Since(begin).Seconds()); err != nil {
			return err
		}
	}
	if err := acc.WaitForEveryone(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "All checks passed with %s.\n", cmdline.Count(w.Size(), "rank"))
	return err
}

func checkProcesses(ctx context.Context, w *train.World, _ string) error {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	if acc.NumProcesses() != w.Size() || acc.ProcessIndex() != w.Rank() || acc.IsMainProcess() != (w.Rank() == 0) {
		return fmt.Errorf("got rank %d of %d, want %d of %d", acc.ProcessIndex(), acc.NumProcesses(), w.Rank(), w.Size())
	}
	all, err := train.Gather(ctx, acc, []int{w.Rank()})
	if err != nil {
		return err
	}
	for r, got := range all {
		if got != r {
			return fmt.Errorf("got the gathered ranks %v, want 0 to %d in order", all, w.Size()-1)
		}
	}
	return acc.WaitForEveryone(ctx)
}

func checkSeeds(ctx context.Context, w *train.World, _ string) error {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	for _, own := range []bool{false, true} {
		acc.SetSeed(42, own)
		all, err := train.Gather(ctx, acc, []int64{acc.Generator().Int63()})
		if err != nil {
			return err
		}
		slices.Sort(all)
		if different := len(slices.Compact(all)); different != 1 && !own || different != w.Size() && own {
			want := 1
			if own {
				want = w.Size()
			}
			return fmt.Errorf("got %d different random numbers on %d ranks, want %d", different, w.Size(), want)
		}
	}
	return nil
}

// numbers returns the samples 0 … n-1.
func numbers(n int) data.Slice[int] {
	all := make(data.Slice[int], n)
	for i := range all {
		all[i] = i
	}
	return all
}

func checkSharding(ctx context.Context, w *train.World, _ string) error {
	const n = 37
	for _, split := range []bool{false, true} {
		for _, shuffle := range []bool{false, true} {
			acc, err := train.New(train.Config{World: w, DataLoader: train.DataLoaderConfig{
				SplitBatches: split, EvenBatches: new(bool), UseSeedableSampler: shuffle}})
			if err != nil {
				return err
			}
			l, err := data.NewLoader(numbers(n), data.Samples[int], data.Options{BatchSize: 2 * w.Size(), Shuffle: shuffle})
			if err != nil {
				return err
			}
			if err := acc.Prepare(l); err != nil {
				return err
			}
			var mine []int
			for b, err := range l.All(ctx) {
				if err != nil {
					return err
				}
				mine = append(mine, b...)
			}
			if err := once(ctx, acc, mine, n); err != nil {
				return fmt.Errorf("with split batches %v and shuffling %v: %w", split, shuffle, err)
			}
		}
	}
	return nil
}

// once returns an error unless the ranks together have each of 0 … n-1 exactly once.
func once(ctx context.Context, acc *train.Accelerator, mine []int, n int) error {
	all, err := train.GatherObject(ctx, acc, mine)
	if err != nil {
		return err
	}
	slices.Sort(all)
	if !slices.Equal(all, numbers(n)) {
		return fmt.Errorf("got the samples %v on all ranks, want each of 0 to %d once", all, n-1)
	}
	return nil
}

func checkMetrics(ctx context.Context, w *train.World, _ string) error {
	const n = 23
	acc, err := train.New(train.Config{World: w, Corrections: train.Corrected()})
	if err != nil {
		return err
	}
	l, err := data.NewLoader(numbers(n), data.Samples[int], data.Options{BatchSize: 3})
	if err != nil {
		return err
	}
	if err := acc.Prepare(l); err != nil {
		return err
	}
	var all []int
	for b, err := range l.All(ctx) {
		if err == nil {
			b, err = train.GatherForMetrics(ctx, acc, b)
		}
		if err != nil {
			return err
		}
		all = append(all, b...)
	}
	if slices.Sort(all); !slices.Equal(all, numbers(n)) {
		return fmt.Errorf("got the gathered samples %v, want each of 0 to %d once", all, n-1)
	}
	return nil
}

func checkSplit(ctx context.Context, w *train.World, _ string) error {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	mine, err := train.SplitBetweenProcesses(acc, []int(numbers(11)), false)
	if err != nil {
		return err
	}
	return once(ctx, acc, mine, 11)
}

func checkTrigger(ctx context.Context, w *train.World, _ string) error {
	acc, err := train.New(train.Config{World: w})
	if err != nil {
		return err
	}
	if w.Rank() == w.Size()-1 {
		acc.SetTrigger()
	}
	for _, want := range []bool{true, false} {
		got, err := acc.CheckTrigger(ctx)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("got the trigger %v, want %v", got, want)
		}
	}
	return nil
}

// line fits y = w·x + b to samples of 3·x - 1. The result must not depend on the number of ranks or
// on the length of accumulation windows.
type line struct {
	acc    *train.Accelerator
	tape   *tensor.Tape
	weight *tensor.Parameter
	opt    optim.Optimizer
	loader *data.Loader[[]int]
}

func newLine(w *train.World, steps, batch int) (*line, error) {
	acc, err := train.New(train.Config{World: w, GradientAccumulationSteps: steps, Corrections: train.Corrected(),
		DataLoader: train.DataLoaderConfig{EvenBatches: new(bool), UseStatefulDataLoader: true}})
	if err != nil {
		return nil, err
	}
	l := &line{acc: acc, tape: acc.NewTape(tensor.Options{Threads: 1}), weight: tensor.NewParameter([]float32{0.5, 0}, 1, 2)}
	adam, err := optim.NewAdamW(train.Params(l.weight), optim.AdamOptions{LR: 0.05, WeightDecay: 0.01})
	if err != nil {
		return nil, err
	}
	l.opt = adam
	if l.loader, err = data.NewLoader(numbers(29), data.Samples[int], data.Options{BatchSize: batch}); err != nil {
		return nil, err
	}
	return l, acc.Prepare(l.weight, &l.opt, l.loader)
}

// epoch trains on all samples and calls after at the end of each step.
func (l *line) epoch(ctx context.Context, after func(step int) error) error {
	step := 0
	for w, err := range train.Windows(ctx, l.acc, l.loader.All(ctx), func(b []int) int { return len(b) }) {
		if err == nil {
			_, err = w.Each(ctx, l.loss)
		}
		if err == nil {
			err = l.opt.Step()
		}
		if err != nil {
			return err
		}
		l.opt.ZeroGrad()
		step++
		if err := after(step); err != nil {
			return err
		}
	}
	return nil
}

func (l *line) loss(_ context.Context, samples []int) (*tensor.Tensor, error) {
	var x, y []float32
	for _, s := range samples {
		v := float32(s%8)/8 - 0.4
		x, y = append(x, v, 1), append(y, 3*v-1)
	}
	out := l.tape.Linear(l.tape.Input(x, len(samples), 2), l.tape.Use(l.weight), nil)
	return l.tape.MSE(out, l.tape.Input(y, len(samples), 1), tensor.Sum), l.tape.Err()
}

func checkTraining(ctx context.Context, w *train.World, _ string) error {
	alone, err := newLine(nil, 1, 2*w.Size()*2)
	if err != nil {
		return err
	}
	many, err := newLine(w, 2, 2)
	if err != nil {
		return err
	}
	nothing := func(int) error { return nil }
	if err := errors.Join(alone.epoch(ctx, nothing), many.epoch(ctx, nothing)); err != nil {
		return err
	}
	for i, want := range alone.weight.Data() {
		if got := many.weight.Data()[i]; math.Abs(float64(got-want)) > 1e-4 {
			return fmt.Errorf("got weights %v, want %v", many.weight.Data(), alone.weight.Data())
		}
	}
	return nil
}

func checkState(ctx context.Context, w *train.World, dir string) error {
	whole, err := newLine(w, 2, 2)
	if err != nil {
		return err
	}
	err = whole.epoch(ctx, func(step int) error {
		if step != 2 {
			return nil
		}
		_, err := whole.acc.SaveState(ctx, dir)
		return err
	})
	if err != nil {
		return err
	}
	again, err := newLine(w, 2, 2)
	if err != nil {
		return err
	}
	if err := again.acc.LoadState(ctx, dir); err != nil {
		return err
	}
	if err := again.epoch(ctx, func(int) error { return nil }); err != nil {
		return err
	}
	if !slices.Equal(whole.weight.Data(), again.weight.Data()) {
		return fmt.Errorf("got weights %v, want %v", again.weight.Data(), whole.weight.Data())
	}
	return nil
}
