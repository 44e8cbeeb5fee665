package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

type generateFile struct {
	Model  string         `json:"model"`
	Tokens []string       `json:"token_table"`
	Cases  []generateCase `json:"cases"`
}

type generateCase struct {
	Name     string          `json:"name"`
	Prompt   []int32         `json:"input_ids"`
	Options  generateOptions `json:"options"`
	IDs      []int32         `json:"expected_ids"`
	Text     *string         `json:"expected_text"`
	Matched  *string         `json:"matched"`
	LogProbs []struct {
		Chosen float64      `json:"chosen"`
		Top    [][2]float64 `json:"top"`
	} `json:"logprobs"`
	Finish   string `json:"finish_reason"`
	Optional bool   `json:"optional"`
}

// generateOptions are transformers' and OpenAI's, under their names.
type generateOptions struct {
	MaxNewTokens      *int      `json:"max_new_tokens"`
	MaxLength         *int      `json:"max_length"`
	MinNewTokens      int       `json:"min_new_tokens"`
	EOS               ids       `json:"eos_token_id"`
	RepetitionPenalty float64   `json:"repetition_penalty"`
	NoRepeatNGram     int       `json:"no_repeat_ngram_size"`
	Suppress          []int32   `json:"suppress_tokens"`
	SequenceBias      [][2]any  `json:"sequence_bias"`
	Presence          float64   `json:"presence_penalty"`
	Frequency         float64   `json:"frequency_penalty"`
	BadWords          [][]int32 `json:"bad_words_ids"`
	LogProbs          *int      `json:"logprobs"`
	Stop              []string  `json:"stop"`
	Beams             int       `json:"num_beams"`
}

// ids is a number, a list of them, or null.
type ids []int32

func (l *ids) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) || bytes.Equal(b, []byte("null")) {
		return json.Unmarshal(b, (*[]int32)(l))
	}
	*l = make(ids, 1)
	return json.Unmarshal(b, &(*l)[0])
}

// UnmarshalJSON refuses options that the test does not know.
func (o *generateOptions) UnmarshalJSON(b []byte) error {
	type plain generateOptions
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(o))
}

// beyond is why a case is not run: beam search is not offered.
func (o *generateOptions) beyond() bool { return o.Beams > 1 }

func (c *generateCase) request() engine.Request {
	o := &c.Options
	r := engine.Request{Prompt: c.Prompt, MaxTokens: -1}
	switch {
	case o.MaxNewTokens != nil:
		r.MaxTokens = *o.MaxNewTokens
	case o.MaxLength != nil:
		r.MaxTokens = *o.MaxLength - len(c.Prompt)
	}
	r.Params = sample.Params{RepetitionPenalty: o.RepetitionPenalty, NoRepeatNGram: o.NoRepeatNGram,
		PresencePenalty: o.Presence, FrequencyPenalty: o.Frequency,
		Suppress: o.Suppress, Stop: o.EOS, MinTokens: o.MinNewTokens}
	for _, b := range o.SequenceBias {
		r.Params.Bias = append(r.Params.Bias, sample.Bias{ID: int32(b[0].(float64)), Value: float32(b[1].(float64))})
	}
	for _, w := range o.BadWords {
		if len(w) != 1 || !slices.Contains(o.EOS, w[0]) { // the end of the text cannot be a bad word
			r.Params.BadWords = append(r.Params.BadWords, w)
		}
	}
	if o.LogProbs != nil {
		r.LogProbs, r.TopLogProbs = true, *o.LogProbs
	}
	return r
}

// outcome is the result that a client of the text layer sees.
type outcome struct {
	events  []engine.Event
	text    string
	matched string
	finish  string
}

// run reads the stream as the text layer does: a stop string ends the choice with the
// token that completes it, and the text before the earliest one.
func (c *generateCase) run(s *engine.Stream, table []string) (o outcome, err error) {
	for {
		ev, err := s.Next(context.Background())
		if err == io.EOF {
			return o, nil
		}
		if err != nil {
			return o, err
		}
		o.events = append(o.events, ev)
		o.finish = string(ev.Finish)
		if len(c.Options.Stop) == 0 {
			continue
		}
		o.text += table[ev.Token]
		if at, stop := earliest(o.text, c.Options.Stop); at >= 0 {
			o.text, o.matched, o.finish = o.text[:at], stop, "stop"
			s.Stop(0)
			_, err := s.Next(context.Background())
			if err != io.EOF {
				return o, fmt.Errorf("after Stop: %v", err)
			}
			return o, nil
		}
	}
}

// earliest finds the stop string that begins first in text.
func earliest(text string, stops []string) (at int, stop string) {
	at = -1
	for _, s := range stops {
		if i := strings.Index(text, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}

func (c *generateCase) check(t *testing.T, o outcome) {
	var got []int32
	for _, ev := range o.events {
		if ev.Token != engine.NoToken {
			got = append(got, ev.Token)
		}
	}
	if !slices.Equal(got, c.IDs) || o.finish != c.Finish {
		t.Errorf("ids %v (%s), want %v (%s)", got, o.finish, c.IDs, c.Finish)
	}
	if c.Text != nil && o.text != *c.Text {
		t.Errorf("text %q, want %q", o.text, *c.Text)
	}
	if c.Text != nil && c.Matched != nil && o.matched != *c.Matched {
		t.Errorf("stopped by %q, want %q", o.matched, *c.Matched)
	}
	near := func(a float32, b float64) bool { return math.Abs(float64(a)-b) <= 2e-4+2e-4*math.Abs(b) }
	for i, want := range c.LogProbs {
		if i >= len(o.events) {
			break
		}
		ev := o.events[i]
		if !near(ev.LogProb, want.Chosen) || len(ev.Top) != len(want.Top) {
			t.Errorf("token %d: log-probability %v and %d others, want %v and %d", i, ev.LogProb, len(ev.Top), want.Chosen, len(want.Top))
			continue
		}
		for j, l := range ev.Top {
			if l.ID != int32(want.Top[j][0]) || !near(l.LogProb, want.Top[j][1]) {
				t.Errorf("token %d, rank %d: %v, want %v", i, j, l, want.Top[j])
			}
		}
	}
}

// openModel binds the checkpoint in dir, in float32 throughout, with memory for
// kvTokens; nil if its architecture is not in meta's table.
func openModel(t *testing.T, dir string, kvTokens int) *dispatch.Model {
	t.Helper()
	config, err := meta.ReadConfigFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(meta.Architectures(), config.ModelType) {
		return nil
	}
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, KVTokens: kvTokens})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestGoldenGenerate(t *testing.T) {
	n := 0
	for _, file := range golden.Glob(t, "infer/generate/*.json") {
		var f generateFile
		golden.JSON(t, file, &f)
		longest := 0
		for i := range f.Cases {
			r := f.Cases[i].request()
			longest = max(longest, len(r.Prompt)+r.MaxTokens)
		}
		// Memory for a few of them at a time: some are preempted and recomputed.
		m := openModel(t, golden.Unpacked(t, golden.Path(t, "infer", filepath.FromSlash(f.Model))), 4*longest)
		if m == nil {
			continue
		}
		e := engine.New(engine.ForDispatch(m), engine.Options{MaxBatchTokens: 32, ChunkTokens: 7})
		t.Cleanup(e.Close)
		streams := make([]*engine.Stream, len(f.Cases))
		for i := range f.Cases { // all at once: they share batches
			if c := &f.Cases[i]; !c.Options.beyond() {
				streams[i] = submit(t, e, c.request())
			}
		}
		for i, s := range streams {
			if s == nil {
				continue
			}
			n++
			t.Run(f.Cases[i].Name, func(t *testing.T) {
				o, err := f.Cases[i].run(s, f.Tokens)
				if err != nil {
					t.Fatal(err)
				}
				f.Cases[i].check(t, o)
			})
		}
	}
	golden.Count(t, "infer/generate", n)
}

// All prompts of a model at once, in small chunks, with memory for a few: the greedy
// continuations are those of each alone, with guesses and without.
func TestGoldenModelsBatched(t *testing.T) {
	n := 0
	right, wrong := int64(0), int64(0) // guesses
	defer func() {
		if n > 20 && (right == 0 || wrong == 0) { // a few fresh models may have no right guess
			t.Errorf("%d guesses were right and %d wrong, want both", right, wrong)
		}
	}()
	for g := range golden.Models(t) {
		longest := 0
		for _, p := range g.Prompts {
			longest = max(longest, len(p.IDs)+len(p.Greedy))
		}
		m := openModel(t, g.Dir(), 2*longest)
		if m == nil {
			continue
		}
		n++
		t.Run(g.Name(), func(t *testing.T) {
			for _, guesses := range []int{-1, 3} {
				e := engine.New(engine.ForDispatch(m), engine.Options{MaxBatchTokens: 24, ChunkTokens: 5, DraftTokens: guesses})
				var streams []*engine.Stream
				for _, p := range g.Prompts {
					streams = append(streams, submit(t, e, engine.Request{Prompt: p.IDs, MaxTokens: len(p.Greedy), N: 2}))
				}
				for i, s := range streams {
					got, err := collect(s, 2)
					for c := range got {
						if err != nil || !slices.Equal(got[c].tokens, g.Prompts[i].Greedy) {
							t.Errorf("%d guesses, prompt %d, choice %d: %v (%v), want %v", guesses, i, c, got[c].tokens, err, g.Prompts[i].Greedy)
						}
					}
				}
				st := counted(t, e)
				right += st.AcceptedTokens
				wrong += st.DraftTokens - st.AcceptedTokens
				e.Close()
			}
		})
	}
	golden.Count(t, "infer/models (batched)", n)
}
