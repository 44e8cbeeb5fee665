package train

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"time"

	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/track"
)

// TrainResult is the result of a run.
type TrainResult struct {
	GlobalStep int
	// Loss is the mean over the steps of this call.
	Loss    float64
	Runtime time.Duration
	// Metrics are those of the last evaluation, if there was one.
	Metrics map[string]float64
}

// Train runs the loop: epochs, steps, logs, evaluations, checkpoints, and the requests of
// callbacks. It returns at the end of the run or at the first error, including that of ctx. With
// Arguments.Resume it continues from the last checkpoint and ends with the same weights as a run
// that was not interrupted. All ranks must call it.
func (t *Trainer[B]) Train(ctx context.Context) (TrainResult, error) {
	begin := time.Now()
	if err := t.resume(ctx); err != nil {
		return TrainResult{}, err
	}
	from := t.state.GlobalStep
	t.sums, t.control = sums{}, Control{}
	if err := t.trigger(ctx, Moment{Event: TrainBegin}); err != nil {
		return TrainResult{}, err
	}
	if err := t.epochs(ctx); err != nil {
		return TrainResult{}, err
	}
	if err := t.loadBest(ctx); err != nil {
		return TrainResult{}, err
	}
	r := TrainResult{GlobalStep: t.state.GlobalStep, Runtime: time.Since(begin), Metrics: t.latestEv}
	if t.sums.all > 0 {
		r.Loss = t.sums.total / float64(t.sums.all)
	}
	logs := track.Values{"train_loss": r.Loss, "train_runtime": r.Runtime.Seconds(),
		"train_steps_per_second": float64(t.state.GlobalStep-from) / max(1e-9, r.Runtime.Seconds())}
	if err := t.record(ctx, logs); err != nil {
		return r, err
	}
	return r, t.trigger(ctx, Moment{Event: TrainEnd})
}

// epochs runs the remaining epochs.
func (t *Trainer[B]) epochs(ctx context.Context) error {
	s := &t.state
	epoch := 0
	if t.perEpoch > 0 {
		epoch = s.GlobalStep / t.perEpoch
	} else if s.GlobalStep > 0 {
		epoch = int(s.Epoch)
	}
	for epoch < s.NumTrainEpochs && !t.finished() {
		if err := t.trigger(ctx, Moment{Event: EpochBegin}); err != nil {
			return err
		}
		steps, err := t.epoch(ctx, epoch)
		if err != nil {
			return err
		}
		if steps == 0 && !t.resumed {
			return errors.New("train: trainer: an epoch without a batch")
		}
		if again := steps == 0; again { // what was left of an epoch that was saved at its end
			t.resumed = false
			continue
		}
		t.resumed = false
		epoch++
		s.Epoch = max(s.Epoch, float64(epoch))
		if t.control.StopTraining || t.finished() {
			s.Epoch = t.progress(s)
		}
		if err := t.endEpoch(ctx); err != nil {
			return err
		}
	}
	return nil
}

// progress computes the epoch, with its fraction, from the number of steps.
func (t *Trainer[B]) progress(s *TrainerState) float64 {
	if t.batches == 0 {
		return s.Epoch
	}
	each := t.window
	if t.args.Unit == Batches {
		each = 1
	}
	rest := s.GlobalStep % t.perEpoch * each
	return float64(s.GlobalStep/t.perEpoch) + float64(rest)/float64(t.batches)
}

func (t *Trainer[B]) finished() bool {
	return t.control.StopTraining || t.state.MaxSteps > 0 && t.state.GlobalStep >= t.state.MaxSteps
}

// epoch runs the rest of an epoch and returns its number of steps.
func (t *Trainer[B]) epoch(ctx context.Context, epoch int) (int, error) {
	steps := 0
	for r, err := range t.steps(ctx) {
		if err != nil {
			return steps, err
		}
		steps++
		t.state.Epoch = t.progress(&t.state)
		if t.batches == 0 {
			t.state.Epoch = float64(epoch)
		}
		if err := t.stepDone(ctx, &r); err != nil {
			return steps, err
		}
		if t.finished() || t.control.StopEpoch {
			t.control.StopEpoch = false
			break
		}
	}
	return steps, nil
}

// steps trains on an epoch's windows or batches, one per iteration.
func (t *Trainer[B]) steps(ctx context.Context) iter.Seq2[StepResult, error] {
	return func(yield func(StepResult, error) bool) {
		if t.args.Unit == Batches {
			for b, err := range t.c.Train.All(ctx) {
				var r StepResult
				if err == nil {
					r, err = t.TrainAStep(ctx, b)
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			return
		}
		items := t.c.Items
		if items == nil {
			items = func(B) int { return 1 } // the mean over batches
		}
		for w, err := range Windows(ctx, t.acc, t.c.Train.All(ctx), items) {
			var r StepResult
			if err == nil {
				r, err = t.update(ctx, w)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// stepDone logs, evaluates and saves after a step, if it is due.
func (t *Trainer[B]) stepDone(ctx context.Context, r *StepResult) error {
	c, a := &t.control, &t.args
	t.latest = *r
	if a.Unit == Updates {
		if c.Log = t.due(a.LogSteps, r.GlobalStep); c.Log {
			r.WeightNorm = t.observer.WeightNorm()
		}
		if err := t.trigger(ctx, Moment{Event: StepEnd, Result: r}); err != nil {
			return err
		}
	}
	c.Evaluate = c.Evaluate || a.EvalSteps > 0 && t.state.GlobalStep%a.EvalSteps == 0
	c.Save = c.Save || a.SaveSteps > 0 && t.state.GlobalStep%a.SaveSteps == 0
	if t.finished() {
		c.StopTraining = true
		c.Save = c.Save || a.SaveSteps > 0 // the end is kept
	}
	return t.serve(ctx)
}

// endEpoch logs, evaluates and saves after an epoch, if it is due.
func (t *Trainer[B]) endEpoch(ctx context.Context) error {
	c, a := &t.control, &t.args
	c.Log = a.LogSteps == 0 && t.sums.steps > 0
	c.Evaluate = a.EvalSteps == 0 && t.c.Eval != nil
	c.Save = a.SaveSteps == 0 && a.OutputDir != ""
	if err := t.trigger(ctx, Moment{Event: EpochEnd}); err != nil {
		return err
	}
	return t.serve(ctx)
}

// serve fulfils the requests in Control.
func (t *Trainer[B]) serve(ctx context.Context) error {
	c := &t.control
	if c.Log && t.sums.steps > 0 {
		c.Log = false
		if err := t.logUpdate(ctx); err != nil {
			return err
		}
	}
	if c.Evaluate && t.c.Eval != nil {
		c.Evaluate = false
		metrics, err := t.Evaluate(ctx)
		if err != nil {
			return err
		}
		if err := t.judge(metrics); err != nil {
			return err
		}
	}
	if c.Save && t.args.OutputDir != "" {
		if err := t.Save(ctx); err != nil {
			return err
		}
	}
	c.Save, c.Evaluate, c.Log = false, false, false
	return nil
}

// logUpdate logs the steps since the last log.
func (t *Trainer[B]) logUpdate(ctx context.Context) error {
	r := &t.latest
	if t.args.Unit == Batches && t.args.LogSteps > 0 {
		t.sums.mean() // TrainAStep logs its steps itself
		return nil
	}
	logs := track.Values{"loss": t.sums.mean(), "grad_norm": r.GradNormPreClip, "learning_rate": r.LR}
	return t.record(ctx, logs)
}

// record logs values and adds them to the history.
func (t *Trainer[B]) record(ctx context.Context, logs track.Values) error {
	entry := LogEntry{"epoch": t.state.Epoch, "step": t.state.GlobalStep}
	attrs := []slog.Attr{slog.Int("step", t.state.GlobalStep), slog.Float64("epoch", round4(t.state.Epoch))}
	for name, v := range logs {
		entry[name] = v
	}
	for _, name := range logOrder(logs) {
		attrs = append(attrs, slog.Any(name, logs[name]))
	}
	t.state.LogHistory = append(t.state.LogHistory, entry)
	return t.tell(ctx, logs, t.state.GlobalStep, attrs)
}

// tell passes logged values to the callbacks, the log of the machine's first rank, and the
// trackers.
func (t *Trainer[B]) tell(ctx context.Context, logs track.Values, step int, attrs []slog.Attr) error {
	if err := t.trigger(ctx, Moment{Event: LogEvent, Logs: logs}); err != nil {
		return err
	}
	if t.acc.IsLocalMainProcess() {
		t.acc.base.LogAttrs(ctx, slog.LevelInfo, "[Training]", attrs...)
	}
	return t.acc.Log(ctx, logs, step)
}

func round4(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// clip limits the norm of the gradients, which are unscaled already.
func (t *Trainer[B]) clip() { optim.ClipNorm(t.params, t.args.MaxGradNorm, 2) }
