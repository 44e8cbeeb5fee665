package finetune

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// texts is all data of a run, as samples for its method.
type texts struct {
	set     any // a sampleSet of the method's sample type
	samples int // to train on
	evals   int // to evaluate on
	longest int // tokens that the longest sample takes in a batch
	tokens  int // labels in an epoch
	pad     int32
}

// sampleSet is the samples to train and evaluate on, of one type.
type sampleSet[S any] struct {
	train data.Dataset[S]
	evals []named[data.Dataset[S]]
}

var errNothing = errors.New("--data has no tokens to learn")

// textsOf counts the samples of a set. measure returns the tokens that a sample takes in a batch,
// and the number of its labels in the loss.
func textsOf[S any](s sampleSet[S], measure func(S) (length, tokens int)) (*texts, error) {
	t := &texts{set: s, samples: s.train.Len(), evals: count(s.evals)}
	for i := range t.samples {
		x, err := s.train.At(i)
		if err != nil {
			return nil, err
		}
		length, tokens := measure(x)
		t.longest, t.tokens = max(t.longest, length), t.tokens+tokens
	}
	if t.tokens == 0 {
		return nil, misuse(errNothing)
	}
	return t, nil
}

// read reads and tokenises the data.
func (j *job) read() error {
	config, err := readConfig(j.model)
	if errors.Is(err, fs.ErrNotExist) {
		return misusef("--model %s: %w: want a folder with config.json, tokenizer.json and the weights", j.model, err)
	}
	if err != nil {
		return err
	}
	if err := j.fitContext(config); err != nil {
		return err
	}
	tokenizer, err := openTokenizer(j.model)
	if err != nil {
		return err
	}
	o := data.TextOptions{LearnPrompt: j.LearnPrompt, LastAnswer: j.LastAnswer}
	if id, ok := end(tokenizer, config); ok {
		o.EOS = &id
	}
	t, err := j.method().read(j, tokenizer, o)
	if err == nil {
		err = j.checkMetric() // of rewards that the data names
	}
	if errors.Is(err, errNothing) && len(j.DataWeights) > 0 && len(j.useless) == 0 {
		j.useless = append(j.useless, "--data-weights leave less than one record: use higher ones")
	}
	if errors.Is(err, errNothing) && len(j.useless) > 0 {
		return misusef("%w: %s", err, strings.Join(j.useless, "; "))
	}
	if err != nil {
		return err
	}
	t.pad, j.data = padding(tokenizer, config), t
	j.log.Info("data", "sequences", t.samples, "learned_tokens", t.tokens, "eval_sequences", t.evals)
	return nil
}

// fitContext limits sequences to the model's context, and records the size of its vocabulary.
func (j *job) fitContext(config *meta.Config) error {
	skeleton, err := meta.New(config, nil)
	if err != nil {
		return err
	}
	s, ok := skeleton.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return nil
	}
	if j.vocab = s.Vocab; s.Context > 0 && j.Sequence > s.Context {
		j.log.Info("sequences are cut to the model's context", "tokens", s.Context)
		j.Sequence = s.Context
	}
	return nil
}

// tokenize reads a file and omits records without a label in the loss. If cuts is set, it truncates
// long sequences.
func (j *job) tokenize(path string, tokenizer *data.Tokenizer, o data.TextOptions, cuts bool) (made[data.Sequence], error) {
	key, err := j.fileKey(path, cuts, o.LearnPrompt, o.LastAnswer, o.EOS != nil, endOf(o))
	if err != nil {
		return made[data.Sequence]{}, err
	}
	return makeSamples(j, path, key, sequenceCodec{}, func(emit func(data.Sequence) error) (report, error) {
		records, err := data.OpenJSONL(path)
		if err != nil {
			return report{}, misuse(err)
		}
		defer records.Close()
		cut, empty := 0, 0
		r, err := tokenized(j, path, records, func(r data.Record) (data.Sequence, []int32, error) {
			s, err := r.Tokenize(tokenizer, tokenizer, o)
			return s, s.IDs, err
		}, func(s data.Sequence) error {
			if len(s.IDs) > j.Sequence && cuts {
				s.IDs, s.Labels = s.IDs[:j.Sequence], s.Labels[:j.Sequence]
				cut++
			}
			if learned(s.Labels) == 0 {
				empty++
				return nil
			}
			return emit(s)
		})
		r.Cut, r.Empty = cut, empty
		return r, err
	})
}

// endOf returns the id of the token that ends texts, or 0.
func endOf(o data.TextOptions) int32 {
	if o.EOS == nil {
		return 0
	}
	return *o.EOS
}

// lines gives access to the records of a file.
type lines[R any] interface {
	data.Dataset[R]
	Where(i int) string
}

// tokenizedAtOnce is the number of records that are tokenised before their samples are emitted.
const tokenizedAtOnce = 4096

// tokenized calls f for the records of a file, in parallel, and emits their samples in order. f
// also returns the ids of a sample. tokenized skips and counts unusable records. It fails if it
// skips every record.
func tokenized[R, S any](j *job, path string, records lines[R], f func(R) (S, []int32, error), emit func(S) error) (r report, err error) {
	r.Of = records.Len()
	var reason error
	for from := 0; from < r.Of; from += tokenizedAtOnce {
		some, failed := make([]S, min(tokenizedAtOnce, r.Of-from)), make([]error, min(tokenizedAtOnce, r.Of-from))
		err := parallel(len(some), func(i int) error {
			var err error
			some[i], failed[i], err = tokenizeOne(j, path, records, from+i, f)
			return err
		})
		if err != nil {
			return r, err
		}
		for i, s := range some {
			if failed[i] != nil {
				reason = cmp.Or(reason, failed[i])
				r.Skipped++
			} else if err := emit(s); err != nil {
				return r, err
			}
		}
	}
	if reason != nil && r.Skipped == r.Of {
		return r, misusef("no record of %s can be used: %w", path, reason)
	}
	if reason != nil {
		r.First = reason.Error()
	}
	return r, nil
}

// tokenizeOne makes the sample of a record. It returns why the record is skipped, or an error that
// ends the run.
func tokenizeOne[R, S any](j *job, path string, records lines[R], i int, f func(R) (S, []int32, error)) (sample S, skipped, err error) {
	r, err := records.At(i)
	var ids []int32
	if err == nil {
		if sample, ids, err = f(r); err != nil {
			err = fmt.Errorf("%s: %s: %w", path, records.Where(i), err)
		}
	}
	if err != nil && j.StrictData {
		return sample, nil, misuse(err)
	}
	if err != nil {
		return sample, err, nil
	}
	if id := slices.Max(append([]int32{0}, ids...)); j.vocab > 0 && int(id) >= j.vocab {
		return sample, nil, fmt.Errorf("%s: %s: the tokenizer gives id %d, but the model has %d ids; use the tokenizer of this model", path, records.Where(i), id, j.vocab)
	}
	return sample, nil, nil
}

// parallel calls f for 0 … n-1 on all processors. If calls fail, the rest may not run, and parallel
// returns the error of the lowest failed number that ran.
func parallel(n int, f func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	failed := make([]error, workers)
	at := make([]int, workers)
	for w := range workers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if failed[w] = f(i); failed[w] != nil {
					at[w] = i
					next.Store(int64(n)) // stops the others
					return
				}
			}
		})
	}
	all.Wait()
	first := -1
	for w, err := range failed {
		if err != nil && (first < 0 || at[w] < at[first]) {
			first = w
		}
	}
	if first < 0 {
		return nil
	}
	return failed[first]
}

// learned counts the labels of a sequence in the loss. The first label does not count, because no
// token precedes it.
func learned(labels []int32) int {
	n := 0
	for i, l := range labels {
		if i > 0 && l != data.IgnoreLabel {
			n++
		}
	}
	return n
}

// labels counts the labels of a batch.
func labels(b data.TokenBatch) int {
	n := 0
	for i := range b.Rows {
		n += learned(b.Labels[i*b.Columns : (i+1)*b.Columns])
	}
	return n
}

// end returns the id of the token that ends a text.
func end(t *data.Tokenizer, config *meta.Config) (int32, bool) {
	if id, ok := t.Special("eos_token"); ok {
		return id, true
	}
	return token(config.Field("eos_token_id"))
}

// padding returns the id that pads rows. The loss ignores it, so any id will do.
func padding(t *data.Tokenizer, config *meta.Config) int32 {
	if id, ok := t.Special("pad_token"); ok {
		return id
	}
	if id, ok := token(config.Field("pad_token_id")); ok && id >= 0 {
		return id
	}
	return 0
}

// token returns the id in a field of the config. If the field is a list, it returns the first id.
func token(v any) (int32, bool) {
	switch v := v.(type) {
	case []any:
		if len(v) > 0 {
			return token(v[0])
		}
	case float64:
		return int32(v), true
	case interface{ Int64() (int64, error) }:
		n, err := v.Int64()
		return int32(n), err == nil
	}
	return 0, false
}
