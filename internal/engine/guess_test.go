package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

// TestGuessedTokensChangeNoAnswer: events are those of an engine without guesses, for greedy and
// sampled choices, log-probabilities, constraints and ends, with little room for keys and values and
// with every limit of a pass; and fewer passes are needed. The text repeats itself, because its next
// token depends on the last two alone.
func TestGuessedTokensChangeNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		pages   int
		options engine.Options
		limits  engine.Limits
	}{
		"room":         {pages: 4096},
		"preemptions":  {pages: 40},
		"small passes": {pages: 90, options: engine.Options{MaxBatch: 3, MaxBatchTokens: 5, MaxLogitRows: 6}},
		"limits":       {pages: 90, limits: engine.Limits{Tokens: 7, Sequences: 4, LogitRows: 6}},
		"by prompts":   {pages: 90, options: engine.Options{MaxBatch: 3}, limits: engine.Limits{Tokens: 9, LogitRows: 6, Streaming: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var all [2][]string
			var passes [2]int
			for k, tokens := range []int{5, -1} {
				m := &enginetest.Model{Pages: c.pages, MaxLen: 120, Most: c.limits, Memory: 2, Width: 12}
				begin := make(chan struct{})
				m.BeforePass = func(context.Context, []engine.Row) error { <-begin; passes[k]++; return nil }
				o := c.options
				o.DraftTokens = tokens
				e := engine.New(m, o)
				var streams []*engine.Stream
				for i := range 8 {
					streams = append(streams, submit(t, e, guessable(i)))
				}
				close(begin)
				for i, s := range streams {
					results, err := collect(s, 1+i%2)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range results {
						var text string
						for _, ev := range r.events {
							text += fmt.Sprintf("%d %x %v %s;", ev.Token, ev.LogProb, ev.Top, ev.Finish)
						}
						all[k] = append(all[k], text)
					}
				}
				st := counted(t, e)
				e.Close()
				if k == 0 && (st.AcceptedTokens == 0 || st.AcceptedTokens == st.DraftTokens || st.DraftTokens > 5*st.Drafts) {
					t.Errorf("%d guesses in %d passes of a choice, %d right: want some right, some wrong, at most 5 a pass", st.DraftTokens, st.Drafts, st.AcceptedTokens)
				}
			}
			if !slices.Equal(all[0], all[1]) {
				for i := range all[0] {
					if all[0][i] != all[1][i] {
						t.Errorf("with guesses %s\nwithout %s", all[0][i], all[1][i])
					}
				}
			}
			if passes[0] >= passes[1] {
				t.Errorf("%d passes with guesses, %d without", passes[0], passes[1])
			}
		})
	}
}

// guessable is request i of a test, of a kind of its own.
func guessable(i int) engine.Request {
	params := []sample.Params{{}, {Temperature: 0.2}, {FrequencyPenalty: 0.1}, {Stop: []int32{8, 9, 49}, MinTokens: 9}, {NoRepeatNGram: 9}}
	r := engine.Request{Prompt: narrow(prompt(i, 5), 12), MaxTokens: 50 + 5*i, N: 1 + i%2, Seed: uint64(i), Params: params[i%len(params)],
		LogProbs: i%3 == 0, TopLogProbs: i % 3, PromptLogProbs: i == 4}
	if i%4 == 1 {
		r.Constrain = func(choice int) engine.Constraint { return &track{make([]uint64, 1), int32(choice), 12} }
	}
	return r
}

func narrow(p []int32, width int32) []int32 {
	for i := range p {
		p[i] %= width
	}
	return p
}

// TestAPredictionIsGuessed: tokens of a prediction are guessed from its beginning on, and again after a place where the
// answer differs from it. The accepted ones are counted, and the answer is that without a prediction.
func TestAPredictionIsGuessed(t *testing.T) {
	m := &enginetest.Model{}
	e := engine.New(m, engine.Options{DraftTokens: 5})
	defer e.Close()
	r := engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 60}
	want, _ := alone(t, m, e.Limit(), r, 0)
	r.Prediction = slices.Clone(want)
	r.Prediction[20] = (want[20] + 1) % 64
	r.Prediction = slices.Delete(r.Prediction, 40, 42)
	s := submit(t, e, r)
	got, err := collect(s, 1)
	if err != nil || !slices.Equal(got[0].tokens, want) {
		t.Fatalf("%v (%v), want %v", got[0].tokens, err, want)
	}
	accepted, rejected := s.Predicted()
	if st := counted(t, e); accepted < 40 || rejected == 0 || st.AcceptedTokens < int64(accepted) {
		t.Errorf("%d tokens of the prediction accepted, %d rejected; %d guesses right", accepted, rejected, st.AcceptedTokens)
	}
	r.Prediction = []int32{64}
	if _, err := e.Submit(context.Background(), r); err == nil {
		t.Error("a prediction outside the vocabulary is accepted")
	}
}

// TestGuessesTookMemoryWithoutABound: each of a thousand choices had a table of 128 KiB.
func TestGuessesTookMemoryWithoutABound(t *testing.T) {
	const choices = 300
	e := engine.New(&enginetest.Model{Memory: 1, Width: 4}, engine.Options{MaxBatch: choices, MaxLogitRows: 2 * choices, DraftTokens: 1})
	defer e.Close()
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	if _, err := collect(submit(t, e, engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 30, N: choices}), choices); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&b)
	if n := (b.TotalAlloc - a.TotalAlloc) >> 20; n > 16 {
		t.Errorf("%d choices allocated %d MiB, want 8 and a little", choices, n)
	}
	if st := counted(t, e); st.AcceptedTokens == 0 {
		t.Error("no guess was right")
	}
}

// TestGuessesAreNoPromptTokens: a pass that verifies guesses does not count as a part of a prompt in metrics.
func TestGuessesAreNoPromptTokens(t *testing.T) {
	m := &enginetest.Model{Memory: 1, Width: 4}
	e := engine.New(m, engine.Options{DraftTokens: 8})
	defer e.Close()
	got, err := collect(submit(t, e, engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 60}), 1)
	if err != nil || len(got[0].tokens) != 60 {
		t.Fatalf("%d tokens, %v", len(got[0].tokens), err)
	}
	if st := counted(t, e); st.PromptTokens != 3 || st.GeneratedTokens != 60 || st.AcceptedTokens < 30 {
		t.Errorf("%d tokens of the prompt, %d generated, %d of them guessed; want 3, 60 and most", st.PromptTokens, st.GeneratedTokens, st.AcceptedTokens)
	}
}
