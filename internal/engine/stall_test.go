package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

var errTooManyPasses = errors.New("the engine generates for readers that do not read")

// TestUnreadStreamsGiveTheirPlacesUp: unread streams held every place of the batch until
// their last token, and their events took memory without a bound.
func TestUnreadStreamsGiveTheirPlacesUp(t *testing.T) {
	const endless, batch = 1 << 20, 3
	for name, o := range map[string]struct {
		request engine.Request
		pages   int // of 4 tokens
	}{
		"places":   {engine.Request{}, 1 << 20},
		"pages":    {engine.Request{Params: sample.Params{Temperature: 1}}, 420}, // less than three stalled streams and a request need
		"n":        {engine.Request{N: 2}, 1 << 20},
		"logprobs": {engine.Request{LogProbs: true, TopLogProbs: 20}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			passes := 0
			m := &enginetest.Model{MaxLen: endless, Pages: o.pages}
			m.BeforePass = func(context.Context, []engine.Row) error {
				if passes++; passes > 20000 {
					return errTooManyPasses
				}
				return nil
			}
			e := engine.New(m, engine.Options{MaxBatch: batch})
			defer e.Close()
			var unread []*engine.Stream
			r := o.request
			r.MaxTokens, r.N = -1, max(r.N, 1)
			for i := range batch + 1 {
				r.Prompt, r.Seed = prompt(i, 5), uint64(i)
				unread = append(unread, submit(t, e, r))
			}
			asked := engine.Request{Prompt: prompt(9, 200), MaxTokens: 20}
			got, err := collect(submit(t, e, asked), 1)
			if err != nil {
				t.Fatal(err)
			}
			if want, _ := alone(t, m, e.Limit(), asked, 0); !slices.Equal(got[0].tokens, want) {
				t.Errorf("got %v, want %v", got[0].tokens, want)
			}
			checkUnread(t, m, unread, r)
		})
	}
}

// checkUnread reads streams on, after they have stalled, and compares them with r alone.
func checkUnread(t *testing.T, m *enginetest.Model, streams []*engine.Stream, r engine.Request) {
	t.Helper()
	const read = 900
	for i, s := range streams {
		tokens := make([][]int32, r.N)
		for range read {
			ev, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			tokens[ev.Choice] = append(tokens[ev.Choice], ev.Token)
		}
		s.Close()
		r.Prompt, r.Seed, r.MaxTokens = prompt(i, 5), uint64(i), read
		for c := range tokens {
			if want, _ := alone(t, m, 1<<20, r, c); !slices.Equal(tokens[c], want[:len(tokens[c])]) {
				t.Errorf("stream %d, choice %d: not the tokens that it has alone", i, c)
			}
		}
	}
}

// TestAStalledStreamKeepsItsPlaceWhileNoRequestWaits: the cached keys and values of a stream that its client does not
// read stay while no other request needs the place.
func TestAStalledStreamKeepsItsPlaceWhileNoRequestWaits(t *testing.T) {
	m := &enginetest.Model{MaxLen: 4096}
	e := engine.New(m, engine.Options{MaxBatch: 2})
	defer e.Close()
	s := submit(t, e, engine.Request{Prompt: prompt(1, 5), MaxTokens: 3000})
	got, err := collect(submit(t, e, engine.Request{Prompt: prompt(2, 5), MaxTokens: 2000}), 1) // until s has stalled
	if err != nil || len(got[0].tokens) != 2000 {
		t.Fatal(len(got[0].tokens), err)
	}
	if got, err = collect(s, 1); err != nil || len(got[0].tokens) != 3000 {
		t.Fatal(len(got[0].tokens), err)
	}
	if n := e.Stats().Preemptions; n != 0 {
		t.Errorf("got %d preemptions, want none", n)
	}
}
