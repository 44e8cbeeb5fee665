package trainer

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/heftai/heft/train/internal/rank"
	"github.com/heftai/heft/train/track"
)

// Result is train.TrainResult.
type Result struct {
	GlobalStep int
	Loss       float64
	Runtime    time.Duration
	Metrics    map[string]float64
	BestLost   error
	// Interrupted reports that Interrupted has ended the run.
	Interrupted bool
}

// Train runs the loop to its end, from the state that resume restores. All ranks must call it.
func (t *Trainer[B]) Train(ctx context.Context) (Result, error) {
	begin := time.Now()
	if err := t.resume(ctx); err != nil {
		return Result{}, err
	}
	from := t.State.GlobalStep
	t.losses.Restart()
	t.Control = Control{}
	if err := t.trigger(ctx, Moment{Event: TrainBegin}); err != nil {
		return Result{}, err
	}
	if err := t.epochs(ctx); err != nil {
		return Result{}, err
	}
	if !t.interrupted {
		if err := t.loadBest(ctx); err != nil {
			return Result{}, err
		}
	}
	r := Result{Interrupted: t.interrupted, GlobalStep: t.State.GlobalStep, Loss: t.losses.Mean(), Runtime: time.Since(begin), Metrics: t.metrics, BestLost: t.bestLost}
	if t.State.GlobalStep == from {
		if t.c.Log != nil {
			t.c.Log.InfoContext(ctx, "nothing is left to do: the run has its last step", "step", from)
		}
		return r, t.trigger(ctx, Moment{Event: TrainEnd})
	}
	logs := track.Values{"train_loss": r.Loss, "train_runtime": r.Runtime.Seconds(),
		"train_steps_per_second": float64(t.State.GlobalStep-from) / max(1e-9, r.Runtime.Seconds())}
	if err := t.record(ctx, logs); err != nil {
		return r, err
	}
	return r, t.trigger(ctx, Moment{Event: TrainEnd})
}

// epochs runs the remaining epochs.
func (t *Trainer[B]) epochs(ctx context.Context) error {
	s := &t.State
	epoch := 0
	if each := t.Length.PerEpoch; each > 0 {
		epoch = s.GlobalStep / each
	} else if s.GlobalStep > 0 {
		epoch = int(s.Epoch)
	}
	for (epoch < s.NumTrainEpochs || t.resized && t.Length.PerEpoch > 0) && !t.finished() {
		if err := t.trigger(ctx, Moment{Event: EpochBegin}); err != nil {
			return err
		}
		steps, err := t.epoch(ctx, epoch)
		if err != nil || t.leaves() {
			return err
		}
		resumed := t.resumed
		t.resumed = false
		if steps == 0 && resumed { // the checkpoint was saved at the end of an epoch
			continue
		}
		if steps == 0 {
			return errors.New("train: trainer: an epoch without a batch")
		}
		epoch++
		s.Epoch = max(s.Epoch, float64(epoch))
		if t.finished() {
			t.setEpoch(s.Epoch)
		}
		if err := t.endEpoch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// setEpoch sets the state's epoch from the number of steps, or to otherwise if the length of an
// epoch is unknown.
func (t *Trainer[B]) setEpoch(otherwise float64) {
	epoch, ok := t.Length.Epoch(t.State.GlobalStep)
	if !ok {
		epoch = otherwise
	}
	t.State.Epoch = epoch
}

func (t *Trainer[B]) finished() bool { return t.Control.StopTraining || t.State.Finished() }

// epoch runs the rest of an epoch and returns its number of steps.
func (t *Trainer[B]) epoch(ctx context.Context, epoch int) (int, error) {
	steps := 0
	if err := t.mark(); err != nil {
		return steps, err
	}
	for r, err := range t.steps(ctx) {
		if errors.Is(err, errInterrupted) {
			return steps, t.abandon(ctx)
		}
		if err != nil {
			return steps, err
		}
		steps++
		t.setEpoch(float64(epoch))
		if err := t.stepDone(ctx, &r); err != nil {
			return steps, err
		}
		if t.finished() || t.Control.StopEpoch {
			t.Control.StopEpoch = false
			break
		}
		if err := t.mark(); err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// steps trains on an epoch's windows or batches, one per iteration.
func (t *Trainer[B]) steps(ctx context.Context) iter.Seq2[StepResult, error] {
	batches := t.c.Train.All(ctx)
	if t.Length.PerBatch {
		return each(batches, func(b B) (StepResult, error) { return t.TrainBatch(ctx, b) })
	}
	items := t.c.Items
	if items == nil {
		items = func(B) int { return 1 } // the mean over batches
	}
	windows := rank.Windows(ctx, t.rank, batches, items, t.c.BeforeWindow)
	return each(windows, func(w *rank.Window[B]) (StepResult, error) { return t.trainWindow(ctx, w) })
}

// each yields the results of f up to the first error.
func each[X any](from iter.Seq2[X, error], f func(X) (StepResult, error)) iter.Seq2[StepResult, error] {
	return func(yield func(StepResult, error) bool) {
		for x, err := range from {
			var r StepResult
			if err == nil {
				r, err = f(x)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// stepDone logs, evaluates and saves after a step, if it is due.
func (t *Trainer[B]) stepDone(ctx context.Context, r *StepResult) error {
	c, v := &t.Control, &t.c.Intervals
	t.latest = *r
	if !t.Length.PerBatch {
		if c.Log = v.LogDue(r.GlobalStep); c.Log {
			r.WeightNorm = t.c.Observer.WeightNorm()
		}
		if err := t.trigger(ctx, Moment{Event: StepEnd, Result: r}); err != nil {
			return err
		}
	}
	if r.Synced && !t.State.Finished() {
		stop, err := t.interrupts(ctx)
		if err != nil {
			return err
		}
		if stop {
			t.interrupted, c.StopTraining, c.Save = true, true, v.Save >= 0
		}
	}
	c.Evaluate = c.Evaluate || v.Eval > 0 && t.State.GlobalStep%v.Eval == 0
	c.Save = c.Save || v.Save > 0 && t.State.GlobalStep%v.Save == 0
	if t.finished() {
		c.StopTraining = true
		c.Save = c.Save || v.Save > 0 // the final state is saved
		// It is also evaluated, as in transformers, unless the run stops early.
		c.Evaluate = c.Evaluate || v.Eval > 0 && t.State.Finished()
	}
	return t.fulfil(ctx)
}

// endEpoch logs, evaluates and saves after an epoch, if it is due.
func (t *Trainer[B]) endEpoch(ctx context.Context) error {
	c, v := &t.Control, &t.c.Intervals
	c.Log = v.Log == 0 && t.losses.Pending()
	c.Evaluate = v.Eval == 0 && len(t.c.Evals) > 0
	c.Save = v.Save == 0 && t.c.Files.Dir != ""
	if err := t.trigger(ctx, Moment{Event: EpochEnd}); err != nil {
		return err
	}
	return t.fulfil(ctx)
}

// fulfil does what Control requests.
func (t *Trainer[B]) fulfil(ctx context.Context) error {
	c := &t.Control
	if c.Log && t.losses.Pending() {
		c.Log = false
		if err := t.logSteps(ctx); err != nil {
			return err
		}
	}
	if c.Evaluate && len(t.c.Evals) > 0 {
		c.Evaluate = false
		metrics, err := t.Evaluate(ctx)
		if err != nil {
			return err
		}
		if err := t.c.Best.Judge(&t.State, metrics); err != nil {
			return err
		}
	}
	if c.Save && t.c.Files.Dir != "" {
		if err := t.Save(ctx); err != nil {
			return err
		}
	}
	c.Save, c.Evaluate, c.Log = false, false, false
	return nil
}
