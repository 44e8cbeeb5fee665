package train

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// stepCase is a loop that accumulates by hand: NoSync until a window's last batch, the
// scheduler stepped on every one.
type stepCase struct {
	Name      string
	World     float64 `json:"world_size"`
	Samples   float64 `json:"num_samples"`
	BatchSize float64 `json:"per_device_batch_size"`
	Window    float64 `json:"gradient_accumulation_steps"`
	Told      float64 `json:"accelerator_gradient_accumulation_steps"`
	Epochs    float64
	MaxNorm   limit `json:"max_norm"`
	Optimizer struct{ LR float64 }
	Scheduler struct {
		Type   string
		Warmup int `json:"num_warmup_steps"`
	}
	Strategy optim.Strategy `json:"train_strategy"`
	Data     struct {
		X    [][]float32
		Y    []int
		Init mlpWeights
	}
	Ranks []stepRank
}

type stepRank struct {
	Steps         []stepTrace
	TrainingSteps float64  `json:"n_training_steps"`
	ScheduleSteps float64  `json:"scheduler_num_training_steps"`
	Taken         *float64 `json:"scheduler_steps_taken"`
	Micro         *int     `json:"micro_steps"`
	Final         mlpWeights
}

type mlpWeights struct {
	W1 [][]float32 `json:"fc1.weight"`
	B1 []float32   `json:"fc1.bias"`
	W2 [][]float32 `json:"fc2.weight"`
	B2 []float32   `json:"fc2.bias"`
}

type stepTrace struct {
	IDs        []float64
	ShouldSync *bool     `json:"should_sync"`
	Norm       *float64  `json:"grad_norm_local_after_backward"`
	GradB2     []float64 `json:"grad_fc2_bias_after_backward"`
	Pre        *float64  `json:"grad_norm_pre_clip"`
	Returned   *float64  `json:"clip_grad_norm_returned"`
	Post       *float64  `json:"grad_norm_post_clip"`
	Loss       *float64
	WeightNorm *float64  `json:"weight_norm"`
	LR         *float64  `json:"lr_after_scheduler_step"`
	Last       *float64  `json:"scheduler_last_epoch"`
	B2         []float64 `json:"fc2_bias"`
}

// mlp is fc2(tanh(fc1(x))).
type mlp struct{ w1, b1, w2, b2 *tensor.Parameter }

func newMLP(w *mlpWeights) *mlp {
	matrix := func(rows [][]float32) *tensor.Parameter {
		return tensor.NewParameter(slices.Concat(rows...), len(rows), len(rows[0]))
	}
	return &mlp{matrix(w.W1), tensor.NewParameter(slices.Clone(w.B1)), matrix(w.W2), tensor.NewParameter(slices.Clone(w.B2))}
}

func (m *mlp) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		_ = yield("fc1.weight", m.w1) && yield("fc1.bias", m.b1) && yield("fc2.weight", m.w2) && yield("fc2.bias", m.b2)
	}
}

func (m *mlp) loss(tape *tensor.Tape, x []float32, width int, y []int) *tensor.Tensor {
	in := tape.Input(x, len(y), width)
	hidden := tape.Tanh(tape.Linear(in, tape.Use(m.w1), tape.Use(m.b1)))
	return tape.CrossEntropy(tape.Linear(hidden, tape.Use(m.w2), tape.Use(m.b2)), y, tensor.CrossEntropyOptions{})
}

// stepLoop is the loop on one rank.
type stepLoop struct {
	c     *stepCase
	a     *Accelerator
	m     *mlp
	tape  *tensor.Tape
	opt   optim.Optimizer
	sched optim.Scheduler
	moved interface{ LastEpoch() int }
	step  int
}

func (c *stepCase) run(ctx context.Context) error {
	return Launch(ctx, int(c.World), func(ctx context.Context, w *World) error {
		want := &c.Ranks[w.Rank()]
		s, err := c.newLoop(w, want)
		if err != nil {
			return err
		}
		l := indices(int(c.Samples), int(c.BatchSize))
		if err := s.a.Prepare(s.m, &s.opt, &s.sched, l); err != nil {
			return err
		}
		for range int(c.Epochs) {
			for ids, err := range l.All(ctx) {
				if err != nil {
					return err
				}
				if s.step == len(want.Steps) {
					return fmt.Errorf("more than %d steps", s.step)
				}
				if err := s.train(ctx, ids, &want.Steps[s.step]); err != nil {
					return fmt.Errorf("step %d: %w", s.step, err)
				}
				s.step++
			}
		}
		var w1, w2 []float64
		for _, v := range slices.Concat(want.Final.W1...) {
			w1 = append(w1, float64(v))
		}
		for _, v := range slices.Concat(want.Final.W2...) {
			w2 = append(w2, float64(v))
		}
		return first(check("micro steps", want.Micro, s.step), check("steps of the schedule", want.Taken, float64(s.moved.LastEpoch())),
			nearAll("fc1.weight", w1, s.m.w1.Data()), nearAll("fc2.weight", w2, s.m.w2.Data()))
	})
}

func (c *stepCase) newLoop(w *World, want *stepRank) (*stepLoop, error) {
	a, err := New(Config{World: w, GradientAccumulationSteps: int(c.Told)})
	if err != nil {
		return nil, err
	}
	s := &stepLoop{c: c, a: a, m: newMLP(&c.Data.Init), tape: tensor.NewTape(tensor.Options{Threads: 1})}
	sgd, err := optim.NewSGD(Params(s.m), optim.SGDOptions{LR: c.Optimizer.LR})
	if err != nil {
		return nil, err
	}
	counts, err := optim.Count(optim.RunLength{Samples: int(c.Samples), BatchSize: int(c.BatchSize), World: w.Size(),
		Accumulation: int(c.Window), Strategy: c.Strategy, Epochs: c.Epochs, Steps: int(want.TrainingSteps)})
	if err != nil {
		return nil, err
	}
	s.opt = sgd
	err = first(check("training steps", &want.TrainingSteps, float64(counts.Steps)),
		check("steps to schedule", &want.ScheduleSteps, float64(counts.ScheduleSteps)))
	if err != nil {
		return nil, err
	}
	s.sched, err = optim.NewScheduler(sgd, optim.ScheduleSpec{Name: c.Scheduler.Type, WarmupSteps: &c.Scheduler.Warmup, TrainingSteps: &counts.ScheduleSteps})
	if err != nil {
		return nil, err
	}
	s.moved = s.sched.(interface{ LastEpoch() int })
	return s, nil
}

func (s *stepLoop) train(ctx context.Context, ids []int, w *stepTrace) error {
	var x []float32
	var y []int
	for _, id := range ids {
		x, y = append(x, s.c.Data.X[id]...), append(y, s.c.Data.Y[id])
	}
	sync := (s.step+1)%int(s.c.Window) == 0
	var loss float64
	pass := func() error {
		l := s.m.loss(s.tape, x, len(s.c.Data.X[0]), y)
		loss = float64(l.Item())
		return s.a.Backward(ctx, l)
	}
	var err error
	if sync {
		err = pass()
	} else {
		err = s.a.NoSync(s.m, pass)
	}
	params := Params(s.m)
	err = first(err, sameFloats("batch", w.IDs, ids), check("whether to synchronize", w.ShouldSync, sync), near("loss", w.Loss, loss),
		near("norm", w.Norm, optim.Norm(params, 2)), nearAll("gradient of fc2.bias", w.GradB2, s.m.b2.Grad()))
	if err != nil {
		return err
	}
	if sync {
		returned, err := s.a.ClipGradNorm(params, float64(s.c.MaxNorm), 2)
		err = first(err, near("norm before clipping", w.Pre, returned), near("norm that clipping returned", w.Returned, returned),
			near("norm after clipping", w.Post, optim.Norm(params, 2)), s.opt.Step())
		if err != nil {
			return err
		}
		s.opt.ZeroGrad()
	}
	if err := s.sched.Step(); err != nil {
		return err
	}
	var weights []optim.Param
	for _, p := range params {
		weights = append(weights, &optim.VectorParam{Gradient: p.Data()})
	}
	return first(near("norm of the weights", w.WeightNorm, optim.Norm(weights, 2)), near("learning rate", w.LR, s.sched.LastLR()[0]),
		check("the schedule's epoch", w.Last, float64(s.moved.LastEpoch())), nearAll("fc2.bias", w.B2, s.m.b2.Data()))
}
