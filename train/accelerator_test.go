package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// byValue is a module without identity: two of them cannot be compared.
type byValue struct{ _ []int }

func (byValue) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(func(string, *tensor.Parameter) bool) {}
}

func world(t *testing.T, n int, f func(ctx context.Context, a *Accelerator) error) {
	t.Helper()
	if err := launch(t, n, Config{}, f); err != nil {
		t.Error(err)
	}
}

func launch(t *testing.T, n int, c Config, f func(ctx context.Context, a *Accelerator) error) error {
	t.Helper()
	return Launch(t.Context(), n, func(ctx context.Context, w *World) error {
		c := c
		c.World = w
		a, err := New(c)
		if err != nil {
			return err
		}
		return f(ctx, a)
	})
}

func TestStepsAndAccumulationTogetherAreAnError(t *testing.T) {
	if _, err := New(Config{GradientAccumulationSteps: 2, GradientAccumulation: &GradientAccumulation{}}); err == nil {
		t.Error("both were taken")
	}
	for _, c := range []Config{{GradientAccumulationSteps: -1}, {GradientAccumulation: &GradientAccumulation{Steps: -3}}} {
		if _, err := New(c); err == nil {
			t.Errorf("a negative window was taken: %+v", c)
		}
	}
	a, err := New(Config{})
	if err != nil || a.GradientAccumulationSteps() != 1 || !a.SyncGradients() || a.Device() != "cpu" {
		t.Errorf("the default: %v, %v", a, err)
	}
	if err := a.SetGradientAccumulationSteps(0); err == nil {
		t.Error("a window of 0 batches was taken")
	}
}

func TestPrepareRefuses(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := tensor.NewParameter([]float32{1})
	sgd, err := optim.NewSGD(Params(w), optim.SGDOptions{LR: 1})
	if err != nil {
		t.Fatal(err)
	}
	var opt optim.Optimizer = sgd
	var none optim.Optimizer
	if err := a.Prepare(w, &opt); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]Preparable{"nil": nil, "a nil module": (*tensor.Parameter)(nil), "a bare optimizer": sgd,
		"no optimizer": &none, "a number": 3, "a module twice": w, "an optimizer twice": &opt, "a module by value": byValue{}} {
		if err := a.Prepare(x); err == nil || !strings.HasPrefix(err.Error(), "train: prepare: argument 1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrepareGivesEveryRankTheSameWeights(t *testing.T) {
	world(t, 3, func(_ context.Context, a *Accelerator) error {
		w := tensor.NewParameter([]float32{float32(a.ProcessIndex()) + 0.5, float32(math.Copysign(0, -1))})
		if err := a.Prepare(w); err != nil {
			return err
		}
		if w.Data()[0] != 0.5 || !math.Signbit(float64(w.Data()[1])) {
			return fmt.Errorf("rank %d has %v", a.ProcessIndex(), w.Data())
		}
		return nil
	})
	world(t, 2, func(_ context.Context, a *Accelerator) error {
		frozen := tensor.NewParameter([]float32{float32(a.ProcessIndex())})
		frozen.Trainable = false
		if err := a.Prepare(frozen); err != nil {
			return err
		}
		if frozen.Data()[0] != float32(a.ProcessIndex()) {
			return errors.New("a frozen parameter was written to")
		}
		return nil
	})
	err := launch(t, 2, Config{}, func(_ context.Context, a *Accelerator) error {
		return a.Prepare(tensor.NewParameter(make([]float32, 2+a.ProcessIndex())))
	})
	if err == nil || !strings.Contains(err.Error(), "parameters of rank") {
		t.Errorf("other shapes: %v", err)
	}
}

// product is x·w as a loss.
func product(tape *tensor.Tape, w *tensor.Parameter, x float32) *tensor.Tensor {
	return tape.Scale(tape.Sum(tape.Use(w)), x)
}

// A backward pass averages the modules it reaches: another one's gradients, which wait
// for their own, stay on their rank.
func TestBackwardAveragesWhatItReaches(t *testing.T) {
	world(t, 3, func(ctx context.Context, a *Accelerator) error {
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		u, v := tensor.NewParameter([]float32{1}), tensor.NewParameter([]float32{1})
		if err := a.Prepare(u, v); err != nil {
			return err
		}
		r := float32(a.ProcessIndex())
		err := a.NoSync(u, func() error { return a.Backward(ctx, product(tape, u, r)) })
		if err != nil {
			return err
		}
		if err := a.Backward(ctx, product(tape, v, 3*r)); err != nil {
			return err
		}
		if u.Grad()[0] != r || v.Grad()[0] != 3 {
			return fmt.Errorf("rank %v: gradients %v and %v, want %v and 3", r, u.Grad(), v.Grad(), r)
		}
		err = a.NoSync(u, func() error {
			return a.TriggerSyncInBackward(u, func() error { return a.Backward(ctx, product(tape, u, r)) })
		})
		if err == nil && u.Grad()[0] != 2 {
			err = fmt.Errorf("rank %v: gradient %v, want the mean 2", r, u.Grad())
		}
		return err
	})
}

// A rank whose batch does not touch a parameter counts as zeros.
func TestBackwardWithoutAGradientOnOneRank(t *testing.T) {
	world(t, 2, func(ctx context.Context, a *Accelerator) error {
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		m := &mlp{tensor.NewParameter([]float32{1}), tensor.NewParameter([]float32{1}), tensor.NewParameter([]float32{1}), tensor.NewParameter([]float32{1})}
		if err := a.Prepare(m); err != nil {
			return err
		}
		used := m.w1
		if a.IsMainProcess() {
			used = m.w2
		}
		if err := a.Backward(ctx, product(tape, used, 4)); err != nil {
			return err
		}
		if m.w1.Grad()[0] != 2 || m.w2.Grad()[0] != 2 || m.b1.Grad() != nil {
			return fmt.Errorf("gradients %v, %v, %v", m.w1.Grad(), m.w2.Grad(), m.b1.Grad())
		}
		return nil
	})
}

func TestBackwardErrors(t *testing.T) {
	a, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Backward(t.Context(), nil); err == nil {
		t.Error("no loss is no error")
	}
	tape := tensor.NewTape(tensor.Options{})
	if err := a.Backward(t.Context(), tape.Input([]float32{1, 2})); err == nil {
		t.Error("two losses are no error")
	}
	one := func(yield func(int, error) bool) { yield(0, nil) }
	for w, err := range Windows(t.Context(), a, one, func(int) int { return 1 }) {
		if err != nil {
			t.Fatal(err)
		}
		_, err := w.Each(t.Context(), func(context.Context, int) (*tensor.Tensor, error) {
			return tape.MSE(tape.Input([]float32{1}), tape.Input([]float32{1, 2}), tensor.Mean), nil
		})
		if err == nil || !strings.Contains(err.Error(), "mse") {
			t.Errorf("an operation that failed: %v", err)
		}
	}
	if _, err := Gather(t.Context(), a, new(tensor.Tensor)); err == nil {
		t.Error("a tensor of no tape is gathered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Accumulate(ctx, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	err = launch(t, 2, Config{GradientAccumulationSteps: 2}, func(ctx context.Context, a *Accelerator) error {
		return a.Accumulate(ctx, func(context.Context) error { return nil }, tensor.NewParameter([]float32{1}))
	})
	if err == nil || !strings.Contains(err.Error(), "was not prepared") {
		t.Errorf("a module that was not prepared: %v", err)
	}
}

func TestJoinLetsARankHaveNothing(t *testing.T) {
	world(t, 3, func(ctx context.Context, a *Accelerator) error {
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		w := tensor.NewParameter([]float32{1})
		sgd, err := optim.NewSGD(Params(w), optim.SGDOptions{LR: 1})
		if err != nil {
			return err
		}
		var opt optim.Optimizer = sgd
		if err := a.Prepare(w, &opt); err != nil {
			return err
		}
		err = a.JoinUnevenInputs(ctx, func(ctx context.Context) error {
			for range a.ProcessIndex() { // none, one, two
				if err := a.Backward(ctx, product(tape, w, 3)); err != nil {
					return err
				}
				if err := opt.Step(); err != nil {
					return err
				}
				opt.ZeroGrad()
			}
			return nil
		})
		if err == nil && w.Data()[0] != 1-2-1 {
			err = fmt.Errorf("rank %d ends with %v, want -2", a.ProcessIndex(), w.Data())
		}
		return err
	})
}

func TestTrigger(t *testing.T) {
	world(t, 3, func(ctx context.Context, a *Accelerator) error {
		if a.ProcessIndex() == 1 {
			a.SetTrigger()
		}
		for _, want := range []bool{true, false} {
			if got, err := a.CheckTrigger(ctx); err != nil || got != want {
				return fmt.Errorf("the trigger is %v, %v, want %v", got, err, want)
			}
		}
		return nil
	})
}

func TestLocalSGD(t *testing.T) {
	world(t, 2, func(ctx context.Context, a *Accelerator) error {
		w := tensor.NewParameter([]float32{0})
		if err := a.Prepare(w); err != nil {
			return err
		}
		var seen []float32
		err := a.LocalSGD(ctx, w, 2, func(step func() error) error {
			for range 3 {
				w.Data()[0] += float32(2 * a.ProcessIndex())
				if err := step(); err != nil {
					return err
				}
				seen = append(seen, w.Data()[0])
			}
			return nil
		})
		want := [][]float32{{0, 2, 2}, {2, 2, 4}}[a.ProcessIndex()]
		if err == nil && (!slices.Equal(seen, want) || w.Data()[0] != 3) {
			err = fmt.Errorf("rank %d saw %v and ends with %v, want %v and 3", a.ProcessIndex(), seen, w.Data(), want)
		}
		return err
	})
}

func TestFindExecutableBatchSize(t *testing.T) {
	try := func(fits int, reduce func(int) int) (sizes []int, err error) {
		err = FindExecutableBatchSize(t.Context(), 16, func(_ context.Context, n int) error {
			sizes = append(sizes, n)
			if n > fits {
				return fmt.Errorf("a layer: %w", ErrOutOfMemory)
			}
			return nil
		}, reduce)
		return sizes, err
	}
	if sizes, err := try(10, nil); err != nil || !slices.Equal(sizes, []int{16, 14, 12, 10}) {
		t.Errorf("nine tenths: %v, %v", sizes, err)
	}
	if sizes, err := try(3, func(n int) int { return n / 2 }); err != nil || !slices.Equal(sizes, []int{16, 8, 4, 2}) {
		t.Errorf("halves: %v, %v", sizes, err)
	}
	if _, err := try(0, nil); !errors.Is(err, ErrNoBatchSize) {
		t.Errorf("nothing fits: %v", err)
	}
	if _, err := try(0, func(n int) int { return n }); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("a size that stays: %v", err)
	}
	err := FindExecutableBatchSize(t.Context(), 4, func(context.Context, int) error { return syscall.EIO }, nil)
	if !errors.Is(err, syscall.EIO) {
		t.Errorf("another error: %v", err)
	}
}

func TestProcessesAndLogs(t *testing.T) {
	var mu sync.Mutex
	var order []string
	var log bytes.Buffer
	handler := slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}})
	err := launch(t, 3, Config{Logger: slog.New(handler)}, func(ctx context.Context, a *Accelerator) error {
		note := func(what string) func() error {
			return func() error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, fmt.Sprint(what, a.ProcessIndex()))
				return nil
			}
		}
		if err := first(a.OnMainProcess(note("main")), a.WaitForEveryone(ctx), a.OnLastProcess(note("last")), a.WaitForEveryone(ctx),
			a.OnLocalMainProcess(note("local")), a.WaitForEveryone(ctx), a.OnProcess(1, note("one")), a.WaitForEveryone(ctx),
			a.MainProcessFirst(ctx, note("first"))); err != nil {
			return err
		}
		a.Logger().Info("once")
		return a.LogInOrder(ctx, func(l *slog.Logger) { l.Info("each") })
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := order[:5]; !slices.Equal(got, []string{"main0", "last2", "local0", "one1", "first0"}) || len(order) != 7 {
		t.Errorf("the order is %v", order)
	}
	if want := "msg=once rank=0\nmsg=each rank=0\nmsg=each rank=1\nmsg=each rank=2\n"; log.String() != want {
		t.Errorf("the log is %q, want %q", log.String(), want)
	}
}

// Clipping sees true gradients, and an overflow skips the step.
func TestScalerThroughTheAccelerator(t *testing.T) {
	scaler, err := optim.NewScaler(optim.ScalerOptions{InitialScale: 1024})
	if err != nil {
		t.Fatal(err)
	}
	m, err := newToy(Config{Scaler: scaler}, 1, 0.5, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		x       float32
		weight  float64
		skipped bool
	}{{4, 0.5, false}, {float32(math.Inf(1)), 0.5, true}} {
		if err := m.a.Backward(t.Context(), product(m.tape, m.w, want.x)); err != nil {
			t.Fatal(err)
		}
		norm, err := m.a.ClipGradNorm(Params(m.w), 1, 2)
		if err != nil || norm != float64(want.x) {
			t.Errorf("step %d: norm %v, %v, want %v", i, norm, err, want.x)
		}
		if err := m.a.ClipGradValue(Params(m.w), 1); !errors.Is(err, optim.ErrUnscaled) {
			t.Errorf("step %d: unscaled twice: %v", i, err)
		}
		if err := m.opt.Step(); err != nil {
			t.Fatal(err)
		}
		m.opt.ZeroGrad()
		if !(math.Abs(m.weight()-want.weight) <= 1e-5) || m.a.OptimizerStepWasSkipped() != want.skipped {
			t.Errorf("step %d: weight %v, skipped %v", i, m.weight(), m.a.OptimizerStepWasSkipped())
		}
	}
}

func TestFreeMemoryAndSeed(t *testing.T) {
	m, err := newToy(Config{GradientAccumulationSteps: 3}, 1, 0.5, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.square(t.Context(), []int{0}); err != nil {
		t.Fatal(err)
	}
	m.a.FreeMemory()
	if m.w.Grad() != nil || m.a.rank.Position.Step != 0 || !m.a.SyncGradients() {
		t.Errorf("left over: gradient %v, step %d", m.w.Grad(), m.a.rank.Position.Step)
	}
	if err := m.a.Prepare(m.w); err != nil {
		t.Errorf("preparing anew: %v", err)
	}
	if !reflect.DeepEqual(m.a.UnwrapModel(m.w), Module(m.w)) {
		t.Error("unwrapping changes a module")
	}
	world(t, 2, func(_ context.Context, a *Accelerator) error {
		a.SetSeed(7, true)
		if got := a.Generator().InitialSeed(); got != uint64(7+a.ProcessIndex()) {
			return fmt.Errorf("rank %d has the seed %d", a.ProcessIndex(), got)
		}
		return nil
	})
}

func TestLaunchNamesTheRankThatFails(t *testing.T) {
	broken := errors.New("out of tokens")
	err := launch(t, 3, Config{}, func(ctx context.Context, a *Accelerator) error {
		if a.ProcessIndex() == 2 {
			return broken
		}
		return a.WaitForEveryone(ctx)
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "rank 2") {
		t.Errorf("%v", err)
	}
	if err := Launch(t.Context(), 0, nil); err == nil {
		t.Error("a world of none")
	}
	var none *World
	if none.Rank() != 0 || none.Size() != 1 {
		t.Error("no world is not a world of one")
	}
}
