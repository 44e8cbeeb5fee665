package finetune

import (
	"context"
	"errors"
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
	o.MaxLength = j.Sequence
	read := func(path string) (made[data.Comparison], error) { return j.tokenizePairs(path, tokenizer, o) }
	var s sampleSet[data.Comparison]
	all, evals, err := sets(j, read, read, whole[data.Comparison])
	if err != nil {
		return nil, err
	}
	s.train, s.evals = all.Dataset, evals
	return textsOf(s, func(c data.Comparison) (length, tokens int) {
		for _, answer := range c.Completions { // all answers are in the batch
			length = max(length, len(c.Completions)*(len(c.Prompt)+len(answer)))
		}
		return length, c.Tokens()
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
	objective  train.Preference
	meter      *train.Meter
	reference  *model.Model
	evaluating bool
	ctx        context.Context // for the loss being computed
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
	config := train.TrainerConfig[data.ComparisonBatch]{Model: &switched{s.model, c.SetTraining}, ComputeLoss: c.loss, Meter: c.meter, WithoutPerplexity: true,
		Items: func(b data.ComparisonBatch) int { return b.Prompts }}
	return fit(s, config, s.collate())
}

// SetTraining tells c whether the next losses are for training or for evaluation.
func (c *comparer) SetTraining(on bool) { c.evaluating = !on }

// loss returns the loss summed over a batch's pairs.
func (c *comparer) loss(ctx context.Context, b data.ComparisonBatch) (loss *tensor.Tensor, err error) {
	c.ctx = ctx
	if c.evaluating {
		c.tape.NoGrad(func() { loss, err = c.losses(b, model.Options{CrossEntropyOptions: perToken}) })
		return loss, err
	}
	return c.losses(b, model.Options{CrossEntropyOptions: perToken, Recompute: c.recompute, Dropout: c.acc.Generator()})
}

func (c *comparer) losses(b data.ComparisonBatch, o model.Options) (*tensor.Tensor, error) {
	divergence, err := c.divergence(b)
	if err != nil {
		return nil, err
	}
	var losses train.TokenLosses
	if c.objective.NeedsReference() {
		if losses.Reference, err = c.untrained(c.reference, b.TokenBatch, true); err != nil {
			return nil, err
		}
	}
	tokens := b.TokenBatch
	tokens.Labels = train.PreferenceLabels(c.objective, b)
	c.model.SetAuxiliary(0)
	if c.Method != "orpo" {
		o.Entropies, o.MeanLogits, o.Top = &losses.Entropies, &losses.MeanLogits, &losses.Top
	}
	if losses.Policy, err = c.model.Loss(c.tape, batch(tokens, 0, tokens.Rows), o); err != nil {
		return nil, err
	}
	return train.PreferenceLoss(c.tape, c.objective, b, losses, divergence, c.meter)
}

// divergence estimates the model's KL divergence from the reference. It returns 0 if the batch has
// no data for it. In training it is the mean over all ranks. In evaluations each rank uses its own
// estimate, because ranks may have different numbers of batches.
func (c *comparer) divergence(b data.ComparisonBatch) (float64, error) {
	if b.Mismatched == nil {
		return 0, nil
	}
	var losses train.TokenLosses
	var err error
	if losses.Reference, err = c.untrained(c.reference, *b.Mismatched, true); err != nil {
		return 0, err
	}
	if losses.Policy, err = c.untrained(c.model, *b.Mismatched, false); err != nil {
		return 0, err
	}
	kl, err := train.KLDivergence(b, losses)
	if err != nil || c.evaluating || c.ranks == 1 {
		return kl, err
	}
	mean, err := train.Reduce(c.ctx, c.acc, []float64{kl}, train.ReduceMean)
	if err != nil {
		return 0, err
	}
	return mean[0], nil
}
