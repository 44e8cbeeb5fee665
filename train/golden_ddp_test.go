package train

import (
	"context"
	"fmt"
)

// ddpCase is a loop on several ranks, y² over samples 1 … n.
type ddpCase struct {
	World     float64 `json:"world_size"`
	N         float64
	BatchSize float64 `json:"batch_size"`
	Plugin    struct {
		Sync   *bool `json:"sync_with_dataloader"`
		Each   bool  `json:"sync_each_batch"`
		Adjust *bool `json:"adjust_scheduler"`
	}
	Split bool `json:"split_batches"`
	Mode  string
	Ranks []struct {
		Trace []ddpTrace
		Final *float64 `json:"final_weight"`
		Last  *float64 `json:"scheduler_last_epoch"`
	}
}

type ddpTrace struct {
	Batch     []float64
	Sync      *bool    `json:"sync_gradients"`
	Grad      *float64 `json:"grad_after_backward"`
	Loss      *float64
	Stepped   *bool    `json:"optimizer_stepped"`
	Scheduled *float64 `json:"scheduler_steps"`
	LR        *float64
	Weight    *float64
}

func (c *ddpCase) ddp(ctx context.Context, steps, epochs int) error {
	return onRanks(ctx, int(c.World), func(ctx context.Context, w *World) error {
		want := &c.Ranks[w.Rank()]
		cfg := Config{
			World:                w,
			GradientAccumulation: &GradientAccumulation{Steps: steps, SyncWithDataloader: c.Plugin.Sync, SyncEachBatch: c.Plugin.Each, AdjustScheduler: c.Plugin.Adjust},
			DataLoader:           DataLoaderConfig{SplitBatches: c.Split, EvenBatches: new(c.Mode != "torch_join")},
		}
		m, err := newToy(cfg, 1, 1e-3, 0)
		if err != nil {
			return err
		}
		l := indices(int(c.N), int(c.BatchSize))
		if err := first(m.inverse(), m.a.Prepare(l)); err != nil {
			return err
		}
		k := 0
		loop := func(ctx context.Context) error {
			for range epochs {
				for b, err := range l.All(ctx) {
					if err != nil {
						return err
					}
					if k == len(want.Trace) {
						return fmt.Errorf("more than the %d micro steps recorded", k)
					}
					if err := m.ddpMicro(ctx, b, &want.Trace[k]); err != nil {
						return fmt.Errorf("micro step %d: %w", k, err)
					}
					k++
				}
			}
			return nil
		}
		if c.Mode == "plain" {
			err = loop(ctx)
		} else {
			err = m.a.JoinUnevenInputs(ctx, loop)
		}
		if err == nil && k != len(want.Trace) {
			err = fmt.Errorf("%d micro steps, want %d", k, len(want.Trace))
		}
		return first(err, near("the weight in the end", want.Final, m.weight()),
			check("the schedule's last epoch", want.Last, float64(m.clock.LastEpoch())))
	})
}

func (m *toy) ddpMicro(ctx context.Context, ids []int, w *ddpTrace) error {
	x, y := make([]float32, len(ids)), make([]float32, len(ids))
	for i, id := range ids {
		x[i] = float32(id + 1)
		if i < len(w.Batch) && float64(id) != w.Batch[i] || len(ids) != len(w.Batch) {
			return fmt.Errorf("the batch is %v, want %v", ids, w.Batch)
		}
	}
	return m.a.Accumulate(ctx, func(ctx context.Context) error {
		loss := m.loss(x, y)
		value := float64(loss.Item())
		if err := m.a.Backward(ctx, loss); err != nil {
			return err
		}
		grad, steps, moved := m.grad(), m.raw.steps, m.clock.LastEpoch()
		if err := first(m.opt.Step(), m.sched.Step()); err != nil {
			return err
		}
		m.opt.ZeroGrad()
		return first(
			check("SyncGradients", w.Sync, m.a.SyncGradients()),
			near("loss", w.Loss, value),
			near("gradient", w.Grad, grad),
			check("optimizer stepped", w.Stepped, m.raw.steps > steps),
			check("scheduler steps", w.Scheduled, float64(m.clock.LastEpoch()-moved)),
			near("learning rate", w.LR, m.sched.LastLR()[0]),
			near("weight", w.Weight, m.weight()))
	}, m.w)
}

// triggerRank is a rank of two passes on y², of which the second is triggered within NoSync.
type triggerRank struct {
	Inputs    []float32
	Local     *float64 `json:"grad_after_first_backward_no_sync"`
	Triggered *float64 `json:"grad_after_triggered_sync"`
}

func triggerSync(ctx context.Context, ranks []triggerRank) error {
	return onRanks(ctx, len(ranks), func(ctx context.Context, w *World) error {
		want := ranks[w.Rank()]
		m, err := newToy(Config{World: w}, 1, 1e-2, 0)
		if err != nil {
			return err
		}
		return m.a.NoSync(m.w, func() error {
			for i, x := range want.Inputs {
				pass := func() error { return m.a.Backward(ctx, m.loss([]float32{x}, []float32{0})) }
				if i < len(want.Inputs)-1 {
					if err := pass(); err != nil {
						return err
					}
					if err := near("the rank's gradient", want.Local, m.grad()); err != nil {
						return err
					}
					continue
				}
				if err := m.a.TriggerSyncInBackward(m.w, pass); err != nil {
					return err
				}
			}
			return near("the gradient of all", want.Triggered, m.grad())
		})
	})
}
