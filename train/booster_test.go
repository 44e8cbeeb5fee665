package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

var errRan = errors.New("the function ran")

// plugins are all ways to share work between ranks.
var plugins = map[string]func(*World) Plugin{
	"ddp":    func(w *World) Plugin { return &TorchDDPPlugin{World: w} },
	"shared": func(w *World) Plugin { return &TorchDDPPlugin{World: w, ShareMemory: true} },
	"zero1":  func(w *World) Plugin { return &LowLevelZeroPlugin{World: w, Stage: 1} },
	"zero2":  func(w *World) Plugin { return &LowLevelZeroPlugin{World: w, Stage: 2} },
	"gemini": func(w *World) Plugin {
		return &GeminiPlugin{World: w, EnableGradientAccumulation: true}
	},
}

// adam makes an optimizer whose state has more than one array.
func adam(m Module) optim.Optimizer {
	o := optim.DefaultAdamW()
	o.LR = 0.05
	opt, err := optim.NewAdamW(Params(m), o)
	if err != nil {
		panic(err)
	}
	return opt
}

// boosted trains a chain for some windows, as seed 002's loop does, and returns its weights.
func boosted(ctx context.Context, p Plugin, w *World, windows, window int) ([][]float32, *Booster, optim.Optimizer, *chain, error) {
	m := newChain(5)
	b, err := NewBooster(p)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	b.acc.rank.Group.BucketBytes = 12
	_, opt, _, _, _, err := b.Boost(m, adam(m), nil, nil, nil)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	return m.values(), b, opt, m, steps(ctx, b, opt, m, w.Rank(), windows, window)
}

func (c *chain) values() [][]float32 {
	var all [][]float32
	for _, p := range c.params {
		all = append(all, p.Data())
	}
	return all
}

func steps(ctx context.Context, b *Booster, opt optim.Optimizer, m *chain, rank, windows, window int) error {
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	for idx := range windows * window {
		pass := func() error {
			loss := tape.Scale(m.loss(tape, float32(idx%3)+float32(rank)*0.5, -0.25), 1/float32(window))
			return b.Backward(ctx, loss, opt)
		}
		if (idx+1)%window != 0 && b.plugin.SupportNoSync() {
			if err := b.NoSync(m, pass); err != nil {
				return err
			}
			continue
		}
		if err := pass(); err != nil {
			return err
		}
		if (idx+1)%window != 0 {
			continue
		}
		if err := opt.Step(); err != nil {
			return err
		}
		opt.ZeroGrad()
	}
	return nil
}

// On one rank every plugin trains as a loop without any, bit for bit.
func TestPluginsOnOneRankGivePlainTraining(t *testing.T) {
	m := newChain(5)
	opt, tape := adam(m), tensor.NewTape(tensor.Options{Threads: 1})
	for idx := range 12 {
		if err := tensor.Backward(tape.Scale(m.loss(tape, float32(idx%3), -0.25), 0.25), 1); err != nil {
			t.Fatal(err)
		}
		if (idx+1)%4 == 0 {
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			opt.ZeroGrad()
		}
	}
	for name, plugin := range plugins {
		got, _, _, _, err := boosted(t.Context(), plugin(nil), nil, 3, 4)
		if err != nil || !slices.EqualFunc(got, m.values(), slices.Equal) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, m.values())
		}
	}
}

// On several ranks every plugin gives the weights of DDP, and the same on all ranks.
func TestPluginsGiveTheSameWeights(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, window := range []int{1, 4} {
			weights := map[string][][]float32{}
			for name, plugin := range plugins {
				all := make([][][]float32, n)
				err := Launch(t.Context(), n, func(ctx context.Context, w *World) (err error) {
					all[w.Rank()], _, _, _, err = boosted(ctx, plugin(w), w, 3, window)
					return err
				})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for r := range all {
					if !slices.EqualFunc(all[r], all[0], slices.Equal) {
						t.Errorf("%s: rank %d of %d has %v, rank 0 %v", name, r, n, all[r], all[0])
					}
				}
				weights[name] = all[0]
			}
			for name, got := range weights {
				for i := range got {
					for j, v := range got[i] {
						d := math.Abs(float64(v - weights["ddp"][i][j]))
						// Averages of each pass round otherwise than the average of their sum.
						if window == 1 && d != 0 || name == "zero1" && d != 0 || d > 1e-6 {
							t.Errorf("%s, %d ranks, windows of %d: weight %d.%d is %v, ddp has %v", name, n, window, i, j, v, weights["ddp"][i][j])
						}
					}
				}
			}
		}
	}
}

func TestNoSyncByPlugin(t *testing.T) {
	for name, plugin := range plugins {
		b, err := NewBooster(plugin(nil))
		if err != nil {
			t.Fatal(err)
		}
		m := newChain(1)
		if _, _, _, _, _, err := b.Boost(m, adam(m), nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		err = b.NoSync(m, func() error { return errRan })
		want := errRan
		if name == "zero2" || name == "gemini" {
			want = ErrNoSync
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// Gemini drops gradients after a step by itself, and accumulates only when that is enabled.
func TestGeminiAccumulatesOnlyWhenEnabled(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
				b, err := NewBooster(&GeminiPlugin{World: w, EnableGradientAccumulation: enabled})
				if err != nil {
					return err
				}
				p := tensor.NewParameter([]float32{1, 1})
				sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 1})
				if err != nil {
					return err
				}
				_, opt, _, _, _, err := b.Boost(p, sgd, nil, nil, nil)
				if err != nil {
					return err
				}
				tape := tensor.NewTape(tensor.Options{Threads: 1})
				for range 2 { // two windows of two passes of gradients 1 and 2
					for pass := range 2 {
						loss := tape.Scale(tape.Sum(tape.Use(p)), float32(pass+1)/8)
						if err := b.Backward(ctx, loss, opt); err != nil {
							return err
						}
					}
					if err := opt.Step(); err != nil {
						return err
					}
				}
				want := float32(1 - 2*2.0/8)
				if enabled {
					want = 1 - 2*3.0/8
				}
				if p.Data()[0] != want || p.Data()[1] != want {
					return fmt.Errorf("accumulation %v: weights %v, want %v", enabled, p.Data(), want)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// A gradient that overflows on one rank skips the step on all of them.
func TestAnOverflowSkipsTheStepOnAllRanks(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		b, err := NewBooster(&LowLevelZeroPlugin{World: w, Stage: 2, MaxNorm: 1})
		if err != nil {
			return err
		}
		p := tensor.NewParameter([]float32{1, 1, 1, 1})
		sgd, err := optim.NewSGD(Params(p), optim.SGDOptions{LR: 1})
		if err != nil {
			return err
		}
		_, opt, _, _, _, err := b.Boost(p, sgd, nil, nil, nil)
		if err != nil {
			return err
		}
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		for _, factor := range []float32{float32(math.Inf(1)), 3} {
			x := []float32{1, 1, 1, 1}
			if w.Rank() == 1 {
				x[3] = factor // only one shard sees it
			}
			if err := b.Backward(ctx, tape.Sum(tape.Mul(tape.Use(p), tape.Input(x))), opt); err != nil {
				return err
			}
			if err := opt.Step(); err != nil {
				return err
			}
			opt.ZeroGrad()
			skipped := opt.(interface{ StepWasSkipped() bool }).StepWasSkipped()
			if overflow := math.IsInf(float64(factor), 0); skipped != overflow || overflow && p.Data()[0] != 1 {
				return fmt.Errorf("factor %v: skipped %v, weights %v", factor, skipped, p.Data())
			}
		}
		// The mean gradient is 1, 1, 1, 2, of norm √7, which is limited to 1.
		for i, g := range []float64{1, 1, 1, 2} {
			if want := 1 - g/math.Sqrt(7); !(math.Abs(float64(p.Data()[i])-want) <= 1e-6) {
				return fmt.Errorf("weights %v, want 1 - g/√7 for g = 1, 1, 1, 2", p.Data())
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A state that n ranks saved whole continues with any plugin and number of ranks; parts with the same.
func TestOptimizersAreSavedWholeOrInParts(t *testing.T) {
	for _, shard := range []bool{false, true} {
		dir := t.TempDir()
		want := make([][][]float32, 2)
		err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
			weights, b, opt, m, err := boosted(ctx, &LowLevelZeroPlugin{World: w}, w, 2, 1)
			if err != nil {
				return err
			}
			err = errors.Join(b.SaveModel(ctx, m, filepath.Join(dir, "model"), shard, SaveModelOptions{}),
				b.SaveOptimizer(ctx, opt, filepath.Join(dir, "optimizer"), shard))
			if err == nil {
				err = steps(ctx, b, opt, m, w.Rank(), 2, 1)
			}
			want[w.Rank()] = weights
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, plugin := range plugins {
			err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
				weights, b, opt, m, err := boosted(ctx, plugin(w), w, 0, 1)
				if err != nil {
					return err
				}
				err = b.LoadOptimizer(ctx, opt, filepath.Join(dir, "optimizer"))
				if shard && (name == "ddp" || name == "shared") {
					if err == nil {
						return errors.New("parts were loaded whole")
					}
					return nil
				}
				if err == nil {
					err = b.LoadModel(ctx, m, filepath.Join(dir, "model"))
				}
				if err == nil {
					err = steps(ctx, b, opt, m, w.Rank(), 2, 1)
				}
				if err == nil && !slices.EqualFunc(weights, want[0], slices.Equal) {
					err = fmt.Errorf("weights %v, want %v", weights, want[0])
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, in parts: %v: %v", name, shard, err)
			}
		}
	}
}

// A checkpoint of an Accelerator with ZeRO continues bit for bit.
func TestACheckpointHasTheWholeStateOfZero(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	run := func(n int, do func(ctx context.Context, a *Accelerator, m *chain, opt optim.Optimizer) error) {
		t.Helper()
		err := Launch(t.Context(), n, func(ctx context.Context, w *World) error {
			a, err := New(Config{World: w, Plugin: &LowLevelZeroPlugin{World: w}})
			if err != nil {
				return err
			}
			m := newChain(5)
			opt := adam(m)
			if err := a.Prepare(&opt, m); err != nil {
				return err
			}
			return do(ctx, a, m, opt)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	step := func(ctx context.Context, a *Accelerator, m *chain, opt optim.Optimizer) error {
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		if err := errors.Join(a.Backward(ctx, m.loss(tape, 1, 2)), opt.Step()); err != nil {
			return err
		}
		opt.ZeroGrad()
		return nil
	}
	var want [][]float32
	run(3, func(ctx context.Context, a *Accelerator, m *chain, opt optim.Optimizer) error {
		err := step(ctx, a, m, opt)
		if err == nil {
			_, err = a.SaveState(ctx, dir)
		}
		if err = errors.Join(err, step(ctx, a, m, opt)); a.IsMainProcess() {
			want = m.values()
		}
		return err
	})
	run(3, func(ctx context.Context, a *Accelerator, m *chain, opt optim.Optimizer) error {
		if err := errors.Join(a.LoadState(ctx, dir), step(ctx, a, m, opt)); err != nil {
			return err
		}
		if !slices.EqualFunc(m.values(), want, slices.Equal) {
			return fmt.Errorf("weights %v, want %v", m.values(), want)
		}
		return nil
	})
}

// TestGeminiPluginErrors: fields that contradict each other are errors of NewBooster or Boost that say what to use.
func TestGeminiPluginErrors(t *testing.T) {
	for want, p := range map[string]*GeminiPlugin{
		"want 0 or more":                             {MaxNorm: -1},
		"want auto or static":                        {PlacementPolicy: "other"},
		"want 0 to 1":                                {PlacementPolicy: "static", OffloadOptimFrac: 2},
		"need PlacementPolicy static":                {OffloadParamFrac: 0.5},
		"weights are whole on each rank; use Memory": {ShardParamFrac: 1},
	} {
		m := tensor.NewParameter([]float32{1}, 1)
		b, err := NewBooster(p)
		if err == nil {
			_, _, _, _, _, err = b.Boost(m, adam(m), nil, nil, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", p, err, want)
		}
	}
}

// TestNilPointersToPluginsAreErrors: they panicked, as an interface that holds one is not nil.
func TestNilPointersToPluginsAreErrors(t *testing.T) {
	for want, p := range map[string]Plugin{"train: the plugin is a nil *train.TorchDDPPlugin": (*TorchDDPPlugin)(nil),
		"train: the plugin is a nil *train.LowLevelZeroPlugin": (*LowLevelZeroPlugin)(nil), "train: the plugin is a nil *train.GeminiPlugin": (*GeminiPlugin)(nil)} {
		if _, err := NewBooster(p); err == nil || err.Error() != want {
			t.Errorf("NewBooster: got %v, want %s", err, want)
		}
		if _, err := New(Config{Plugin: p}); err == nil || err.Error() != want {
			t.Errorf("New: got %v, want %s", err, want)
		}
	}
}

// TestSchedulersAreSavedAndLoaded: a scheduler that loads the state of another one has its rate and continues with it, on all
// ranks. A state that no rank has saved is an error on all of them.
func TestSchedulersAreSavedAndLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scheduler.json")
	err := Launch(t.Context(), 2, func(ctx context.Context, w *World) error {
		_, b, opt, m, err := boosted(ctx, &TorchDDPPlugin{World: w}, w, 0, 1)
		if err != nil {
			return err
		}
		saved := optim.NewLambda(opt, optim.ConstantWithWarmup(8))
		err = errors.Join(saved.Step(), saved.Step(), saved.Step(), b.SaveLRScheduler(ctx, saved, path))
		if err != nil {
			return err
		}
		loaded := optim.NewLambda(adam(m), optim.ConstantWithWarmup(8))
		if b.LoadLRScheduler(ctx, loaded, path+".missing") == nil {
			return errors.New("a missing state was loaded")
		}
		if err := b.LoadLRScheduler(ctx, loaded, path); err != nil {
			return err
		}
		for range 2 {
			if got, want := loaded.LastLR(), saved.LastLR(); len(want) == 0 || want[0] == 0 || !slices.Equal(got, want) {
				return fmt.Errorf("got rates %v, want %v", got, want)
			}
			if err := errors.Join(saved.Step(), loaded.Step()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
