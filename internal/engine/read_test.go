package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// A follower is a draft model that joins the states of an [enginetest.Model] whose texts it knows. It guesses what comes
// next if its sequence has all of the text but the first token, and something else if not. It reports tokens whose
// state is another token's, and pages that it shares without all tokens before them.
type follower struct {
	t       *testing.T
	of      *enginetest.Model
	pages   int // 0: any number
	slow    time.Duration
	texts   map[string][]int32 // by the model's state at their end
	follows map[string]int32
	cache   map[string]bool
	used    int
	read    int // tokens computed in passes without logits
	reused  int
	told    [2]int // guesses without and with all of the text
	out     followed
}

type followed struct {
	values [][]float32
	states [][]float32
}

func (f *followed) Row(i int) (int, []float32) { return min(len(f.values[i]), 1), f.values[i] }
func (f *followed) Hidden(i int) []float32     { return f.states[i] }

const followerPage = 4

func newFollower(t *testing.T, of *enginetest.Model, texts ...[]int32) *follower {
	f := &follower{t: t, of: of, texts: map[string][]int32{}, follows: map[string]int32{}, cache: map[string]bool{}}
	for _, text := range texts {
		for n := 1; n <= len(text); n++ {
			f.texts[fmt.Sprint(of.State(text[:n]))] = text[:n]
			if n < len(text) {
				f.follows[fmt.Sprint(text[:n])] = text[n]
			}
		}
	}
	return f
}

func (f *follower) Vocab() int            { return f.of.Vocab() }
func (f *follower) Context() int          { return f.of.Context() }
func (f *follower) Limits() engine.Limits { return engine.Limits{Tokens: 33} }
func (f *follower) Joins() int            { return 4 }
func (f *follower) KV() engine.KV {
	return engine.KV{PageTokens: followerPage, Pages: f.pages, Used: f.used}
}
func (f *follower) NewSequence(int) engine.Sequence { return &followerSequence{f: f} }

// followerSequence has the text up to its last token, where the last state was the model's.
type followerSequence struct {
	f      *follower
	salt   string
	tokens []int32
	text   []int32
	pages  int
	sealed bool
}

func (s *followerSequence) Len() int         { return len(s.tokens) }
func (s *followerSequence) Salt(salt string) { s.salt = salt }
func (s *followerSequence) Seal()            { s.sealed = true }

func (s *followerSequence) Reserve(n int) error {
	more := max((len(s.tokens)+n+followerPage-1)/followerPage-s.pages, 0)
	if s.f.pages > 0 && s.f.used+more > s.f.pages {
		return engine.ErrKVFull
	}
	s.pages, s.f.used = s.pages+more, s.f.used+more
	return nil
}

func (s *followerSequence) Reuse(tokens []int32) int {
	n := 0
	for n+followerPage < len(tokens) && s.f.cache[fmt.Sprint(s.salt, tokens[:n+followerPage])] {
		n += followerPage
	}
	if s.tokens = slices.Clone(tokens[:n]); s.Reserve(0) != nil {
		s.tokens, n = nil, 0
	}
	s.f.reused += n
	return n
}

func (s *followerSequence) Truncate(n int) int {
	s.tokens = s.tokens[:n]
	pages := (n + followerPage - 1) / followerPage
	s.f.used, s.pages = s.f.used-(s.pages-pages), pages
	return n
}

func (s *followerSequence) Free() {
	s.f.used -= s.pages
	s.pages = 0
}

func (f *follower) Forward(ctx context.Context, rows []engine.Row) (engine.Logits, error) {
	f.out = followed{}
	n := 0
	for _, r := range rows {
		s := r.Sequence.(*followerSequence)
		n += len(r.Tokens)
		if len(r.Before) != 4*len(r.Tokens) || len(s.tokens)+len(r.Tokens) > s.pages*followerPage || n > f.Limits().Tokens {
			f.t.Errorf("%d tokens with %d values of states in %d pages", len(r.Tokens), len(r.Before), s.pages)
			return nil, enginetest.ErrBadPass
		}
		for i, id := range r.Tokens {
			s.push(id, r.Before[4*i:][:4])
		}
		values := []float32(nil)
		if r.Logits == engine.LogitsLast {
			values = make([]float32, f.Vocab())
			next, all := f.follows[fmt.Sprint(s.text)], 0
			if len(s.tokens)+1 == len(s.text) {
				all = 1
			}
			values[(int(next)+1-all)%f.Vocab()] = 9
			f.told[all]++
		} else {
			f.read += len(r.Tokens)
		}
		f.out.values, f.out.states = append(f.out.values, values), append(f.out.states, []float32{-1, -1, -1, -1})
	}
	time.Sleep(f.slow * time.Duration(n))
	return &f.out, nil
}

// push adds a token behind the text at whose end the model has the given state, or behind a guess.
func (s *followerSequence) push(id int32, state []float32) {
	if state[0] >= 0 {
		text, ok := s.f.texts[fmt.Sprint(state)]
		if s.text = append(slices.Clone(text), id); !ok || s.f.texts[fmt.Sprint(s.f.of.State(s.text))] == nil {
			s.f.t.Errorf("token %d has the state of another one: of %v", id, text)
		}
	} else {
		s.text = append(slices.Clone(s.text), id)
	}
	if s.tokens = append(s.tokens, id); len(s.tokens)%followerPage == 0 && !s.sealed {
		if len(s.tokens)+1 != len(s.text) {
			s.f.t.Errorf("a page is shared that has %d tokens of %d ", len(s.tokens), len(s.text)-1)
		}
		s.f.cache[fmt.Sprint(s.salt, s.tokens)] = true
	}
}

// The texts of the tests have prompts of 90 tokens, of which the first 62 are the same in all.
func longRequests(n int) (all []engine.Request) {
	for i := range n {
		all = append(all, engine.Request{Prompt: slices.Concat(prompt(1, 62), prompt(2+i, 28)), MaxTokens: 40})
	}
	return all
}

// runAll returns the texts of requests, one after the other, or together: the first pass of an [enginetest.Model] then begins when
// all of them wait.
func runAll(t *testing.T, m engine.Model, o engine.Options, requests []engine.Request, together bool) (texts [][]int32, st engine.Stats) {
	t.Helper()
	submitted := make(chan struct{})
	if fake, ok := m.(*enginetest.Model); ok && together {
		fake.BeforePass = func(context.Context, []engine.Row) error { <-submitted; return nil }
	}
	e := engine.New(m, o)
	defer e.Close()
	var streams []*engine.Stream
	for i, r := range requests {
		streams = append(streams, submit(t, e, r))
		if together && i < len(requests)-1 {
			continue
		}
		if i == len(requests)-1 {
			close(submitted)
		}
		for k, s := range streams {
			got, err := collect(s, 1)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, slices.Concat(requests[i-len(streams)+1+k].Prompt, got[0].tokens))
		}
		streams = streams[:0]
	}
	return texts, counted(t, e)
}

// TestADraftModelReadsPrompts: a draft model that joins has each token of prompts with the state before it, in chunks, with
// prefixes that both models have or only one, and behind preemptions; answers are the same.
func TestADraftModelReadsPrompts(t *testing.T) {
	for name, c := range map[string]struct {
		options      engine.Options
		limits       engine.Limits
		pages        int // of the model
		room         int // pages of the draft model
		together     bool
		before       bool // the model has the prefix, the draft model has not
		uninformed   bool // some guesses lack tokens of the text
		reused, some bool // prefixes of the draft model are used again
	}{
		"at once":         {reused: true, some: true},
		"in chunks":       {options: engine.Options{MaxBatchTokens: 16}, reused: true, some: true},
		"in small chunks": {options: engine.Options{MaxBatchTokens: 17, ChunkTokens: 3}, together: true, some: true},
		"few states":      {limits: engine.Limits{States: 40}, options: engine.Options{MaxBatchTokens: 48}, uninformed: true},
		"preempted":       {pages: 75, together: true, some: true},
		"little room":     {room: 60, together: true, uninformed: true, some: true},
		"a prefix less":   {before: true, uninformed: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := longRequests(4)
			model := func() *enginetest.Model { return &enginetest.Model{MaxLen: 150, Pages: c.pages, Most: c.limits} }
			o := c.options
			o.DraftTokens = -1
			want, _ := runAll(t, model(), o, requests, c.together)
			m := model()
			f := newFollower(t, m, want...)
			f.pages = c.room
			if c.before {
				runAll(t, m, o, requests[:1], false)
			}
			o.DraftTokens, o.Draft, o.DraftFailed = 3, f, func(err error) { t.Error(err) }
			got, st := runAll(t, m, o, requests, c.together)
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("answers\n%v\nwant\n%v", got, want)
			}
			if (f.told[0] > 0) != c.uninformed || f.told[1] == 0 && c.some || f.told[0]+f.told[1] < 20 {
				t.Errorf("%d guesses with and %d without all of the text; want some without: %v", f.told[1], f.told[0], c.uninformed)
			}
			if !c.uninformed && st.AcceptedTokens < st.DraftTokens*3/4 {
				t.Errorf("%d of %d guesses were right", st.AcceptedTokens, st.DraftTokens)
			}
			if c.reused && f.reused < 3*52 || c.some && f.read == 0 {
				t.Errorf("%d tokens came from the cache, %d were read", f.reused, f.read)
			}
			if c.pages > 0 && st.Preemptions == 0 {
				t.Error("nothing was preempted")
			}
			if f.used != 0 {
				t.Errorf("%d pages of the draft model are still in use", f.used)
			}
		})
	}
}

// A draft model whose reading takes longer than its better guesses save stops to read.
func TestADraftModelThatReadsSlowly(t *testing.T) {
	requests := longRequests(12)
	for i := range requests {
		requests[i].Prompt[0] = int32(i) // nothing is cached
	}
	model := func() *enginetest.Model { return &enginetest.Model{MaxLen: 150, Delay: 200 * time.Microsecond} }
	want, _ := runAll(t, model(), engine.Options{DraftTokens: -1}, requests, false)
	m := model()
	f := newFollower(t, m, want...)
	f.slow = 5 * time.Millisecond
	got, _ := runAll(t, m, engine.Options{Draft: f}, requests, false)
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Error("other answers")
	}
	if all := len(requests) * 89; f.read == 0 || f.read > all/3 {
		t.Errorf("%d of %d tokens of prompts were read, want some of the first ones", f.read, all)
	}
}
