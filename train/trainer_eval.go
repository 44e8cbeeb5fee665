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

	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/track"
)

// Evaluation is how well a model does on a batch: one entry for each sample in every
// list that is given.
type Evaluation struct {
	// Losses are summed over the items of each sample.
	Losses []float64
	// Items are the tokens, or what else is counted, of each sample; nil is one each.
	Items []int
	// Correct is how many items of each sample were predicted right; nil leaves the
	// accuracy to Predicted and Labels.
	Correct []int
	// Predicted and Labels are the classes of each sample; nil if there are none.
	Predicted, Labels []int
}

// EvaluateLogits is the Evaluation of logits, with labels for each of their rows in
// order, [tensor.IgnoreIndex] where a row does not count. Rows are dealt to the samples
// evenly: one each for classes, the length of a text for tokens (whose labels are the
// next token's: shift them).
func EvaluateLogits(logits *tensor.Tensor, labels []int, samples int) (Evaluation, error) {
	shape := logits.Shape()
	if len(shape) == 0 || samples < 1 || len(labels)%samples != 0 || logits.Len() != len(labels)*shape[len(shape)-1] {
		return Evaluation{}, fmt.Errorf("train: evaluate: logits of shape %v for %d labels of %d samples", shape, len(labels), samples)
	}
	width, each := shape[len(shape)-1], len(labels)/samples
	e := Evaluation{Losses: make([]float64, samples), Items: make([]int, samples), Correct: make([]int, samples)}
	for i, label := range labels {
		if label == tensor.IgnoreIndex {
			continue
		}
		if label < 0 || label >= width {
			return Evaluation{}, fmt.Errorf("train: evaluate: label %d of %d classes", label, width)
		}
		row := logits.Data()[i*width : (i+1)*width]
		best, sum := 0, 0.0
		for j, v := range row {
			if v > row[best] {
				best = j
			}
		}
		for _, v := range row {
			sum += math.Exp(float64(v - row[best]))
		}
		s := i / each
		e.Losses[s] += math.Log(sum) - float64(row[label]-row[best])
		e.Items[s]++
		if best == label {
			e.Correct[s]++
		}
	}
	return e, nil
}

// tally adds up the evaluations of all ranks.
type tally struct {
	loss              float64
	items, correct    int
	counted           bool
	samples, steps    int
	predicted, labels []int
}

// Evaluate walks the evaluation data on all ranks, which must all call it, and returns
// eval_loss (the mean over items), eval_perplexity, eval_accuracy where predictions are
// known, what ComputeMetrics makes of those, and how long it took. Samples that were
// repeated to fill the last batch do not count, as [GatherForMetrics] has it; where
// ComputeLoss gives sums over Items none are repeated.
func (t *Trainer[B]) Evaluate(ctx context.Context) (map[string]float64, error) {
	if t.c.Eval == nil {
		return nil, errors.New("train: trainer: there is nothing to evaluate on")
	}
	begin := time.Now()
	t.setTraining(false)
	defer t.setTraining(true)
	sum, err := t.tally(ctx)
	if err != nil {
		return nil, err
	}
	metrics := t.metrics(sum)
	passed := max(1e-9, time.Since(begin).Seconds())
	metrics["eval_runtime"] = passed
	metrics["eval_samples_per_second"] = float64(sum.samples) / passed
	metrics["eval_steps_per_second"] = float64(sum.steps) / passed
	t.latestEv = metrics
	logs := track.Values{}
	for name, v := range metrics {
		logs[name] = v
	}
	if err := t.record(ctx, logs); err != nil {
		return nil, err
	}
	if t.plateau {
		if err := t.sched.Step(metrics[evalName(t.args.MetricForBest)]); err != nil {
			return nil, err
		}
	}
	return metrics, t.trigger(ctx, Moment{Event: Evaluated, Metrics: metrics})
}

// tally adds up the evaluation data's batches on all ranks.
func (t *Trainer[B]) tally(ctx context.Context) (*tally, error) {
	if t.evaluatesSums() {
		return t.tallySums(ctx)
	}
	sum := new(tally)
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
		sum.add(&e)
	}
	return sum, nil
}

// evaluatesSums reports whether evaluation has but the sum over a batch's items, from which
// repeated samples cannot be cut: its data is dealt without any.
func (t *Trainer[B]) evaluatesSums() bool { return t.c.EvaluateBatch == nil && t.c.Items != nil }

// tallySums adds up each rank's own batches, of which some may have one more, and then those
// of all ranks. Of a stream, which every rank reads, each takes its turn.
func (t *Trainer[B]) tallySums(ctx context.Context) (*tally, error) {
	own, i, turns := new(tally), 0, 1
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
		own.add(&e)
	}
	all, err := Reduce(ctx, t.acc, []float64{own.loss, float64(own.items), float64(own.samples), float64(own.steps)}, ReduceSum)
	if err != nil {
		return nil, err
	}
	return &tally{loss: all[0], items: int(all[1]), samples: int(all[2]), steps: int(all[3])}, nil
}

func (s *tally) add(e *Evaluation) {
	s.steps++
	s.samples += len(e.Losses)
	for _, v := range e.Losses {
		s.loss += v
	}
	for _, n := range e.Items {
		s.items += n
	}
	for _, n := range e.Correct {
		s.correct += n
		s.counted = true
	}
	s.predicted, s.labels = append(s.predicted, e.Predicted...), append(s.labels, e.Labels...)
}

func (t *Trainer[B]) metrics(s *tally) map[string]float64 {
	m := map[string]float64{}
	if s.items > 0 {
		m["eval_loss"] = s.loss / float64(s.items)
		m["eval_perplexity"] = math.Exp(m["eval_loss"])
	}
	switch {
	case t.c.ComputeMetrics != nil:
		for name, v := range t.c.ComputeMetrics(s.predicted, s.labels) {
			m[evalName(name)] = v
		}
	case s.counted && s.items > 0:
		m["eval_accuracy"] = float64(s.correct) / float64(s.items)
	case len(s.labels) > 0 && len(s.labels) == len(s.predicted):
		m["eval_accuracy"] = Accuracy(s.predicted, s.labels)
	}
	return m
}

// Accuracy is the part of the predictions that are right.
func Accuracy(predicted, labels []int) float64 {
	right := 0
	for i, p := range predicted {
		if i < len(labels) && p == labels[i] {
			right++
		}
	}
	return float64(right) / float64(max(1, len(predicted)))
}

// evaluateBatch is EvaluateBatch, or the batch's loss for each of its samples.
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

// evalName is a metric's name as evaluations have it.
func evalName(name string) string {
	if name == "" {
		name = "loss"
	}
	if !strings.HasPrefix(name, "eval_") {
		name = "eval_" + name
	}
	return name
}

// judge notes the best evaluation.
func (t *Trainer[B]) judge(metrics map[string]float64) error {
	s := &t.state
	v, ok := metrics[evalName(t.args.MetricForBest)]
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

// logOrder puts what people look for first.
func logOrder(logs track.Values) []string {
	names := slices.Sorted(maps.Keys(logs))
	first := []string{"loss", "eval_loss", "train_loss"}
	slices.SortStableFunc(names, func(a, b string) int {
		return b2i(slices.Contains(first, b)) - b2i(slices.Contains(first, a))
	})
	return names
}
