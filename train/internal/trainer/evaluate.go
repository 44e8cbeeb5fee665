package trainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/internal/progress"
	"github.com/heftai/heft/train/track"
)

// Evaluate evaluates the model on the evaluation data and logs the metrics. All ranks must call it.
func (t *Trainer[B]) Evaluate(ctx context.Context) (map[string]float64, error) {
	if len(t.c.Evals) == 0 {
		return nil, errors.New("train: trainer: no evaluation data: set TrainerConfig.Eval")
	}
	t.setTraining(false)
	defer t.setTraining(true)
	t.c.Meter.evaluate(true)
	defer t.c.Meter.evaluate(false)
	metrics := map[string]float64{}
	for i := range t.c.Evals {
		some, err := t.evaluateSet(ctx, &t.c.Evals[i])
		if err != nil {
			return nil, err
		}
		maps.Copy(metrics, some)
	}
	t.metrics = metrics
	logs := track.Values{}
	for name, v := range metrics {
		logs[name] = v
	}
	t.countTokens(logs, progress.EvalTokens)
	if err := t.record(ctx, logs); err != nil {
		return nil, err
	}
	if t.plateau {
		name := evaluation.MetricName(t.c.Best.Metric)
		value, ok := metrics[name]
		if !ok {
			return nil, fmt.Errorf("train: trainer: the schedule follows %s, but evaluations have no such metric: set MetricForBest", name)
		}
		if err := t.Scheduler.Step(value); err != nil {
			return nil, err
		}
	}
	return metrics, t.trigger(ctx, Moment{Event: Evaluated, Metrics: metrics})
}

// evaluateSet returns the metrics of one set.
func (t *Trainer[B]) evaluateSet(ctx context.Context, set *EvalSet[B]) (map[string]float64, error) {
	begin := time.Now()
	tally := t.sumGathered
	if t.evaluatesSums() {
		tally = t.sumOwn
	}
	sum, err := tally(ctx, set.Loader)
	if err != nil {
		return nil, err
	}
	metrics := sum.Metrics(t.c.ComputeMetrics)
	if t.c.WithoutPerplexity {
		delete(metrics, "eval_perplexity")
	}
	passed := max(1e-9, time.Since(begin).Seconds())
	metrics["eval_runtime"] = passed
	metrics["eval_samples_per_second"] = float64(sum.Samples) / passed
	metrics["eval_steps_per_second"] = float64(sum.Steps) / passed
	measured, err := t.read(ctx, "eval_")
	if err != nil {
		return nil, err
	}
	maps.Copy(metrics, measured)
	if set.Name == "" {
		return metrics, nil
	}
	named := map[string]float64{}
	for name, v := range metrics {
		named["eval_"+set.Name+"_"+strings.TrimPrefix(name, "eval_")] = v
	}
	return named, nil
}

// evaluatesSums reports whether an evaluation is only a sum over a batch's items. Repeated
// samples cannot be removed from a sum, so the data is then split without repeats.
func (t *Trainer[B]) evaluatesSums() bool { return t.c.EvaluateBatch == nil && t.c.Items != nil }

// sumGathered gathers each batch from all ranks, without repeated samples, and sums the batches.
func (t *Trainer[B]) sumGathered(ctx context.Context, l *data.Loader[B]) (*evaluation.Tally, error) {
	sum := new(evaluation.Tally)
	for batch, err := range l.All(ctx) {
		if err != nil {
			return nil, err
		}
		e, err := t.evaluateBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		if e.Items == nil {
			e.Items = slices.Repeat([]int{1}, len(e.Losses))
		}
		if e, err = t.c.Gather(ctx, e); err != nil {
			return nil, err
		}
		sum.Add(&e)
	}
	return sum, nil
}

// sumOwn sums each rank's own batches, then the sums of all ranks. Ranks may have different
// numbers of batches. Every rank reads a stream completely, and the ranks process its batches in
// turn.
func (t *Trainer[B]) sumOwn(ctx context.Context, l *data.Loader[B]) (*evaluation.Tally, error) {
	own, i, turns := new(evaluation.Tally), 0, 1
	if l.Streams() {
		turns = t.rank.Comm.Size()
	}
	for batch, err := range l.All(ctx) {
		if err != nil {
			return nil, err
		}
		if i++; turns > 1 && (i-1)%turns != t.rank.Comm.Rank() {
			continue
		}
		e, err := t.evaluateBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		own.Add(&e)
	}
	all := []float64{own.Loss, float64(own.Items), float64(own.Samples), float64(own.Steps)}
	if err := t.sum(ctx, all); err != nil {
		return nil, err
	}
	return &evaluation.Tally{Loss: all[0], Items: int(all[1]), Samples: int(all[2]), Steps: int(all[3])}, nil
}

// evaluateBatch calls EvaluateBatch, or uses the batch's loss for each of its samples.
func (t *Trainer[B]) evaluateBatch(ctx context.Context, batch B) (evaluation.Batch, error) {
	if t.c.EvaluateBatch != nil {
		return t.c.EvaluateBatch(ctx, batch)
	}
	loss, err := t.c.ComputeLoss(ctx, batch)
	if err != nil {
		return evaluation.Batch{}, err
	}
	value := float64(loss.Item())
	if tape := loss.Tape(); tape != nil {
		if err := tape.Reset(); err != nil {
			return evaluation.Batch{}, err
		}
	}
	if t.c.Items != nil { // a sum over the batch's items, which does not distinguish samples
		return evaluation.Batch{Losses: []float64{value}, Items: []int{t.c.Items(batch)}}, nil
	}
	v := reflect.ValueOf(batch)
	if v.Kind() != reflect.Slice {
		return evaluation.Batch{}, fmt.Errorf("train: trainer: the number of samples of a %T is unknown: set TrainerConfig.EvaluateBatch", batch)
	}
	return evaluation.Batch{Losses: slices.Repeat([]float64{value}, v.Len())}, nil
}
