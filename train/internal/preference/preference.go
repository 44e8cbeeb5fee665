// Package preference computes the losses of preference tuning with their gradients: [DPO], [ORPO]
// and [KTO], and [GRPO] for completions with rewards.
//
// A [Batch] holds negative log-probabilities of tokens under the policy, which is trained, and
// under the reference. An objective turns them into a [Result]: the loss, its derivative for
// every token, and the rewards. The package knows no models and no tapes.
package preference

import (
	"fmt"
	"math"
	"slices"
)

// SettingError reports a setting that a loss does not support.
type SettingError struct {
	Setting string // field of train's type, such as Beta
	Got     any
	Want    string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("got %s %v, want %s", e.Setting, e.Got, e.Want)
}

// finite reports whether v is at least least and not infinite.
func finite(v, least float64) bool { return v >= least && !math.IsInf(v, 0) }

// Batch holds sequences row by row: the first completion of every prompt, then the second ones.
// Position i of a row is about the token at i+1, so the last position is ignored.
type Batch struct {
	Rows, Columns int
	// Policy and Reference are negative log-probabilities. Reference is nil if there is no
	// reference.
	Policy, Reference []float32
	// Answer marks positions whose token belongs to a completion.
	Answer []bool
	// Text marks positions whose token belongs to the prompt or the completion.
	Text []bool
	// Lengths holds the number of tokens of each row's completion.
	Lengths []int
	// Desirable judges the completion of each row, for KTO. Divergence is the policy's KL
	// divergence from the reference.
	Desirable  []bool
	Divergence float64
	// Advantages holds the advantage of each row's completion, for GRPO. Old holds negative
	// log-probabilities under the policy that sampled the completions; nil means Policy.
	Advantages []float64
	Old        []float32
	Entropies  []float32 // of the tokens' distributions, or nil
	// MeanLogits holds the mean logit of each distribution, and Top whether the token has the
	// highest logit; or nil.
	MeanLogits []float32
	Top        []bool
}

// Result is the outcome of a batch.
type Result struct {
	// Loss is summed over the samples, which are pairs or rows.
	Loss float64
	// Slope is the derivative of Loss by each element of Policy.
	Slope []float32
	// Metrics maps TRL's names to values.
	Metrics map[string]Sum
}

// Sum is the sum of a value over Count samples.
type Sum struct {
	Total float64
	Count int
}

// score returns the log-probability of a row's completion.
func (b *Batch) score(tokens []float32, row int) float64 {
	sum := 0.0
	for i := row * b.Columns; i < (row+1)*b.Columns; i++ {
		if b.Answer[i] {
			sum -= float64(tokens[i])
		}
	}
	return sum
}

// spread assigns the derivative by the log-probability of a row's completion to all its tokens.
func (b *Batch) spread(slope []float32, row int, by float64) {
	for i := row * b.Columns; i < (row+1)*b.Columns; i++ {
		if b.Answer[i] {
			slope[i] -= float32(by) // the elements are negative log-probabilities
		}
	}
}

// add adds samples to the mean of a metric.
func (r *Result) add(name string, value float64) {
	s := r.Metrics[name]
	r.Metrics[name] = Sum{s.Total + value, s.Count + 1}
}

// pair adds the metrics of a pair's rewards and log-probabilities.
func (r *Result) pair(chosen, rejected, chosenScore, rejectedScore float64) {
	better := 0.0
	if chosen > rejected {
		better = 1
	}
	r.add("rewards/chosen", chosen)
	r.add("rewards/rejected", rejected)
	r.add("rewards/accuracies", better)
	r.add("rewards/margins", chosen-rejected)
	r.add("logps/chosen", chosenScore)
	r.add("logps/rejected", rejectedScore)
}

// DPOMetrics lists the names of the metrics of DPO.
var DPOMetrics = append(append(slices.Clone(PairMetrics), tokenMetrics...), "mean_token_accuracy")

// PairMetrics lists the names of the metrics of pairs.
var PairMetrics = []string{"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"}

// tokenMetrics lists the names of the metrics that tokens adds.
var tokenMetrics = []string{"entropy", "logits/chosen", "logits/rejected"}

// tokens adds means over the tokens of completions, as means of the batch: of entropies and, by
// kind of completion, of logits. For pairs it also adds the fraction of tokens of chosen
// completions that are the likeliest.
func (r *Result) tokens(b *Batch, chosen func(row int) bool, pairs bool) {
	var spread, good, bad, top Sum
	for row := range b.Rows {
		for i := row * b.Columns; i < (row+1)*b.Columns; i++ {
			if !b.Answer[i] {
				continue
			}
			if b.Entropies != nil {
				spread.add(float64(b.Entropies[i]))
			}
			kind := &bad
			if chosen(row) {
				kind = &good
			}
			if b.MeanLogits != nil {
				kind.add(float64(b.MeanLogits[i]))
			}
			if pairs && b.Top != nil && chosen(row) {
				hit := 0.0
				if b.Top[i] {
					hit = 1
				}
				top.add(hit)
			}
		}
	}
	for name, s := range map[string]Sum{"entropy": spread, "logits/chosen": good, "logits/rejected": bad, "mean_token_accuracy": top} {
		if s.Count > 0 {
			r.add(name, s.Total/float64(s.Count))
		}
	}
}

func (s *Sum) add(value float64) { s.Total, s.Count = s.Total+value, s.Count+1 }

// checkMeasures returns an error if the number of measurements differs from the batch's number of
// tokens.
func (b *Batch) checkMeasures() error {
	for _, n := range []int{len(b.Entropies), len(b.MeanLogits), len(b.Top)} {
		if n != 0 && n != len(b.Policy) {
			return fmt.Errorf("preference: got %d entropies, %d mean logits and %d likeliest tokens for %d tokens", len(b.Entropies), len(b.MeanLogits), len(b.Top), len(b.Policy))
		}
	}
	return nil
}

// check returns an error if the lengths of the batch's lists do not match its rows.
func (b *Batch) check(completions int) error {
	n := b.Rows * b.Columns
	if b.Rows%completions != 0 || len(b.Policy) != n || b.Reference != nil && len(b.Reference) != n || len(b.Answer) != n || len(b.Text) != n || len(b.Lengths) != b.Rows {
		return fmt.Errorf("preference: got %d policy, %d reference and %d answer values for %d rows of %d tokens with %d completions a prompt",
			len(b.Policy), len(b.Reference), len(b.Answer), b.Rows, b.Columns, completions)
	}
	return b.checkMeasures()
}

// logSigmoid returns log(1/(1+exp(-x))).
func logSigmoid(x float64) float64 {
	if x < 0 {
		return x - math.Log1p(math.Exp(x))
	}
	return -math.Log1p(math.Exp(-x))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
