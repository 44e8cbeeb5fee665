package finetune

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// comparing is a method that learns from comparisons of answers.
type comparing interface {
	method
	preference(j *job) train.Preference
}

// dpo, orpo and kto are methods of preference tuning.
type (
	dpo  struct{}
	orpo struct{}
	kto  struct{}
)

func (dpo) preference(j *job) train.Preference {
	return train.DPO{Beta: j.beta(), Type: j.LossType, LabelSmoothing: j.LabelSmoothing, ReferenceFree: j.ReferenceFree}
}

func (orpo) preference(j *job) train.Preference { return train.ORPO{Beta: j.beta()} }

func (kto) preference(j *job) train.Preference {
	return train.KTO{Beta: j.beta(), DesirableWeight: j.DesirableWeight, UndesirableWeight: j.UndesirableWeight}
}

func (m dpo) check(j *job) error  { return misused(m.preference(j).Check()) }
func (m orpo) check(j *job) error { return misused(m.preference(j).Check()) }

func (m kto) check(j *job) error {
	if j.Batch < 2 {
		return misusef("got --batch %d, but kto needs at least 2: it compares with the answers of other prompts", j.Batch)
	}
	return misused(m.preference(j).Check())
}

var usualPreference = usual{rate: 1e-6, adapterRate: 1e-5, beta: 0.1, unit: "pairs"}

func (dpo) usual() usual  { return usualPreference }
func (orpo) usual() usual { return usualPreference }

// usual sets the unit of losses to answers, because KTO judges them one by one.
func (kto) usual() usual {
	u := usualPreference
	u.unit = "answers"
	return u
}

func (dpo) read(j *job, t *data.Tokenizer, o data.TextOptions) (*texts, error) {
	return j.readPairs(t, o)
}
func (orpo) read(j *job, t *data.Tokenizer, o data.TextOptions) (*texts, error) {
	return j.readPairs(t, o)
}
func (kto) read(j *job, t *data.Tokenizer, o data.TextOptions) (*texts, error) {
	return j.readPairs(t, o)
}

func (m dpo) metrics(j *job) []string  { return m.preference(j).Metrics() }
func (m orpo) metrics(j *job) []string { return m.preference(j).Metrics() }
func (m kto) metrics(j *job) []string  { return m.preference(j).Metrics() }

func (m dpo) prepare(s *student) (loop, error)  { return s.compare(m) }
func (m orpo) prepare(s *student) (loop, error) { return s.compare(m) }
func (m kto) prepare(s *student) (loop, error)  { return s.compare(m) }

// readPairs reads comparisons from the data.
func (j *job) readPairs(tokenizer *data.Tokenizer, o data.TextOptions) (*texts, error) {
	if j.Method != "reward" {
		o.MaxLength, o.Judged = j.Sequence, j.Method == "kto"
	}
	read := func(path string) (made[data.Comparison], error) { return j.tokenizePairs(path, tokenizer, o) }
	var s sampleSet[data.Comparison]
	all, evals, err := sets(j, read, read, whole[data.Comparison])
	if err != nil {
		return nil, err
	}
	s.train, s.evals = all.Dataset, evals
	return textsOf(s, func(c data.Comparison) (length, tokens int) {
		for _, answer := range c.Completions { // all answers are in the batch
			row := min(len(c.Prompt)+len(answer), j.Sequence)
			length, tokens = max(length, len(c.Completions)*row), tokens+row-len(c.Prompt)
		}
		return length, tokens
	})
}

// tokenizePairs tokenises a file of comparisons. It omits unusable ones.
func (j *job) tokenizePairs(path string, tokenizer *data.Tokenizer, o data.TextOptions) (made[data.Comparison], error) {
	key, err := j.fileKey(path, o.EOS != nil, endOf(o))
	if err != nil {
		return made[data.Comparison]{}, err
	}
	all, err := makeSamples(j, path, key, comparisonCodec{}, func(emit func(data.Comparison) error) (report, error) {
		records, err := data.OpenComparisons(path)
		if err != nil {
			return report{}, misuse(err)
		}
		defer records.Close()
		return tokenized(j, path, records, func(r data.ComparisonRecord) (data.Comparison, []int32, error) {
			if len(r.Completions) == 1 && j.Method != "kto" {
				return data.Comparison{}, nil, errors.New("got one completion with a label, want chosen and rejected: use --method kto")
			}
			c, err := r.Tokenize(tokenizer, tokenizer, o)
			if err == nil && j.Method == "reward" {
				err = j.checkWhole(c)
			}
			return c, slices.Concat(append(slices.Clone(c.Completions), c.Prompt)...), err
		}, emit)
	})
	if j.Method != "kto" || err != nil {
		return all, err
	}
	var judged, rejected data.Slice[data.Comparison] // rejected answers last, so that batches in order mix prompts
	for i := range all.Len() {
		c, err := all.At(i)
		if err != nil {
			return all, err
		}
		both := c.Judged()
		judged, rejected = append(judged, both[0]), append(rejected, both[1:]...)
	}
	return made[data.Comparison]{Dataset: append(judged, rejected...)}, nil
}

// checkWhole returns an error if an answer would be cut: a reward model scores whole answers.
func (j *job) checkWhole(c data.Comparison) error {
	for _, answer := range c.Completions {
		if n := len(c.Prompt) + len(answer); n > j.Sequence {
			return fmt.Errorf("prompt and answer have %d tokens, want at most --sequence %d", n, j.Sequence)
		}
	}
	return nil
}

// collate returns the function that makes a batch of comparisons.
func (j *job) collate() data.Collate[data.Comparison, data.ComparisonBatch] {
	p := data.Padding{ID: j.data.pad}
	if j.Method == "kto" {
		return data.PadJudged(p, j.Sequence)
	}
	return data.PadComparisons(p)
}

// comparer is a student that learns from comparisons.
type comparer struct {
	*student
	objective train.Preference
	meter     *train.Meter
	reference *model.Model
}

// compare makes the training loop of a method that compares answers.
func (s *student) compare(m comparing) (loop, error) {
	p := m.preference(s.job)
	c := &comparer{student: s, objective: p, meter: train.NewMeter(p.Metrics()...)}
	s.leavesRouters("comparisons are")
	if p.NeedsReference() {
		var err error
		if c.reference, err = s.openReference(); err != nil {
			return nil, err
		}
	}
	config := train.TrainerConfig[data.ComparisonBatch]{Model: &switched{s.model, s}, Meter: c.meter, WithoutPerplexity: true,
		Items: func(b data.ComparisonBatch) int { return b.Prompts }}
	return fit(s, config, c.losses, s.collate())
}

// judged are the losses of the tokens of a batch, and of the answers of other prompts for kto.
type judged struct{ own, mismatched train.TokenLosses }

// losses returns the loss of each batch, summed over its pairs.
func (c *comparer) losses(ctx context.Context, batches []data.ComparisonBatch) ([]*tensor.Tensor, error) {
	all, of := &passes{student: c.student, reference: c.reference}, make([]judged, len(batches))
	for i, b := range batches {
		c.request(all, b, &of[i])
	}
	if err := all.run(); err != nil {
		return nil, err
	}
	out := make([]*tensor.Tensor, len(batches))
	for i, b := range batches {
		divergence, err := c.divergence(ctx, b, of[i].mismatched)
		if err == nil {
			out[i], err = train.PreferenceLoss(c.tape, c.objective, b, of[i].own, divergence, c.meter)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// request requests the passes that the loss of a batch needs.
func (c *comparer) request(all *passes, b data.ComparisonBatch, to *judged) {
	if b.Mismatched != nil {
		all.judge(*b.Mismatched, &to.mismatched.Reference)
		all.own.add(*b.Mismatched, model.Options{CrossEntropyOptions: perToken, NoGrad: true}, &to.mismatched.Policy)
	}
	if c.objective.NeedsReference() {
		all.judge(b.TokenBatch, &to.own.Reference)
	}
	tokens, o := b.TokenBatch, c.options(perToken)
	tokens.Labels = train.PreferenceLabels(c.objective, b)
	if c.Method != "orpo" {
		o.Entropies, o.MeanLogits, o.Top = &to.own.Entropies, &to.own.MeanLogits, &to.own.Top
	}
	all.own.add(tokens, o, &to.own.Policy)
}

// divergence estimates the model's KL divergence from the reference. It returns 0 if the batch has
// no data for it. In training it is the mean over all ranks. In evaluations each rank uses its own
// estimate, because ranks may have different numbers of batches.
func (c *comparer) divergence(ctx context.Context, b data.ComparisonBatch, losses train.TokenLosses) (float64, error) {
	if b.Mismatched == nil {
		return 0, nil
	}
	kl, err := train.KLDivergence(b, losses)
	if err != nil || c.evaluating || c.ranks == 1 {
		return kl, err
	}
	mean, err := train.Reduce(ctx, c.acc, []float64{kl}, train.ReduceMean)
	if err != nil {
		return 0, err
	}
	return mean[0], nil
}
