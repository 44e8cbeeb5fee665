package finetune

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// texts is all data of a run as samples of its method.
type texts struct {
	set     any // the samples, a sampleSet of their type
	samples int // to train on
	evals   int // to evaluate on
	longest int // tokens that the longest sample has in a batch
	tokens  int // that are learned in an epoch
	pad     int32
}

// sampleSet is samples of one type.
type sampleSet[S any] struct {
	train data.Slice[S]
	evals []named[data.Slice[S]]
}

// textsOf counts the samples of a set. measure returns the tokens that one has in a batch, and those
// that are learned.
func textsOf[S any](s sampleSet[S], measure func(S) (length, tokens int)) (*texts, error) {
	t := &texts{set: s, samples: len(s.train), evals: count(s.evals)}
	for _, x := range s.train {
		length, tokens := measure(x)
		t.longest, t.tokens = max(t.longest, length), t.tokens+tokens
	}
	if t.tokens == 0 {
		return nil, misusef("--data has no tokens to learn")
	}
	return t, nil
}

// read makes sequences of the data.
func (j *job) read() error {
	tokenizer, err := openTokenizer(j.model)
	if err != nil {
		return err
	}
	config, err := readConfig(j.model)
	if err != nil {
		return err
	}
	if err := j.fitContext(config); err != nil {
		return err
	}
	o := data.TextOptions{LearnPrompt: j.LearnPrompt, LastAnswer: j.LastAnswer}
	if id, ok := end(tokenizer, config); ok {
		o.EOS = &id
	}
	t, err := j.method().read(j, tokenizer, o)
	if err != nil {
		return err
	}
	t.pad, j.data = padding(tokenizer, config), t
	j.log.Info("data", "sequences", t.samples, "learned_tokens", t.tokens, "eval_sequences", t.evals)
	return nil
}

// fitContext limits sequences to the model's context, and records the number of its ids.
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
		j.log.Info("sequences are cut to what the model takes", "tokens", s.Context)
		j.Sequence = s.Context
	}
	return nil
}

// tokenize reads a file and omits records without a label to learn. If asked, it cuts long
// sequences.
func (j *job) tokenize(path string, tokenizer *data.Tokenizer, o data.TextOptions, cuts bool) (data.Slice[data.Sequence], error) {
	records, err := data.OpenJSONL(path)
	if err != nil {
		return nil, misuse(err)
	}
	defer records.Close()
	sequences, err := tokenized(j, path, records, func(r data.Record) (data.Sequence, []int32, error) {
		s, err := r.Tokenize(tokenizer, tokenizer, o)
		return s, s.IDs, err
	})
	if err != nil {
		return nil, err
	}
	return j.usable(path, sequences, cuts), nil
}

// lines is a file of records.
type lines[R any] interface {
	data.Dataset[R]
	Where(i int) string
}

// tokenized makes samples of the records of a file, with the ids that they have. It leaves out records
// that cannot be used and says how many. It fails if all records failed.
func tokenized[R, S any](j *job, path string, records lines[R], f func(R) (S, []int32, error)) ([]S, error) {
	samples, failed := make([]S, records.Len()), make([]error, records.Len())
	err := parallel(len(samples), func(i int) error {
		r, err := records.At(i)
		var ids []int32
		if err == nil {
			if samples[i], ids, err = f(r); err != nil {
				err = fmt.Errorf("%s: %s: %w", path, records.Where(i), err)
			}
		}
		if err != nil && j.StrictData {
			return err
		}
		if failed[i] = err; err != nil {
			return nil
		}
		if id := slices.Max(append([]int32{0}, ids...)); j.vocab > 0 && int(id) >= j.vocab {
			return fmt.Errorf("%s: %s: the tokenizer gives id %d, but the model has %d ids; use the tokenizer of this model", path, records.Where(i), id, j.vocab)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []S
	var reason error
	for i, s := range samples {
		switch {
		case failed[i] == nil:
			all = append(all, s)
		case reason == nil:
			reason = failed[i]
		}
	}
	if reason != nil && len(all) == 0 {
		return nil, misusef("no record of %s can be used: %w", path, reason)
	}
	if reason != nil {
		j.log.Warn("records that cannot be used are skipped: --strict-data stops instead", "file", path, "skipped", len(samples)-len(all), "of", len(samples), "first", reason)
	}
	return all, nil
}

// usable leaves out sequences without a label to learn, and cuts long ones if asked.
func (j *job) usable(path string, sequences []data.Sequence, cuts bool) data.Slice[data.Sequence] {
	var all data.Slice[data.Sequence]
	var cut, empty int
	for _, s := range sequences {
		if len(s.IDs) > j.Sequence && cuts {
			s.IDs, s.Labels = s.IDs[:j.Sequence], s.Labels[:j.Sequence]
			cut++
		}
		if learned(s.Labels) == 0 {
			empty++
			continue
		}
		all = append(all, s)
	}
	if cut > 0 || empty > 0 {
		j.log.Warn("data", slog.String("file", path), slog.Int("cut", cut), slog.Int("without_a_label", empty))
	}
	return all
}

// parallel calls f for 0 … n-1 on all processors, and returns the error of the lowest
// number that it knows of.
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
					next.Store(int64(n)) // the others stop
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

// labels counts those of a batch.
func labels(b data.TokenBatch) int {
	n := 0
	for i := range b.Rows {
		n += learned(b.Labels[i*b.Columns : (i+1)*b.Columns])
	}
	return n
}

// end returns the token that ends a text.
func end(t *data.Tokenizer, config *meta.Config) (int32, bool) {
	if id, ok := t.Special("eos_token"); ok {
		return id, true
	}
	return token(config.Field("eos_token_id"))
}

// padding returns the id that fills rows. The loss ignores it, so any id will do.
func padding(t *data.Tokenizer, config *meta.Config) int32 {
	if id, ok := t.Special("pad_token"); ok {
		return id
	}
	if id, ok := token(config.Field("pad_token_id")); ok && id >= 0 {
		return id
	}
	return 0
}

// token returns a field that holds an id, or several of which the first counts.
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
