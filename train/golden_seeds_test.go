package train

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

func TestGoldenSeeds(t *testing.T) {
	n := 0
	t.Cleanup(func() { golden.Count(t, "train/seeds", n) })
	var toys struct{ Cases []toyCase }
	golden.JSON(t, golden.Path(t, "train/seeds/toy_linear.json"), &toys)
	for _, c := range toys.Cases {
		n++
		t.Run("toy_linear/"+c.Name, func(t *testing.T) { report(t, c.run(t.Context())) })
	}
	var items struct{ Cases []itemsCase }
	golden.JSON(t, golden.Path(t, "train/seeds/causal_lm_num_items.json"), &items)
	for _, c := range items.Cases {
		n++
		t.Run("causal_lm_num_items/"+c.Name, func(t *testing.T) {
			report(t, c.run(t.Context(), c.recipe))
			report(t, c.run(t.Context(), c.windows))
		})
	}
	var steps struct{ Cases []stepCase }
	golden.JSON(t, golden.Path(t, "train/seeds/train_a_step.json"), &steps)
	for _, c := range steps.Cases {
		n++
		t.Run("train_a_step/"+c.Name, func(t *testing.T) { report(t, c.run(t.Context())) })
	}
}

func report(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// toyCase is y = w*x fitted by mean squared error.
type toyCase struct {
	Name      string
	World     float64 `json:"world_size"`
	X, Y      []float32
	Steps     float64 `json:"gradient_accumulation_steps"`
	BatchSize float64 `json:"per_device_batch_size"`
	Optimizer struct{ LR, Momentum float64 }
	Plugin    struct {
		Sync *bool `json:"sync_with_dataloader"`
		Each bool  `json:"sync_each_batch"`
	}
	Initial float64 `json:"initial_weight"`
	Epochs  float64
	Ranks   []struct {
		Steps []toyStep
		Final float64 `json:"final_weight"`
		Full  *struct {
			Loss, Grad, Weight float64
		} `json:"full_batch"`
	}
}

type toyStep struct {
	microTrace
	Inputs, Labels, Outputs []float64
	Loss                    float64
	BackwardLoss            float64  `json:"backward_loss"`
	Local                   *float64 `json:"grad_after_backward"`
	Before                  *float64 `json:"weight_before"`
	After                   *float64 `json:"weight_after"`
}

func (c *toyCase) run(ctx context.Context) error {
	return Launch(ctx, int(c.World), func(ctx context.Context, w *World) error {
		want := c.Ranks[w.Rank()]
		m, err := newToy(Config{World: w, GradientAccumulation: &GradientAccumulation{Steps: int(c.Steps),
			SyncWithDataloader: c.Plugin.Sync, SyncEachBatch: c.Plugin.Each}}, c.Initial, c.Optimizer.LR, c.Optimizer.Momentum)
		if err != nil {
			return err
		}
		l := indices(len(c.X), int(c.BatchSize))
		if err := m.a.Prepare(l); err != nil {
			return err
		}
		k := 0
		for range int(c.Epochs) {
			for ids, err := range l.All(ctx) {
				if err != nil {
					return err
				}
				if k == len(want.Steps) {
					return fmt.Errorf("more than %d steps", k)
				}
				if err := c.step(ctx, m, ids, &want.Steps[k]); err != nil {
					return fmt.Errorf("step %d: %w", k, err)
				}
				k++
			}
		}
		err = first(check("number of steps", new(len(want.Steps)), k), near("the weight in the end", &want.Final, m.weight()))
		if err != nil || want.Full == nil {
			return err
		}
		return c.full(ctx, want.Full.Loss, want.Full.Grad, want.Full.Weight)
	})
}

func (c *toyCase) step(ctx context.Context, m *toy, ids []int, w *toyStep) error {
	x, y := make([]float32, len(ids)), make([]float32, len(ids))
	for i, id := range ids {
		x[i], y[i] = c.X[id], c.Y[id]
	}
	return m.a.Accumulate(ctx, func(ctx context.Context) error {
		before := m.weight()
		out := m.output(x)
		loss := m.tape.MSE(out, m.tape.Input(y, len(y), 1), tensor.Mean)
		value := float64(loss.Item())
		if err := m.a.Backward(ctx, loss); err != nil {
			return err
		}
		grad := m.grad()
		if err := m.opt.Step(); err != nil {
			return err
		}
		m.opt.ZeroGrad()
		return first(
			nearAll("inputs", w.Inputs, x), nearAll("labels", w.Labels, y), nearAll("outputs", w.Outputs, out.Data()),
			near("loss", &w.Loss, value), near("loss of backward", &w.BackwardLoss, value/c.Steps),
			w.flags(m.a), near("gradient", w.Local, grad), near("weight before", w.Before, before), near("weight after", w.After, m.weight()))
	}, m.w)
}

// full is one step on all samples, without accumulation.
func (c *toyCase) full(ctx context.Context, loss, grad, weight float64) error {
	m, err := newToy(Config{}, c.Initial, c.Optimizer.LR, c.Optimizer.Momentum)
	if err != nil {
		return err
	}
	l := m.loss(c.X, c.Y)
	value := float64(l.Item())
	if err := m.a.Backward(ctx, l); err != nil {
		return err
	}
	g := m.grad()
	return first(m.opt.Step(), near("full batch's loss", &loss, value), near("full batch's gradient", &grad, g),
		near("full batch's weight", &weight, m.weight()))
}

func nearAll(what string, want []float64, got []float32) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s are %v, want %v", what, got, want)
	}
	for i := range want {
		if !close2(want[i], float64(got[i])) {
			return fmt.Errorf("%s are %v, want %v", what, got, want)
		}
	}
	return nil
}

// itemsCase is a linear model of two classes on texts of many lengths, each step
// weighted by its tokens.
type itemsCase struct {
	Name      string
	World     float64 `json:"world_size"`
	Steps     float64 `json:"gradient_accumulation_steps"`
	BatchSize float64 `json:"per_device_batch_size"`
	LR        float64
	Seed      float64
	Samples   float64 `json:"num_samples"`
	Epochs    float64
	Ranks     []itemsRank
}

type itemsRank struct {
	Initial []float64 `json:"initial_weight"`
	Updates []struct {
		LocalItems *float64 `json:"local_num_items"`
		TotalItems *float64 `json:"total_num_items"`
		Micro      []itemsMicro
		Before     []float64 `json:"weight_before"`
		After      []float64 `json:"weight_after"`
	}
	Final   []float64 `json:"final_weight"`
	Printed []string
}

type itemsMicro struct {
	InputIDs [][]float64 `json:"input_ids"`
	Labels   [][]float64
	NoSync   bool      `json:"no_sync"`
	LossSum  *float64  `json:"loss_sum"`
	Scaled   *float64  `json:"loss_scaled"`
	Backward *float64  `json:"backward_loss"`
	Grad     []float64 `json:"grad_after_backward"`
}

// texts is a batch, padded to its longest.
type texts struct {
	ids    []float32
	labels []int
	items  int
}

func collateTexts(lengths []int) (texts, error) {
	var b texts
	longest := 0
	for _, n := range lengths {
		longest = max(longest, n)
	}
	for _, n := range lengths {
		for i := 1; i <= longest; i++ {
			id, label := float32(i), i%2
			if i > n {
				id, label = -100, -100
			} else {
				b.items++
			}
			b.ids, b.labels = append(b.ids, id), append(b.labels, label)
		}
	}
	return b, nil
}

// pair is the model: logits w0*x and w1*x.
type pair struct {
	a    *Accelerator
	tape *tensor.Tape
	w    *tensor.Parameter
	opt  optim.Optimizer
	l    *data.Loader[texts]
}

func (p *pair) sum(b texts) *tensor.Tensor {
	y := p.tape.Linear(p.tape.Input(b.ids, len(b.ids), 1), p.tape.Use(p.w), nil)
	return p.tape.CrossEntropy(y, b.labels, tensor.CrossEntropyOptions{Reduction: tensor.Sum})
}

func newPair(c Config, seed uint64, lr float64, samples, batch int) (*pair, error) {
	a, err := New(c)
	if err != nil {
		return nil, err
	}
	w := make([]float32, 2)
	rng.New(seed).Linear(w, nil, 1)
	p := &pair{a: a, tape: tensor.NewTape(tensor.Options{Threads: 1}), w: tensor.NewParameter(w, 2, 1)}
	sgd, err := optim.NewSGD(Params(p.w), optim.SGDOptions{LR: lr})
	if err != nil {
		return nil, err
	}
	p.opt = sgd
	lengths := make(data.Slice[int], samples)
	for i := range lengths {
		lengths[i] = i + 1
	}
	if p.l, err = data.NewLoader(lengths, collateTexts, data.Options{BatchSize: batch}); err != nil {
		return nil, err
	}
	return p, a.Prepare(p.w, &p.opt, p.l)
}

func (c *itemsCase) run(ctx context.Context, loop func(context.Context, *pair, *itemsRank) error) error {
	return Launch(ctx, int(c.World), func(ctx context.Context, w *World) error {
		p, err := newPair(Config{World: w, GradientAccumulationSteps: int(c.Steps)}, uint64(c.Seed), c.LR, int(c.Samples), int(c.BatchSize))
		if err != nil {
			return err
		}
		want := &c.Ranks[w.Rank()]
		err = first(nearAll("initial weight", want.Initial, p.w.Data()), loop(ctx, p, want), nearAll("final weight", want.Final, p.w.Data()))
		if err == nil && len(want.Printed) == 2 {
			packed := strings.ReplaceAll(want.Printed[1], " ", "")
			err = check("print", &packed, fmt.Sprintf("tensor([%.4f,%.4f])", p.w.Data()[0], p.w.Data()[1]))
		}
		return err
	})
}

// windows is the loop as Heft writes it.
func (c *itemsCase) windows(ctx context.Context, p *pair, want *itemsRank) error {
	k := 0
	for range int(c.Epochs) {
		for w, err := range Windows(ctx, p.a, p.l.All(ctx), func(b texts) int { return b.items }) {
			if err != nil {
				return err
			}
			if k == len(want.Updates) {
				return fmt.Errorf("more than %d updates", k)
			}
			u := want.Updates[k]
			k++
			if err := first(check("local items", u.LocalItems, float64(w.Local)), check("items", u.TotalItems, float64(w.Items))); err != nil {
				return err
			}
			if _, err := w.Each(ctx, func(_ context.Context, b texts) (*tensor.Tensor, error) { return p.sum(b), nil }); err != nil {
				return err
			}
			if err := first(p.opt.Step(), nearAll("weight after", u.After, p.w.Data())); err != nil {
				return err
			}
			p.opt.ZeroGrad()
		}
	}
	return check("number of updates", new(len(want.Updates)), k)
}

// recipe is the loop by hand: prefetch, count, gather, scale, synchronize at the end.
func (c *itemsCase) recipe(ctx context.Context, p *pair, want *itemsRank) error {
	k := 0
	for range int(c.Epochs) {
		next, stop := iter.Pull2(p.l.All(ctx))
		defer stop()
		left, err := p.l.Len()
		if err != nil {
			return err
		}
		for left > 0 && k < len(want.Updates) {
			u := want.Updates[k]
			k++
			var window []texts
			local := 0
			for range min(left, int(c.Steps)) {
				b, err, _ := next()
				if err != nil {
					return err
				}
				window, local = append(window, b), local+b.items
			}
			left -= len(window)
			all, err := Gather(ctx, p.a, []int{local})
			if err != nil {
				return err
			}
			total := 0
			for _, n := range all {
				total += n
			}
			err = first(check("local items", u.LocalItems, float64(local)), check("items", u.TotalItems, float64(total)),
				nearAll("weight before", u.Before, p.w.Data()), p.micros(ctx, window, total, u.Micro))
			if err != nil {
				return fmt.Errorf("update %d: %w", k-1, err)
			}
			if err := first(p.opt.Step(), nearAll("weight after", u.After, p.w.Data())); err != nil {
				return err
			}
			p.opt.ZeroGrad()
		}
	}
	return check("number of updates", new(len(want.Updates)), k)
}

func (p *pair) micros(ctx context.Context, window []texts, total int, want []itemsMicro) error {
	for i, b := range window {
		w := &want[i]
		step := func() error {
			sum := p.sum(b)
			loss := p.tape.Scale(sum, p.a.ItemScale(total))
			value, scaled := float64(sum.Item()), float64(loss.Item())
			return first(p.a.Backward(ctx, loss), near("sum", w.LossSum, value), near("scaled loss", w.Scaled, scaled),
				near("loss of backward", w.Backward, scaled/float64(p.a.GradientAccumulationSteps())), nearAll("gradient", w.Grad, p.w.Grad()))
		}
		var err error
		if w.NoSync {
			err = p.a.NoSync(p.w, step)
		} else {
			err = step()
		}
		if err != nil {
			return fmt.Errorf("micro step %d: %w", i, err)
		}
	}
	return nil
}
