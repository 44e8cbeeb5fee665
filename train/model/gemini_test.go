package model

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// course is a run of some steps.
type course struct {
	window int
	norm   float64 // limit of the gradients' norm, or 0
	sgd    bool
}

func (c course) optimizer(m *Model) (optim.Optimizer, error) {
	if c.sgd {
		return optim.NewSGD(train.Params(m), optim.SGDOptions{LR: 0.01, Momentum: 0.9})
	}
	return optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01, WeightDecay: 0.1})
}

// run trains m with a plugin and returns its checkpoint.
func (c course) run(ctx context.Context, w *train.World, m *Model, p train.Plugin) ([]byte, error) {
	acc, err := train.New(train.Config{World: w, Plugin: p, GradientAccumulationSteps: c.window})
	if err != nil {
		return nil, err
	}
	opt, err := c.optimizer(m)
	if err == nil {
		err = acc.Prepare(m, &opt)
	}
	if err != nil {
		return nil, err
	}
	tp := tensor.NewTape(tensor.Options{Threads: 1})
	for i := range 3 * c.window {
		err := acc.Accumulate(ctx, func(ctx context.Context) error {
			b := someBatch(1, 2+i, 9+w.Rank(), 4)
			loss, err := m.Loss(tp, b, Options{Recompute: true})
			if err == nil {
				err = acc.Backward(ctx, loss)
			}
			if err == nil && acc.SyncGradients() && c.norm > 0 {
				_, err = acc.ClipGradNorm(train.Params(m), c.norm, 2)
			}
			if err == nil {
				err = opt.Step()
			}
			opt.ZeroGrad()
			return err
		}, m)
		if err != nil {
			return nil, err
		}
	}
	return saved(m)
}

// within trains a model on ranks that each load it with options, and returns the first rank's checkpoint and
// the plugins.
func (c course) within(t *testing.T, dir string, ranks int, plugin func(*train.World) train.Plugin, options ...Option) []byte {
	t.Helper()
	all := make([][]byte, ranks)
	rank := func(ctx context.Context, w *train.World) (err error) {
		m, err := openFile(t, dir, dir, options...)
		if err != nil {
			return err
		}
		defer m.Close()
		all[w.Rank()], err = c.run(ctx, w, m, plugin(w))
		return err
	}
	err := error(nil)
	if ranks == 1 {
		err = rank(t.Context(), nil)
	} else {
		err = train.Launch(t.Context(), ranks, rank)
	}
	if err != nil {
		t.Fatal(err)
	}
	for r := range all {
		if !bytes.Equal(all[r], all[0]) {
			t.Errorf("rank %d has other weights than rank 0", r)
		}
	}
	return all[0]
}

// stateOf returns the bytes of a model's weights, gradients and two moments, and of its largest weight.
func stateOf(t *testing.T, dir string) (state, largest int64) {
	t.Helper()
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, u := range m.units {
		unit := int64(0)
		for _, p := range u.trained {
			unit += (4*int64(p.Len()) + pageBytes - 1) &^ (pageBytes - 1)
		}
		largest = max(largest, unit)
	}
	for _, p := range m.Parameters() {
		state += 4 * ((4*int64(p.Len()) + pageBytes - 1) &^ (pageBytes - 1))
	}
	return state, largest
}

// TestGeminiTrainsThreeTimesItsMemory to the bits of training in memory: all weights of a model, within a third
// of weights, gradients and optimizer state, on one rank and on two, with and without accumulation and clipping.
func TestGeminiTrainsThreeTimesItsMemory(t *testing.T) {
	for _, name := range []string{"gemma2", "qwen3-moe", "gpt-neox", "qwen3-5", "mistral-large4", "deepseek-v4"} {
		dir := ownModel(t, name)
		state, largest := stateOf(t, dir)
		for i, c := range []course{{window: 1}, {window: 2, norm: 0.5}, {window: 1, norm: 0.1, sgd: true}} {
			for ranks := 1; ranks <= 2; ranks++ {
				t.Run(fmt.Sprint(name, i, ranks), func(t *testing.T) {
					want := c.within(t, dir, ranks, func(w *train.World) train.Plugin {
						if ranks == 1 {
							return nil
						}
						return &train.LowLevelZeroPlugin{World: w, Stage: 2}
					})
					plugins := make([]*train.GeminiPlugin, ranks)
					scratch := t.TempDir()
					got := c.within(t, dir, ranks, func(w *train.World) train.Plugin {
						plugins[w.Rank()] = &train.GeminiPlugin{World: w, EnableGradientAccumulation: true}
						return plugins[w.Rank()]
					}, OffloadParameters(state/3, scratch))
					if !bytes.Equal(got, want) {
						t.Error("the weights differ")
					}
					for _, p := range plugins {
						// The most that is needed at once: a unit with its gradients, a step of its largest weight.
						st := p.Stats()
						if st.Ahead == 0 || st.Ahead > st.Read || st.Written == 0 || st.Hit == 0 || st.Hit > st.Used || st.Peak > max(state/3, 4*largest) {
							t.Errorf("of %d bytes, the largest unit %d: %+v", state, largest, st)
						}
					}
					if left, _ := filepath.Glob(filepath.Join(scratch, atomicfile.TempPrefix+"*")); len(left) > 0 {
						t.Errorf("left behind: %v", left)
					}
				})
			}
		}
	}
}

// TestGeminiTakesModelsInMemory: their values move to the plugin's own store, under both policies.
func TestGeminiTakesModelsInMemory(t *testing.T) {
	dir := ownModel(t, "gemma2")
	c := course{window: 1, norm: 0.5}
	want := c.within(t, dir, 1, func(*train.World) train.Plugin { return nil })
	for name, p := range map[string]*train.GeminiPlugin{
		"auto":         {MemoryLimit: 1},
		"static":       {PlacementPolicy: "static", OffloadParamFrac: 0.5, OffloadOptimFrac: 1},
		"static, none": {PlacementPolicy: "static"},
	} {
		p.Dir, p.EnableGradientAccumulation = t.TempDir(), true
		if got := c.within(t, dir, 1, func(*train.World) train.Plugin { return p }); !bytes.Equal(got, want) {
			t.Errorf("%s: the weights differ", name)
		}
		st := p.Stats()
		if moves := name != "static, none"; moves != (st.Written > 0) || moves != (st.Size > 0) {
			t.Errorf("%s: %+v", name, st)
		}
		if name == "static" && st.Held < st.Size/8 {
			t.Errorf("%s: a quarter of the chunks stay: %+v", name, st)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAFullDiskLosesNoStepOfGemini: a step fails, is called again when there is room, and the run ends with the
// weights of one that never failed.
func TestAFullDiskLosesNoStepOfGemini(t *testing.T) {
	dir := ownModel(t, "gemma2")
	learn := func(disks ...int64) ([]byte, int) {
		m, err := openFile(t, dir, dir, OffloadParameters(1, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		p := &train.GeminiPlugin{MaxNorm: 0.5}
		b, err := train.NewBooster(p)
		if err != nil {
			t.Fatal(err)
		}
		adam, _ := course{}.optimizer(m)
		_, opt, _, _, _, err := b.Boost(m, adam, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		tp, failures := tensor.NewTape(tensor.Options{Threads: 1}), 0
		for i := range 3 {
			loss, err := m.Loss(tp, someBatch(1, 2+i, 9, 4), Options{})
			if err == nil {
				err = b.Backward(t.Context(), loss, opt)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, disk := range append(disks, 0) {
				m.changing.SetMaxDisk(disk)
				if err = opt.Step(); err == nil {
					break
				}
				if failures++; !strings.Contains(err.Error(), "cannot leave memory") {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		out, err := saved(m)
		if err != nil {
			t.Fatal(err)
		}
		return out, failures
	}
	want, _ := learn()
	got, failures := learn(1, 100<<10, 200<<10)
	if failures < 2 {
		t.Errorf("%d steps failed, want several", failures)
	}
	if !bytes.Equal(got, want) {
		t.Error("the weights differ")
	}
}

// TestCheckpointsOfGeminiFitAnyPlugin: the weights and the optimizer's state that two ranks with Gemini save
// from disk are restored by one rank in memory, saved by it, and restored by two ranks with Gemini.
func TestCheckpointsOfGeminiFitAnyPlugin(t *testing.T) {
	dir, folder := ownModel(t, "gemma2"), t.TempDir()
	visit := func(ranks int, gemini bool, from, to string) {
		t.Helper()
		rank := func(ctx context.Context, w *train.World) error {
			plugin, options := train.Plugin(nil), []Option(nil)
			if gemini {
				plugin, options = &train.GeminiPlugin{World: w}, []Option{OffloadParameters(1, t.TempDir())}
			}
			m, err := openFile(t, dir, dir, options...)
			if err != nil {
				return err
			}
			defer m.Close()
			acc, err := train.New(train.Config{World: w, Plugin: plugin})
			if err != nil {
				return err
			}
			opt, err := course{}.optimizer(m)
			if err == nil {
				err = acc.Prepare(m, &opt)
			}
			if err != nil {
				return err
			}
			if from != "" {
				err = acc.LoadState(ctx, filepath.Join(folder, from))
			} else {
				err = step(ctx, acc, m, opt, w.Rank())
			}
			if err == nil {
				_, err = acc.SaveState(ctx, filepath.Join(folder, to))
			}
			return err
		}
		err := error(nil)
		if ranks == 1 {
			err = rank(t.Context(), nil)
		} else {
			err = train.Launch(t.Context(), ranks, rank)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	visit(2, true, "", "a")
	visit(1, false, "a", "b")
	visit(2, true, "b", "c")
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		want, err := os.ReadFile(filepath.Join(folder, "a", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range []string{"b", "c"} {
			if got, err := os.ReadFile(filepath.Join(folder, other, name)); err != nil || !sameTensors(got, want) {
				t.Errorf("%s of %s: %v, it differs from that of the first", name, other, err)
			}
		}
	}
}

// sameTensors compares the tensors of safetensors files. Their headers differ in the shapes of optimizer
// states, which a rank that steps a part of a parameter writes as vectors.
func sameTensors(a, b []byte) bool {
	body := func(file []byte) []byte { return file[8+binary.LittleEndian.Uint64(file):] }
	return len(a) > 8 && len(b) > 8 && bytes.Equal(body(a), body(b))
}

// step trains m on one batch.
func step(ctx context.Context, acc *train.Accelerator, m *Model, opt optim.Optimizer, rank int) error {
	tp := tensor.NewTape(tensor.Options{Threads: 1})
	loss, err := m.Loss(tp, someBatch(1, 2, 9+rank, 4), Options{})
	if err == nil {
		err = acc.Backward(ctx, loss)
	}
	if err == nil {
		err = opt.Step()
	}
	return err
}
