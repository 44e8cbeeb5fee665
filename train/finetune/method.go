package finetune

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// preference returns the objective of a method that compares answers, or nil.
func (f *job) preference() train.Preference {
	switch f.Method {
	case "dpo":
		return train.DPO{Beta: f.Beta, Type: f.LossType, LabelSmoothing: f.LabelSmoothing, ReferenceFree: f.ReferenceFree}
	case "orpo":
		return train.ORPO{Beta: f.Beta}
	case "kto":
		return train.KTO{Beta: f.Beta, DesirableWeight: f.DesirableWeight, UndesirableWeight: f.UndesirableWeight}
	}
	return nil
}

// checkMethod rejects flags that the method does not have.
func (c *job) checkMethod() error {
	if c.Method != "dpo" && (c.LossType != "" || c.ReferenceFree) {
		return misusef("--loss-type and --reference-free need --method dpo")
	}
	if c.Method != "kto" && (c.DesirableWeight != 1 || c.UndesirableWeight != 1) {
		return misusef("--desirable-weight and --undesirable-weight need --method kto")
	}
	p := c.preference()
	switch {
	case c.Method == "sft" && !(c.LabelSmoothing >= 0 && c.LabelSmoothing < 1):
		return misusef("got --label-smoothing %v, want 0 or more and less than 1", c.LabelSmoothing)
	case p == nil:
		return nil
	case c.Method != "dpo" && c.LabelSmoothing != 0:
		return misusef("--label-smoothing needs --method sft or dpo")
	case c.Method == "kto" && c.Batch < 2:
		return misusef("got --batch %d, but kto needs at least 2: it compares with the answers of other prompts", c.Batch)
	case c.Pack || c.LearnPrompt || c.LastAnswer:
		return misusef("--pack, --learn-prompt and --last-answer need --method sft")
	}
	if err := p.Check(); err != nil {
		return misuse(err)
	}
	return nil
}

// readPairs makes comparisons of the data.
func (j *job) readPairs(t *texts, tokenizer *data.Tokenizer, o data.TextOptions) error {
	o.MaxLength = j.Sequence
	read := func(path string) (data.Slice[data.Comparison], error) { return j.tokenizePairs(path, tokenizer, o) }
	var err error
	if t.pairs, err = weighted(j, read); err != nil {
		return err
	}
	for _, c := range t.pairs {
		t.tokens += c.Tokens()
	}
	if t.tokens == 0 {
		return misusef("--data has no tokens to learn")
	}
	t.evalPairs, err = evaluated(j, read)
	return err
}

// tokenizePairs reads a file of comparisons and omits those that cannot be used.
func (j *job) tokenizePairs(path string, tokenizer *data.Tokenizer, o data.TextOptions) (data.Slice[data.Comparison], error) {
	records, err := data.OpenComparisons(path)
	if err != nil {
		return nil, misuse(err)
	}
	defer records.Close()
	all, err := tokenized(j, path, records, func(r data.ComparisonRecord) (data.Comparison, []int32, error) {
		if len(r.Completions) == 1 && j.Method != "kto" {
			return data.Comparison{}, nil, errors.New("got one completion with a label, want chosen and rejected: use --method kto")
		}
		c, err := r.Tokenize(tokenizer, tokenizer, o)
		return c, slices.Concat(append(slices.Clone(c.Completions), c.Prompt)...), err
	})
	if j.Method != "kto" || err != nil {
		return all, err
	}
	var judged, rejected []data.Comparison // rejected answers last, so that batches in order mix prompts
	for _, c := range all {
		both := c.Judged()
		judged, rejected = append(judged, both[0]), append(rejected, both[1:]...)
	}
	return append(judged, rejected...), nil
}

// collate returns how comparisons become a batch.
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
	reference  *model.Model // of a full fine-tune; an adapter's is the model without it
	checkpoint *loader.Checkpoint
	evaluating bool
	ctx        context.Context // of the loss that is computed
}

func (s *student) compare() (*comparer, error) {
	p := s.preference()
	c := &comparer{student: s, objective: p, meter: train.NewMeter(p.Metrics()...)}
	if s.router != 0 && s.acc.IsMainProcess() {
		s.log.Warn("the routers' loss of this model is left out: comparisons are learned without it")
	}
	if !p.NeedsReference() || s.LoRA != "" {
		return c, nil
	}
	return c, c.openReference()
}

// openReference maps the weights that the run began with. They take only the file's pages.
func (c *comparer) openReference() error {
	config, err := readConfig(c.job.model)
	if err != nil {
		return err
	}
	if c.checkpoint, err = loader.Open(c.job.model); err != nil {
		return err
	}
	skeleton, err := meta.New(config, c.checkpoint)
	if err != nil {
		return err
	}
	binding, err := loader.Bind(c.checkpoint, skeleton)
	if err != nil {
		return err
	}
	c.reference, err = model.Load(skeleton, binding, model.Freeze(func(string) bool { return true }))
	return err
}

// SetTraining tells c whether losses are of training.
func (c *comparer) SetTraining(on bool) { c.evaluating = !on }

var perToken = tensor.CrossEntropyOptions{Reduction: tensor.None}

// loss returns the sum over a batch's pairs.
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
		if losses.Reference, err = c.untrained(c.base(), b.TokenBatch, true); err != nil {
			return nil, err
		}
	}
	tokens := b.TokenBatch
	tokens.Labels = train.PreferenceLabels(c.objective, b)
	c.model.SetAuxiliary(0)
	if losses.Policy, err = c.model.Loss(c.tape, batch(tokens, 0, tokens.Rows), o); err != nil {
		return nil, err
	}
	return train.PreferenceLoss(c.tape, c.objective, b, losses, divergence, c.meter)
}

// divergence estimates the model's divergence from the reference, if the batch is for it. In training
// it is the mean over all ranks. Ranks evaluate different numbers of batches, each by itself.
func (c *comparer) divergence(b data.ComparisonBatch) (float64, error) {
	if b.Mismatched == nil {
		return 0, nil
	}
	var losses train.TokenLosses
	var err error
	if losses.Reference, err = c.untrained(c.base(), *b.Mismatched, true); err != nil {
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

// untrained returns the losses of tokens without a record.
func (c *comparer) untrained(m *model.Model, b data.TokenBatch, base bool) (losses *tensor.Tensor, err error) {
	m.SetAuxiliary(0)
	c.tape.NoGrad(func() {
		losses, err = m.Loss(c.tape, batch(b, 0, b.Rows), model.Options{CrossEntropyOptions: perToken, Base: base})
	})
	return losses, err
}

// base returns the model with the weights of the reference.
func (c *comparer) base() *model.Model {
	if c.reference == nil {
		return c.model
	}
	return c.reference
}

func (c *comparer) close() error {
	if c.reference != nil {
		if err := c.reference.Close(); err != nil {
			return err
		}
	}
	if c.checkpoint != nil {
		return c.checkpoint.Close()
	}
	return nil
}

// compared is the comparer's model for a Trainer.
type compared struct {
	*model.Model
	c *comparer
}

func (m compared) SetTraining(on bool) { m.c.SetTraining(on) }

// rateOf returns the learning rate of a method if none is given.
func (j *job) rateOf() float64 {
	switch {
	case j.preference() != nil && j.LoRA != "":
		return 1e-5
	case j.preference() != nil:
		return 1e-6
	case j.LoRA != "":
		return 2e-4
	}
	return 5e-5
}

// finite reports whether a loss is a number.
func finite(loss float64) bool { return !math.IsNaN(loss) && !math.IsInf(loss, 0) }
