package main

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/data"
)

// dataFlags name the data and how to tokenise it.
type dataFlags struct {
	Data        []string `help:"Train on this JSONL file of texts, prompts or messages. Repeat for several." required:"" sep:"none" placeholder:"FILE.jsonl"`
	EvalData    string   `help:"Evaluate on this JSONL file." placeholder:"FILE.jsonl"`
	Sequence    int      `help:"Cut sequences to this many tokens." default:"512"`
	Pack        bool     `help:"Join texts into full sequences, for speed. Texts attend to each other."`
	LearnPrompt bool     `help:"Learn prompts and the messages of users, too."`
	LastAnswer  bool     `help:"Learn only the last answer of a conversation."`
	StrictData  bool     `help:"Stop at a record that cannot be used, instead of skipping it."`
}

// texts is all data of a run as token ids.
type texts struct {
	train, eval data.Slice[data.Sequence]
	pad         int32
	tokens      int // of train that are learned
}

// read makes sequences of the data.
func (j *job) read() error {
	tokenizer, err := data.OpenTokenizer(j.model)
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
	t := &texts{pad: padding(tokenizer, config)}
	for _, path := range j.Data {
		some, err := j.tokenize(path, tokenizer, o, !j.Pack)
		if err != nil {
			return err
		}
		t.train = append(t.train, some...)
	}
	if j.Pack {
		blocks, err := data.Pack(t.train, j.Sequence, data.PackOptions{})
		if err != nil {
			return err
		}
		t.train = blocks
	}
	for _, s := range t.train {
		t.tokens += learned(s.Labels)
	}
	if t.tokens == 0 {
		return cmdline.Misusef("--data has no tokens to learn")
	}
	if j.EvalData != "" {
		if t.eval, err = j.tokenize(j.EvalData, tokenizer, o, true); err != nil {
			return err
		}
	}
	j.data = t
	j.log.Info("data", "sequences", len(t.train), "learned_tokens", t.tokens, "eval_sequences", len(t.eval))
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
		return nil, cmdline.Misuse(err)
	}
	defer records.Close()
	sequences := make([]data.Sequence, records.Len())
	unusable := make([]error, records.Len())
	err = parallel(len(sequences), func(i int) error {
		r, err := records.At(i)
		if err == nil {
			if sequences[i], err = r.Tokenize(tokenizer, tokenizer, o); err != nil {
				err = fmt.Errorf("%s: line %d: %w", path, records.Line(i), err)
			}
		}
		if err != nil && j.StrictData {
			return err
		}
		if unusable[i] = err; err != nil {
			sequences[i] = data.Sequence{}
			return nil
		}
		if id := slices.Max(append([]int32{0}, sequences[i].IDs...)); j.vocab > 0 && int(id) >= j.vocab {
			return fmt.Errorf("%s: line %d: the tokenizer gives id %d, but the model has %d ids; use the tokenizer of this model", path, records.Line(i), id, j.vocab)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return j.usable(path, sequences, unusable, cuts)
}

// usable leaves out records that failed or have no label to learn, says how many, and cuts long
// sequences if asked. It fails if all records failed.
func (j *job) usable(path string, sequences []data.Sequence, failed []error, cuts bool) (data.Slice[data.Sequence], error) {
	var all data.Slice[data.Sequence]
	var cut, empty, skipped int
	var reason error
	for i, s := range sequences {
		if failed[i] != nil {
			if skipped++; reason == nil {
				reason = failed[i]
			}
			continue
		}
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
	if skipped > 0 && skipped == len(sequences) {
		return nil, cmdline.Misusef("no record of %s can be used: %w", path, reason)
	}
	if skipped > 0 {
		j.log.Warn("records that cannot be used are skipped: --strict-data stops instead", "file", path, "skipped", skipped, "of", len(sequences), "first", reason)
	}
	if cut > 0 || empty > 0 {
		j.log.Warn("data", slog.String("file", path), slog.Int("cut", cut), slog.Int("without_a_label", empty))
	}
	return all, nil
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
