package train

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(closing{m}) }

// closing are tests after which tapes keep no threads.
type closing struct{ *testing.M }

func (m closing) Run() int {
	code := m.M.Run()
	if err := tensor.CloseIdle(); err != nil {
		panic(err)
	}
	return code
}

// counted is an optimizer that counts what reaches it.
type counted struct {
	optim.Optimizer
	steps, zeros int
}

func (c *counted) Step() error { c.steps++; return c.Optimizer.Step() }
func (c *counted) ZeroGrad()   { c.zeros++; c.Optimizer.ZeroGrad() }

// toy is y = w*x with what trains it, on one rank.
type toy struct {
	a     *Accelerator
	tape  *tensor.Tape
	w     *tensor.Parameter
	raw   *counted
	clock interface {
		LastEpoch() int
		StepCount() int
	}
	opt   optim.Optimizer
	sched optim.Scheduler
}

func newToy(c Config, w0, lr, momentum float64) (*toy, error) {
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	m := &toy{a: a, tape: tensor.NewTape(tensor.Options{Threads: 1}), w: tensor.NewParameter([]float32{float32(w0)}, 1, 1)}
	sgd, err := optim.NewSGD(Params(m.w), optim.SGDOptions{LR: lr, Momentum: momentum})
	if err != nil {
		return nil, err
	}
	m.raw = &counted{Optimizer: sgd}
	m.opt = m.raw
	return m, a.Prepare(m.w, &m.opt)
}

// schedule adds a scheduler, prepared.
func (m *toy) schedule(s optim.Scheduler) error {
	m.clock = s.(interface {
		LastEpoch() int
		StepCount() int
	})
	m.sched = s
	return m.a.Prepare(&m.sched)
}

func (m *toy) inverse() error {
	return m.schedule(optim.NewLambda(m.raw.Optimizer, func(e int) float64 { return 1 / float64(1+e) }))
}

// output is w*x, a column.
func (m *toy) output(x []float32) *tensor.Tensor {
	return m.tape.Linear(m.tape.Input(x, len(x), 1), m.tape.Use(m.w), nil)
}

// loss is the mean squared difference to y.
func (m *toy) loss(x, y []float32) *tensor.Tensor {
	return m.tape.MSE(m.output(x), m.tape.Input(y, len(y), 1), tensor.Mean)
}

func (m *toy) grad() float64 {
	if m.w.Grad() == nil {
		return 0
	}
	return float64(m.w.Grad()[0])
}

func (m *toy) weight() float64 { return float64(m.w.Data()[0]) }

// microTrace is one micro step as fixtures record it; nil is not recorded.
type microTrace struct {
	Epoch     *float64 `json:"epoch"`
	Loader    string
	I         float64
	Call      float64
	NumSteps  *float64 `json:"num_steps"`
	Event     string
	Active    string
	IsEval    *bool    `json:"active_is_eval"`
	Step      *float64 `json:"step_counter"`
	Sync      *bool    `json:"sync_gradients"`
	End       *bool    `json:"end_of_dataloader"`
	In        *bool    `json:"in_dataloader"`
	Remainder *float64
	Stepped   *bool    `json:"optimizer_stepped"`
	Zeroed    *bool    `json:"grads_zeroed"`
	Scheduled *float64 `json:"scheduler_steps"`
	Count     *float64 `json:"scheduler_step_count"`
	LR        *float64
	Grad      *float64
	Weight    *float64
}

// check compares the recorded values.
func check[T comparable](what string, want *T, got T) error {
	if want != nil && *want != got {
		return fmt.Errorf("%s is %v, want %v", what, got, *want)
	}
	return nil
}

func near(what string, want *float64, got float64) error {
	if want != nil && !close2(*want, got) {
		return fmt.Errorf("%s is %v, want %v", what, got, *want)
	}
	return nil
}

func close2(want, got float64) bool {
	return want == got || math.Abs(want-got) <= 1e-6+2e-5*math.Abs(want) || math.IsNaN(want) && math.IsNaN(got)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// flags compares the accelerator's state.
func (w *microTrace) flags(a *Accelerator) error {
	return first(
		check("step counter", w.Step, float64(a.rank.Position.Step)),
		check("SyncGradients", w.Sync, a.SyncGradients()),
		check("EndOfDataloader", w.End, a.EndOfDataloader()),
		check("InDataloader", w.In, a.InDataloader()),
		check("Remainder", w.Remainder, float64(a.Remainder())))
}

// micro runs one micro step of y² on x and compares it with the record.
func (m *toy) micro(ctx context.Context, x float32, w *microTrace) error {
	return m.a.Accumulate(ctx, func(ctx context.Context) error {
		if err := m.a.Backward(ctx, m.loss([]float32{x}, []float32{0})); err != nil {
			return err
		}
		grad, steps, zeros, moved := m.grad(), m.raw.steps, m.raw.zeros, m.clock.LastEpoch()
		if err := first(m.opt.Step(), m.sched.Step()); err != nil {
			return err
		}
		m.opt.ZeroGrad()
		return first(
			w.flags(m.a),
			check("optimizer stepped", w.Stepped, m.raw.steps > steps),
			check("gradients zeroed", w.Zeroed, m.raw.zeros > zeros),
			check("scheduler steps", w.Scheduled, float64(m.clock.LastEpoch()-moved)),
			check("scheduler count", w.Count, float64(m.clock.StepCount())),
			near("learning rate", w.LR, m.sched.LastLR()[0]),
			near("gradient", w.Grad, grad),
			near("weight", w.Weight, m.weight()))
	}, m.w)
}

// indices is a loader over 0 … n-1.
func indices(n, batch int) *data.Loader[[]int] {
	s := make(data.Slice[int], n)
	for i := range s {
		s[i] = i
	}
	l, err := data.NewLoader(s, data.Samples[int], data.Options{BatchSize: batch})
	if err != nil {
		panic(err) // a batch size of the test's own
	}
	return l
}

func TestGoldenAccumulate(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/accumulate", n) })
	for _, path := range golden.Glob(t, "train/accumulate/*.json") {
		var file struct {
			Cases   []accumulateCase
			Trigger []triggerRank `json:"trigger_sync_in_backward"`
		}
		golden.JSON(t, path, &file)
		if len(file.Trigger) > 0 {
			n++
			t.Run("trigger_sync_in_backward", func(t *testing.T) { report(t, triggerSync(t.Context(), file.Trigger)) })
		}
		for i := range file.Cases {
			c := &file.Cases[i]
			n++
			t.Run(c.title(path), func(t *testing.T) {
				t.Parallel()
				if err := c.run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

type accumulateCase struct {
	Name       string
	NumBatches *float64 `json:"num_batches"`
	NumSteps   float64  `json:"num_steps"`
	Sync       *bool    `json:"sync_with_dataloader"`
	Adjust     *bool    `json:"adjust_scheduler"`
	Epochs     float64
	Steps      float64 `json:"optimizer_steps"`
	Final      float64 `json:"final_step_counter"`
	Loaders    []float64
	Trace      traces

	ddpCase
}

func (c *accumulateCase) title(path string) string {
	if c.Name != "" {
		return c.Name
	}
	return fmt.Sprintf("%s/batches=%v,steps=%v,sync=%v,adjust=%v,epochs=%v", strings.TrimSuffix(path[strings.LastIndexByte(path, '/')+1:], ".json"),
		*c.NumBatches, c.NumSteps, on(c.Sync), on(c.Adjust), c.Epochs)
}

func (c *accumulateCase) run(ctx context.Context) error {
	switch {
	case c.NumBatches != nil:
		return c.single(ctx)
	case len(c.Ranks) > 0:
		return c.ddp(ctx, int(c.NumSteps), int(c.Epochs))
	}
	return c.scenario(ctx)
}

func (c *accumulateCase) config() Config {
	return Config{GradientAccumulation: &GradientAccumulation{Steps: int(c.NumSteps), SyncWithDataloader: c.Sync, AdjustScheduler: c.Adjust}}
}

func (c *accumulateCase) single(ctx context.Context) error {
	m, err := newToy(c.config(), 1, 1e-3, 0)
	if err != nil {
		return err
	}
	if err := m.inverse(); err != nil {
		return err
	}
	l := indices(int(*c.NumBatches), 1)
	if err := m.a.Prepare(l); err != nil {
		return err
	}
	k := 0
	for range int(c.Epochs) {
		for b, err := range l.All(ctx) {
			if err != nil {
				return err
			}
			if k == len(c.Trace) {
				return fmt.Errorf("more than the %d micro steps recorded", k)
			}
			if err := m.micro(ctx, float32(b[0]+1), &c.Trace[k]); err != nil {
				return fmt.Errorf("micro step %d: %w", k, err)
			}
			k++
		}
	}
	steps, final := float64(m.raw.steps), float64(m.a.rank.Position.Step)
	if k != len(c.Trace) {
		return fmt.Errorf("%d micro steps, want %d", k, len(c.Trace))
	}
	return first(check("optimizer steps", &c.Steps, steps), check("the counter in the end", &c.Final, final))
}

// walk is a loop over a loader that a scenario takes step by step.
type walk struct {
	loader   *data.Loader[[]int]
	next     func() ([]int, error, bool)
	stop     func()
	taken, n int
}

func (w *walk) begin(ctx context.Context) {
	w.next, w.stop = iter.Pull2(w.loader.All(ctx))
	w.taken = 0
}

func (w *walk) take() error {
	_, err, ok := w.next()
	if err == nil && !ok {
		err = fmt.Errorf("the loader ended after %d batches", w.taken)
	}
	w.taken++
	return err
}

// leave ends the loop: by its loader's end if that is reached, else by a break.
func (w *walk) leave(broken bool) error {
	if w.next == nil {
		return nil
	}
	defer w.stop()
	if w.taken < w.n || broken {
		return nil
	}
	if _, err, ok := w.next(); ok || err != nil {
		return fmt.Errorf("the loader goes on after %d batches: %v", w.n, err)
	}
	return nil
}
