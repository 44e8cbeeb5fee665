package finetune

import (
	"context"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// sft learns the tokens of texts and answers.
type sft struct{}

func (sft) check(j *job) error {
	if !(j.LabelSmoothing >= 0 && j.LabelSmoothing < 1) {
		return misusef("got --label-smoothing %v, want 0 or more and less than 1", j.LabelSmoothing)
	}
	return nil
}

func (sft) usual() usual { return usual{rate: 5e-5, adapterRate: 2e-4, unit: "learned tok"} }

func (sft) metrics(*job) []string { return append([]string{"perplexity"}, tokenMetrics...) }

// tokenMetrics are the metrics of the token distributions that sft measures, as TRL's
// SFTTrainer does.
var tokenMetrics = []string{"entropy", "mean_token_accuracy"}

func (sft) read(j *job, tokenizer *data.Tokenizer, o data.TextOptions) (*texts, error) {
	var s sampleSet[data.Sequence]
	reads := func(cuts bool) func(path string) (made[data.Sequence], error) {
		return func(path string) (made[data.Sequence], error) { return j.tokenize(path, tokenizer, o, cuts) }
	}
	all, evals, err := sets(j, reads(!j.Pack), reads(true), j.cut)
	if err == nil && j.Pack {
		all, err = j.pack(all)
	}
	if err != nil {
		return nil, err
	}
	s.train, s.evals = all.Dataset, evals
	return textsOf(s, func(s data.Sequence) (length, tokens int) { return len(s.IDs), learned(s.Labels) })
}

// cut returns the beginning of a sequence that fits within --sequence.
func (j *job) cut(s data.Sequence) data.Sequence {
	n := min(len(s.IDs), j.Sequence)
	s.IDs, s.Labels = s.IDs[:n], s.Labels[:n]
	return s
}

// pack joins sequences into sequences of full length.
func (j *job) pack(all made[data.Sequence]) (made[data.Sequence], error) {
	key := ""
	if all.key != "" {
		key = keyOf("packed", all.key, j.Sequence)
	}
	return makeSamples(j, "--pack", key, sequenceCodec{}, func(emit func(data.Sequence) error) (r report, err error) {
		p, err := data.NewPacker(j.Sequence, data.PackOptions{}, emit)
		if err != nil {
			return r, err
		}
		for i := range all.Len() {
			s, err := all.At(i)
			if err == nil {
				err = p.Add(s)
			}
			if err != nil {
				return r, err
			}
		}
		return r, p.Flush()
	})
}

func (sft) prepare(s *student) (loop, error) {
	r := &reader{student: s, meter: train.NewBatchMeter(tokenMetrics...)}
	c := train.TrainerConfig[data.TokenBatch]{Model: s.model, Items: labels, Tokens: tokens, EvaluateBatch: r.evaluate, Meter: r.meter}
	return fit(s, c, r.losses, data.PadTokens(data.Padding{ID: s.data.pad}))
}

// tokens counts the tokens of a batch that are not padding.
func tokens(b data.TokenBatch) int {
	n := 0
	for _, in := range b.Mask {
		if in != 0 {
			n++
		}
	}
	return n
}

// reader is a student that learns texts.
type reader struct {
	*student
	meter *train.Meter
}

// losses returns the loss of each batch, summed over its labels. The routers' loss is a mean, so it
// is multiplied by the number of labels.
func (r *reader) losses(_ context.Context, batches []data.TokenBatch) ([]*tensor.Tensor, error) {
	of, options, values := make([]model.Batch, len(batches)), make([]model.Options, len(batches)), make([]measured, len(batches))
	for i, b := range batches {
		of[i] = batch(b, 0, b.Rows)
		options[i] = r.measuring(&values[i], model.Options{Recompute: r.recompute, Dropout: r.acc.Generator(), Noise: r.noise()})
		if r.router != 0 {
			weight := r.router * float32(labels(b))
			options[i].Auxiliary = &weight
		}
	}
	losses, err := r.model.Losses(r.tape, of, options)
	if err != nil {
		return nil, err
	}
	for i, b := range batches {
		for name, sum := range values[i].sums() {
			r.meter.Add(name, sum, labels(b))
		}
	}
	return losses, nil
}

// measured holds statistics of the labels of a batch.
type measured struct {
	entropies []float32
	tops      []bool
}

// measuring returns options that sum the loss over labels and record the statistics in m.
func (r *reader) measuring(m *measured, o model.Options) model.Options {
	o.CrossEntropyOptions = tensor.CrossEntropyOptions{Reduction: tensor.Sum, Smoothing: r.LabelSmoothing}
	o.Entropies, o.Top = &m.entropies, &m.tops
	return o
}

// sums returns the sums of tokenMetrics.
func (m *measured) sums() map[string]float64 {
	entropy, right := 0.0, 0
	for i, top := range m.tops {
		entropy += float64(m.entropies[i])
		if top {
			right++
		}
	}
	return map[string]float64{"entropy": entropy, "mean_token_accuracy": float64(right)}
}

// noise returns the noise of NEFTune, or nil.
func (s *student) noise() *model.Noise {
	if s.NeftuneNoiseAlpha == 0 {
		return nil
	}
	return &model.Noise{Alpha: s.NeftuneNoiseAlpha, Uniform: s.acc.Generator().Uniform}
}

// evaluate measures each sequence of a batch.
func (r *reader) evaluate(_ context.Context, b data.TokenBatch) (train.Evaluation, error) {
	e := train.Evaluation{Sums: map[string][]float64{}}
	r.model.SetAuxiliary(0)
	for i := range b.Rows {
		var err error
		r.tape.NoGrad(func() {
			var loss *tensor.Tensor
			var values measured
			if loss, err = r.model.Loss(r.tape, batch(b, i, 1), r.measuring(&values, model.Options{})); err == nil {
				e.Losses = append(e.Losses, float64(loss.Item()))
				for name, sum := range values.sums() {
					e.Sums[name] = append(e.Sums[name], sum)
				}
			}
		})
		if failed := r.tape.Reset(); err == nil {
			err = failed
		}
		if err != nil {
			return e, err
		}
		e.Items = append(e.Items, learned(b.Labels[i*b.Columns:(i+1)*b.Columns]))
	}
	return e, nil
}
