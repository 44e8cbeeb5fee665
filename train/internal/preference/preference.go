// Package preference computes the losses of preference tuning, with their gradients: [DPO],
// [ORPO], [KTO], and [GRPO] of completions with rewards.
//
// A [Batch] holds minus the log-probabilities of tokens under the policy, which is trained, and under
// the reference. An objective turns them into a [Result]: the loss, its slope for every token, and the
// rewards. The package knows no models and no tapes.
package preference

import (
	"fmt"
	"math"
	"slices"
)

// SettingError is the error of a setting that a loss does not take.
type SettingError struct {
	Setting string // the field of train's type, such as Beta
	Got     any
	Want    string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("got %s %v, want %s", e.Setting, e.Got, e.Want)
}

// finite reports whether v is least or more, and not infinite.
func finite(v, least float64) bool { return v >= least && !math.IsInf(v, 0) }

// Batch holds sequences row by row: the first completion of every prompt, then the second ones.
// Position i of a row is about the token at i+1, so the last position counts for nothing.
type Batch struct {
	Rows, Columns int
	// Policy and Reference are minus the log-probabilities. Reference is nil without a reference.
	Policy, Reference []float32
	// Answer marks positions whose token belongs to a completion.
	Answer []bool
	// Text marks positions whose token is one of the prompt or of the completion.
	Text []bool
	// Lengths counts the tokens of each row's completion.
	Lengths []int
	// Desirable judges the completion of each row, for KTO, and Divergence is the policy's KL
	// divergence from the reference.
	Desirable  []bool
	Divergence float64
	// Advantages are those of each row's completion, for GRPO. Old are minus the log-probabilities under
	// the policy that made the completions; nil means Policy.
	Advantages []float64
	Old        []float32
	Entropies  []float32 // of the distributions of tokens, or nil
	// MeanLogits and Top are the mean logit of each distribution, and whether the token has the highest one; or nil.
	MeanLogits []float32
	Top        []bool
}

// Result is the outcome of a batch.
type Result struct {
	// Loss is summed over the samples: pairs, or rows.
	Loss float64
	// Slope is the derivative of Loss for each element of Policy.
	Slope []float32
	// Metrics are values by name, as TRL names them.
	Metrics map[string]Sum
}

// Sum is a value that is averaged over Count samples.
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

// spread gives all tokens of a row's completion the slope of the row's log-probability.
func (b *Batch) spread(slope []float32, row int, by float64) {
	for i := row * b.Columns; i < (row+1)*b.Columns; i++ {
		if b.Answer[i] {
			slope[i] -= float32(by) // the elements are minus log-probabilities
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

// DPOMetrics are the names of the metrics of DPO.
var DPOMetrics = append(append(slices.Clone(PairMetrics), tokenMetrics...), "mean_token_accuracy")

// PairMetrics are the names of the metrics of pairs.
var PairMetrics = []string{"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"}

// tokenMetrics are the names of what tokens adds.
var tokenMetrics = []string{"entropy", "logits/chosen", "logits/rejected"}

// tokens adds means over the tokens of completions, as means of the batch: of entropies and, by kind of completion, of
// logits, and for pairs how many tokens of chosen ones are the likeliest.
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

// checkMeasures reports measures of tokens of another number than the batch's.
func (b *Batch) checkMeasures() error {
	for _, n := range []int{len(b.Entropies), len(b.MeanLogits), len(b.Top)} {
		if n != 0 && n != len(b.Policy) {
			return fmt.Errorf("preference: got %d entropies, %d mean logits and %d likeliest tokens for %d tokens", len(b.Entropies), len(b.MeanLogits), len(b.Top), len(b.Policy))
		}
	}
	return nil
}

// check reports a batch whose lists have other lengths than its rows.
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
