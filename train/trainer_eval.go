package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/heftai/heft/train/internal/evaluation"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// Evaluation is the result of evaluating a batch. Lists that are not nil have one entry per sample.
type Evaluation struct {
	// Losses are summed over the items of each sample.
	Losses []float64
	// Items counts the tokens, or other items, of each sample. Nil means one per sample.
	Items []int
	// Correct counts the items of each sample that were predicted correctly. If nil, the accuracy
	// comes from Predicted and Labels.
	Correct []int
	// Predicted and Labels are the classes of each sample, or nil.
	Predicted, Labels []int
}

// EvaluateLogits evaluates logits against one label per row; rows with the label
// [tensor.IgnoreIndex] do not count. Rows are split evenly between the samples: one row per sample
// for classes, one per token for texts. The label of a token is the next token: shift the labels.
func EvaluateLogits(logits *tensor.Tensor, labels []int, samples int) (Evaluation, error) {
	e, err := evaluation.Logits(logits, labels, samples)
	return Evaluation(e), err
}

// Evaluate evaluates the model on the evaluation data. All ranks must call it. It returns eval_loss
// (the mean over items), eval_perplexity, eval_accuracy if predictions are known, the metrics of
// ComputeMetrics, and the run time. Samples that were repeated to fill the last batch do not count
// (see [GatherForMetrics]); if ComputeLoss returns sums over Items, none are repeated.
func (t *Trainer[B]) Evaluate(ctx context.Context) (map[string]float64, error) {
	if t.c.Eval == nil {
		return nil, errors.New("train: trainer: no evaluation data: set TrainerConfig.Eval")
	}
	begin := time.Now()
	t.setTraining(false)
	defer t.setTraining(true)
	sum, err := t.tally(ctx)
	if err != nil {
		return nil, err
	}
	metrics := sum.Metrics(t.c.ComputeMetrics)
	passed := max(1e-9, time.Since(begin).Seconds())
	metrics["eval_runtime"] = passed
	metrics["eval_samples_per_second"] = float64(sum.Samples) / passed
	metrics["eval_steps_per_second"] = float64(sum.Steps) / passed
	t.latestEv = metrics
	logs := track.Values{}
	for name, v := range metrics {
		logs[name] = v
	}
	if err := t.record(ctx, logs); err != nil {
		return nil, err
	}
	if t.plateau {
		if err := t.sched.Step(metrics[evaluation.MetricName(t.args.MetricForBest)]); err != nil {
			return nil, err
		}
	}
	return metrics, t.trigger(ctx, Moment{Event: Evaluated, Metrics: metrics})
}

// tally sums the evaluation of all batches on all ranks.
func (t *Trainer[B]) tally(ctx context.Context) (*evaluation.Tally, error) {
	if t.evaluatesSums() {
		return t.tallySums(ctx)
	}
	sum := new(evaluation.Tally)
	for batch, err := range t.c.Eval.All(ctx) {
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
		if e, err = GatherForMetrics(ctx, t.acc, e); err != nil {
			return nil, err
		}
		sum.Add((*evaluation.Batch)(&e))
	}
	return sum, nil
}

// evaluatesSums reports whether an evaluation is only a sum over a batch's items. Repeated samples
// cannot be cut from a sum, so the data is split without any.
func (t *Trainer[B]) evaluatesSums() bool { return t.c.EvaluateBatch == nil && t.c.Items != nil }

// tallySums sums each rank's own batches, then the ranks. Ranks may have different numbers of
// batches. Every rank reads a whole stream, and takes the batches in turn.
func (t *Trainer[B]) tallySums(ctx context.Context) (*evaluation.Tally, error) {
	own, i, turns := new(evaluation.Tally), 0, 1
	if t.c.Eval.Streams() {
		turns = t.acc.NumProcesses()
	}
	for batch, err := range t.c.Eval.All(ctx) {
		if err != nil {
			return nil, err
		}
		if i++; turns > 1 && (i-1)%turns != t.acc.ProcessIndex() {
			continue
		}
		e, err := t.evaluateBatch(ctx, batch)
		if err != nil {
			return nil, err
		}
		own.Add((*evaluation.Batch)(&e))
	}
	all, err := Reduce(ctx, t.acc, []float64{own.Loss, float64(own.Items), float64(own.Samples), float64(own.Steps)}, ReduceSum)
	if err != nil {
		return nil, err
	}
	return &evaluation.Tally{Loss: all[0], Items: int(all[1]), Samples: int(all[2]), Steps: int(all[3])}, nil
}

// Accuracy returns the fraction of the predictions that are correct.
func Accuracy(predicted, labels []int) float64 { return evaluation.Accuracy(predicted, labels) }

// evaluateBatch calls EvaluateBatch, or uses the batch's loss for each of its samples.
func (t *Trainer[B]) evaluateBatch(ctx context.Context, batch B) (Evaluation, error) {
	if t.c.EvaluateBatch != nil {
		return t.c.EvaluateBatch(ctx, batch)
	}
	loss, err := t.c.ComputeLoss(ctx, batch)
	if err != nil {
		return Evaluation{}, err
	}
	value := float64(loss.Item())
	if tape := loss.Tape(); tape != nil {
		if err := tape.Reset(); err != nil {
			return Evaluation{}, err
		}
	}
	if t.c.Items != nil { // a sum over the batch's items, whose samples are not told apart
		return Evaluation{Losses: []float64{value}, Items: []int{t.c.Items(batch)}}, nil
	}
	v := reflect.ValueOf(batch)
	if v.Kind() != reflect.Slice {
		return Evaluation{}, fmt.Errorf("train: trainer: how many samples a %T has is not known: give EvaluateBatch", batch)
	}
	return Evaluation{Losses: slices.Repeat([]float64{value}, v.Len())}, nil
}

// judge records the best evaluation.
func (t *Trainer[B]) judge(metrics map[string]float64) error {
	s := &t.state
	v, ok := metrics[evaluation.MetricName(t.args.MetricForBest)]
	if !ok {
		if t.args.MetricForBest == "" && !t.args.LoadBestAtEnd {
			return nil
		}
		return fmt.Errorf("train: trainer: the metric %q for the best checkpoint was not measured: there are %s",
			t.args.MetricForBest, strings.Join(slices.Sorted(maps.Keys(metrics)), ", "))
	}
	if math.IsNaN(v) {
		return nil
	}
	if s.BestMetric == nil || t.args.GreaterIsBetter && v > *s.BestMetric || !t.args.GreaterIsBetter && v < *s.BestMetric {
		step := s.GlobalStep
		s.BestMetric, s.BestGlobalStep = &v, &step
	}
	return nil
}

// logOrder returns the names with the losses first.
func logOrder(logs track.Values) []string {
	names := slices.Sorted(maps.Keys(logs))
	first := []string{"loss", "eval_loss", "train_loss"}
	slices.SortStableFunc(names, func(a, b string) int {
		return b2i(slices.Contains(first, b)) - b2i(slices.Contains(first, a))
	})
	return names
}
