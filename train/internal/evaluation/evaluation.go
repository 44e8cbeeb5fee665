// Package evaluation computes evaluation metrics. [Logits] evaluates a batch, and a [Tally] sums
// batches and computes metrics from the sums. The package knows no ranks.
package evaluation

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/train/tensor"
)

// Batch is train.Evaluation, which documents the fields. Lists that are not nil have one entry per
// sample.
type Batch struct {
	// Losses are summed over the items of each sample.
	Losses []float64
	// Items is the number of tokens, or of other items, of each sample. Nil means one per sample.
	Items []int
	// Correct is the number of correctly predicted items of each sample. If it is nil, the
	// accuracy follows from Predicted and Labels.
	Correct []int
	// Predicted and Labels are the classes of each sample, or nil if there are none.
	Predicted, Labels []int
	// Sums are further values, summed over the items of each sample.
	Sums map[string][]float64
}

// Check returns an error if the lists of b have different lengths.
func (b *Batch) Check() error {
	samples, first := -1, ""
	for _, list := range b.lists() {
		switch {
		case !list.given:
		case samples < 0:
			samples, first = list.n, list.name
		case list.n != samples:
			return fmt.Errorf("train: evaluate: got %d %s and %d %s, want one for each sample", samples, first, list.n, list.name)
		}
	}
	return nil
}

type list struct {
	name  string
	n     int
	given bool
}

func (b *Batch) lists() []list {
	all := []list{{"Losses", len(b.Losses), b.Losses != nil}, {"Items", len(b.Items), b.Items != nil}, {"Correct", len(b.Correct), b.Correct != nil},
		{"Predicted", len(b.Predicted), b.Predicted != nil}, {"Labels", len(b.Labels), b.Labels != nil}}
	for _, name := range slices.Sorted(maps.Keys(b.Sums)) {
		all = append(all, list{"Sums[" + name + "]", len(b.Sums[name]), true})
	}
	return all
}

// Logits evaluates logits with one label per row, as train.EvaluateLogits documents.
func Logits(logits *tensor.Tensor, labels []int, samples int) (Batch, error) {
	shape := logits.Shape()
	if len(shape) == 0 || samples < 1 || len(labels)%samples != 0 || logits.Len() != len(labels)*shape[len(shape)-1] {
		return Batch{}, fmt.Errorf("train: evaluate: logits of shape %v for %d labels of %d samples", shape, len(labels), samples)
	}
	width, each := shape[len(shape)-1], len(labels)/samples
	e := Batch{Losses: make([]float64, samples), Items: make([]int, samples), Correct: make([]int, samples)}
	for i, label := range labels {
		if label == tensor.IgnoreIndex {
			continue
		}
		if label < 0 || label >= width {
			return Batch{}, fmt.Errorf("train: evaluate: label %d of %d classes", label, width)
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

// A Tally sums batches.
type Tally struct {
	Loss           float64
	Items, Samples int
	Steps          int // number of batches

	correct           int
	counted           bool
	predicted, labels []int
	means             map[string]float64 // sums of the batches' means
}

// Add adds a batch.
func (s *Tally) Add(e *Batch) {
	s.Steps++
	s.Samples += len(e.Losses)
	for _, v := range e.Losses {
		s.Loss += v
	}
	for _, n := range e.Correct {
		s.correct += n
		s.counted = true
	}
	items := 0
	for _, n := range e.Items {
		items += n
	}
	s.Items += items
	for name, sums := range e.Sums {
		if s.means == nil {
			s.means = map[string]float64{}
		}
		total := 0.0
		for _, v := range sums {
			total += v
		}
		s.means[name] += total / float64(max(1, items))
	}
	s.predicted, s.labels = append(s.predicted, e.Predicted...), append(s.labels, e.Labels...)
}

// Metrics returns eval_loss, the mean over items, eval_perplexity, and the means of Sums over
// items, averaged over batches. compute returns further metrics of the predictions. If it is nil,
// Metrics adds eval_accuracy if items or classes were predicted.
func (s *Tally) Metrics(compute func(predicted, labels []int) map[string]float64) map[string]float64 {
	m := map[string]float64{}
	if s.Items > 0 {
		m["eval_loss"] = s.Loss / float64(s.Items)
		m["eval_perplexity"] = math.Exp(m["eval_loss"])
	}
	for name, v := range s.means {
		m[MetricName(name)] = v / float64(s.Steps)
	}
	switch {
	case compute != nil:
		for name, v := range compute(s.predicted, s.labels) {
			m[MetricName(name)] = v
		}
	case s.counted && s.Items > 0:
		m["eval_accuracy"] = float64(s.correct) / float64(s.Items)
	case len(s.labels) > 0 && len(s.labels) == len(s.predicted):
		m["eval_accuracy"] = Accuracy(s.predicted, s.labels)
	}
	return m
}

// Accuracy returns the fraction of the predictions that are correct.
func Accuracy(predicted, labels []int) float64 {
	right := 0
	for i, p := range predicted {
		if i < len(labels) && p == labels[i] {
			right++
		}
	}
	return float64(right) / float64(max(1, len(predicted)))
}

// MetricName returns the name of a metric in evaluations: eval_loss for "" and "loss".
func MetricName(name string) string {
	if name == "" {
		name = "loss"
	}
	if !strings.HasPrefix(name, "eval_") {
		name = "eval_" + name
	}
	return name
}
