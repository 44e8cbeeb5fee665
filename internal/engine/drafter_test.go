package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// answers are the events of eight requests at once, as text.
func answers(t *testing.T, m *enginetest.Model, o engine.Options) (all []string, st engine.Stats) {
	t.Helper()
	begin := make(chan struct{})
	m.BeforePass = func(context.Context, []engine.Row) error { <-begin; return nil }
	e := engine.New(m, o)
	defer e.Close()
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
			var text strings.Builder
			for _, ev := range r.events {
				fmt.Fprintf(&text, "%d %x %v %s;", ev.Token, ev.LogProb, ev.Top, ev.Finish)
			}
			all = append(all, text.String())
		}
	}
	return all, counted(t, e)
}

// TestADraftModelChangesNoAnswer: whatever a draft model guesses, and whether it has room, takes all in
// one pass, knows all ids, or fails.
func TestADraftModelChangesNoAnswer(t *testing.T) {
	want, _ := answers(t, &enginetest.Model{MaxLen: 120, Width: 12}, engine.Options{DraftTokens: -1})
	broken := errors.New("disk on fire")
	for name, c := range map[string]struct {
		draft enginetest.Model
		fails int // the pass of the draft model that fails
	}{
		"the same":       {draft: enginetest.Model{MaxLen: 120, Width: 12}},
		"another":        {draft: enginetest.Model{MaxLen: 120, Width: 12, Memory: 2}},
		"more ids":       {draft: enginetest.Model{MaxLen: 120, Width: 20, Memory: 2}},
		"fewer ids":      {draft: enginetest.Model{MaxLen: 120, Width: 9, Memory: 2}},
		"little room":    {draft: enginetest.Model{MaxLen: 120, Width: 12, Pages: 20}},
		"small passes":   {draft: enginetest.Model{MaxLen: 120, Width: 12, Most: engine.Limits{Tokens: 3, Sequences: 2, LogitRows: 2}}},
		"a short memory": {draft: enginetest.Model{MaxLen: 60, Width: 12}},
		"failing":        {draft: enginetest.Model{MaxLen: 120, Width: 12}, fails: 9},
	} {
		t.Run(name, func(t *testing.T) {
			var failed []error
			passes := 0
			d := &c.draft
			d.BeforePass = func(context.Context, []engine.Row) error {
				if passes++; passes == c.fails {
					return broken
				}
				return nil
			}
			o := engine.Options{DraftTokens: 4, MaxLogitRows: 40, Draft: d, DraftFailed: func(err error) { failed = append(failed, err) }}
			got, st := answers(t, &enginetest.Model{MaxLen: 120, Width: 12}, o)
			if !slices.Equal(got, want) {
				t.Error("answers differ from those without guesses")
			}
			if (c.fails > 0) != (len(failed) == 1 && errors.Is(failed[0], broken)) {
				t.Errorf("failures %v", failed)
			}
			if st.AcceptedTokens == 0 || st.AcceptedTokens == st.DraftTokens {
				t.Errorf("%d of %d guesses were right, want some", st.AcceptedTokens, st.DraftTokens)
			}
			if c.fails > 0 && passes != c.fails {
				t.Errorf("%d passes of a draft model that failed in pass %d", passes, c.fails)
			}
			if used := d.KV().Used; used != 0 {
				t.Errorf("%d pages of the draft model are still in use", used)
			}
		})
	}
}

// A draft model that is the model itself guesses all tokens.
func TestAPerfectDraftModel(t *testing.T) {
	e := engine.New(&enginetest.Model{}, engine.Options{DraftTokens: 4, Draft: &enginetest.Model{}})
	defer e.Close()
	got, err := collect(submit(t, e, engine.Request{Prompt: []int32{1, 2, 3}, MaxTokens: 101}), 1)
	if err != nil || len(got[0].tokens) != 101 {
		t.Fatalf("%d tokens, %v", len(got[0].tokens), err)
	}
	if st := counted(t, e); st.Drafts != 20 || st.AcceptedTokens != 80 {
		t.Errorf("%d guesses right in %d passes, want 80 in 20", st.AcceptedTokens, st.Drafts)
	}
}

// Where guessing takes as long as the pass itself, auto does not ask the draft model for long.
func TestASlowDraftModelIsNotAsked(t *testing.T) {
	passes := 0
	d := &enginetest.Model{Width: 64}
	d.BeforePass = func(context.Context, []engine.Row) error { passes++; return nil }
	e := engine.New(&enginetest.Model{}, engine.Options{Draft: d})
	defer e.Close()
	if _, err := collect(submit(t, e, engine.Request{Prompt: []int32{1}, MaxTokens: 2, LogProbs: true}), 1); err != nil {
		t.Fatal(err)
	}
	if passes != 0 {
		t.Errorf("%d passes before a pass without guesses was measured", passes)
	}
}

// TestADraftModelReadEachPromptForFewTokens: a draft model computed the prompt of each request, whatever that took. One that
// takes as long for a prompt as the model for all tokens of the answer reads what tells how long it takes, and little more.
func TestADraftModelReadEachPromptForFewTokens(t *testing.T) {
	const requests, length = 12, 100
	read := 0
	d := &enginetest.Model{}
	d.BeforePass = func(_ context.Context, rows []engine.Row) error {
		for i := range rows {
			read += len(rows[i].Tokens)
			time.Sleep(time.Duration(len(rows[i].Tokens)) * 2 * time.Millisecond)
		}
		return nil
	}
	m := &enginetest.Model{}
	m.BeforePass = func(context.Context, []engine.Row) error { time.Sleep(4 * time.Millisecond); return nil }
	e := engine.New(m, engine.Options{Draft: d})
	defer e.Close()
	for i := range requests {
		if _, err := collect(submit(t, e, engine.Request{Prompt: prompt(i, length), MaxTokens: 12}), 1); err != nil {
			t.Fatal(err)
		}
	}
	if read == 0 || read > length {
		t.Errorf("the draft model has computed %d tokens for %d prompts of %d, want a part of the first prompt", read, requests, length)
	}
}
