package main

import (
	"context"
	"math"
	"slices"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// methodFlags say what is learned from the data.
type methodFlags struct {
	Method         string  `help:"Train by this method: sft (texts and answers) or dpo (pairs of a chosen and a rejected answer)." enum:"sft,dpo" default:"sft"`
	Beta           float64 `help:"Set dpo's beta: a higher one keeps the model closer to the reference." default:"0.1"`
	LossType       string  `help:"Set dpo's loss: sigmoid, hinge, ipo or robust." enum:"sigmoid,hinge,ipo,robust," default:""`
	LabelSmoothing float64 `help:"Smooth labels by this fraction; with dpo, the fraction of wrong pairs." default:"0"`
	ReferenceFree  bool    `help:"Run dpo without the reference model."`
}

// preference returns the objective of a method that compares answers, or nil.
func (f *methodFlags) preference() train.Preference {
	if f.Method != "dpo" {
		return nil
	}
	return train.DPO{Beta: f.Beta, Type: f.LossType, LabelSmoothing: f.LabelSmoothing, ReferenceFree: f.ReferenceFree}
}

// checkMethod rejects flags that the method does not have.
func (c *runCmd) checkMethod() error {
	p := c.preference()
	if p == nil {
		if c.LossType != "" || c.ReferenceFree {
			return cmdline.Misusef("--loss-type and --reference-free need --method dpo")
		}
		if !(c.LabelSmoothing >= 0 && c.LabelSmoothing < 1) {
			return cmdline.Misusef("got --label-smoothing %v, want 0 or more and less than 1", c.LabelSmoothing)
		}
		return nil
	}
	if err := p.Check(); err != nil {
		return cmdline.Misuse(err)
	}
	if c.Pack || c.LearnPrompt || c.LastAnswer {
		return cmdline.Misusef("--pack, --learn-prompt and --last-answer need --method sft")
	}
	return nil
}

// readPairs makes comparisons of the data.
func (j *job) readPairs(t *texts, tokenizer *data.Tokenizer, o data.TextOptions) error {
	o.MaxLength = j.Sequence
	var err error
	for _, path := range j.Data {
		some, err := j.tokenizePairs(path, tokenizer, o)
		if err != nil {
			return err
		}
		t.pairs = append(t.pairs, some...)
	}
	for _, c := range t.pairs {
		t.tokens += c.Tokens()
	}
	if t.tokens == 0 {
		return cmdline.Misusef("--data has no tokens to learn")
	}
	if j.EvalData != "" {
		t.evalPairs, err = j.tokenizePairs(j.EvalData, tokenizer, o)
	}
	return err
}

// tokenizePairs reads a file of comparisons and omits those that cannot be used.
func (j *job) tokenizePairs(path string, tokenizer *data.Tokenizer, o data.TextOptions) (data.Slice[data.Comparison], error) {
	records, err := data.OpenComparisons(path)
	if err != nil {
		return nil, cmdline.Misuse(err)
	}
	defer records.Close()
	return tokenized(j, path, records, func(r data.ComparisonRecord) (data.Comparison, []int32, error) {
		c, err := r.Tokenize(tokenizer, tokenizer, o)
		return c, slices.Concat(append(c.Completions, c.Prompt)...), err
	})
}

// comparer is a student that learns from comparisons.
type comparer struct {
	*student
	objective  train.Preference
	meter      *train.Meter
	reference  *model.Model // of a full fine-tune; an adapter's is the model without it
	checkpoint *loader.Checkpoint
	evaluating bool
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
func (c *comparer) loss(_ context.Context, b data.ComparisonBatch) (loss *tensor.Tensor, err error) {
	if c.evaluating {
		c.tape.NoGrad(func() { loss, err = c.losses(b, model.Options{CrossEntropyOptions: perToken}) })
		return loss, err
	}
	return c.losses(b, model.Options{CrossEntropyOptions: perToken, Recompute: c.recompute, Dropout: c.acc.Generator()})
}

func (c *comparer) losses(b data.ComparisonBatch, o model.Options) (*tensor.Tensor, error) {
	tokens := batch(b.TokenBatch, 0, b.Rows)
	c.model.SetAuxiliary(0)
	var reference *tensor.Tensor
	if c.objective.NeedsReference() {
		var err error
		c.tape.NoGrad(func() {
			reference, err = c.base().Loss(c.tape, tokens, model.Options{CrossEntropyOptions: perToken, Base: true})
		})
		if err != nil {
			return nil, err
		}
	}
	policy, err := c.model.Loss(c.tape, tokens, o)
	if err != nil {
		return nil, err
	}
	return train.PreferenceLoss(c.tape, c.objective, b, policy, reference, c.meter)
}

// base returns the model with the weights of the reference.
func (c *comparer) base() *model.Model {
	if c.reference == nil {
		return c.model
	}
	c.reference.SetAuxiliary(0)
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
