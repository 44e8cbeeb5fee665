package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// result is the result of one choice.
type result struct {
	tokens []int32
	events []engine.Event
	finish engine.Reason
}

// collect reads a stream to its end.
func collect(s *engine.Stream, n int) ([]result, error) {
	out := make([]result, n)
	for {
		ev, err := s.Next(context.Background())
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		r := &out[ev.Choice]
		r.events = append(r.events, ev)
		if ev.Token != engine.NoToken {
			r.tokens = append(r.tokens, ev.Token)
		}
		if ev.Finish != "" {
			r.finish = ev.Finish
		}
	}
}

// alone is what choice i of r must return on m, computed without an engine.
func alone(t interface{ Fatal(...any) }, m *enginetest.Model, limit int, r engine.Request, i int) (tokens []int32, why engine.Reason) {
	src, s := sample.NewSource(r.Seed, i), sample.New(m.Vocab(), "")
	all := slices.Clone(r.Prompt)
	for {
		if len(all) == limit || len(tokens) == r.MaxTokens {
			return tokens, engine.FinishLength
		}
		id, err := s.Next(&r.Params, &src, sample.Step{Prompt: r.Prompt, Generated: tokens}, m.After(all))
		if err != nil {
			t.Fatal(err)
		}
		all, tokens = append(all, id), append(tokens, id)
		if slices.Contains(r.Params.Stop, id) {
			return tokens, engine.FinishStop
		}
	}
}

func prompt(seed, n int) []int32 {
	p := make([]int32, n)
	for i := range p {
		p[i] = int32((seed*31 + i*7 + i*i) % 64)
	}
	return p
}

// submit fails the test on an error.
func submit(t *testing.T, e *engine.Engine, r engine.Request) *engine.Stream {
	t.Helper()
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// counted shuts e down and returns its counts: a pass is counted after its events.
func counted(t *testing.T, e *engine.Engine) engine.Stats {
	t.Helper()
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e.Stats()
}

func TestTokensAndReasons(t *testing.T) {
	m := &enginetest.Model{MaxLen: 40}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	first, _ := alone(t, m, e.Limit(), engine.Request{Prompt: prompt(1, 5), MaxTokens: 6}, 0)
	for name, r := range map[string]engine.Request{
		"greedy":           {Prompt: prompt(1, 5), MaxTokens: 6},
		"one token":        {Prompt: prompt(1, 5), MaxTokens: 1},
		"none":             {Prompt: prompt(1, 5)},
		"prompt of one":    {Prompt: prompt(1, 1), MaxTokens: 3},
		"to the context":   {Prompt: prompt(1, 5), MaxTokens: -1},
		"beyond it":        {Prompt: prompt(1, 39), MaxTokens: 1000},
		"stop id":          {Prompt: prompt(1, 5), MaxTokens: 20, Params: sample.Params{Stop: []int32{first[2]}}},
		"min tokens":       {Prompt: prompt(1, 5), MaxTokens: 20, Params: sample.Params{Stop: first[:3], MinTokens: 10}},
		"sampled":          {Prompt: prompt(2, 9), MaxTokens: 12, Seed: 5, Params: sample.Default()},
		"sampled, choices": {Prompt: prompt(3, 9), MaxTokens: 12, Seed: 5, N: 4, Params: sample.Default()},
		"penalties":        {Prompt: prompt(3, 9), MaxTokens: 12, Params: sample.Params{FrequencyPenalty: 2, NoRepeatNGram: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(submit(t, e, r), max(r.N, 1))
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range got {
				want, why := alone(t, m, e.Limit(), r, i)
				if !slices.Equal(g.tokens, want) || g.finish != why {
					t.Errorf("choice %d: %v (%s), want %v (%s)", i, g.tokens, g.finish, want, why)
				}
			}
		})
	}
}

func TestSubmitRefuses(t *testing.T) {
	e := engine.New(&enginetest.Model{MaxLen: 40, Pages: 5, PageTokens: 4}, engine.Options{})
	defer e.Close()
	var re *engine.RequestError
	for name, r := range map[string]engine.Request{
		"empty prompt":  {MaxTokens: 1},
		"negative id":   {Prompt: []int32{1, -1}},
		"id too large":  {Prompt: []int32{64}},
		"choices":       {Prompt: []int32{1}, N: -1},
		"logprobs":      {Prompt: []int32{1}, TopLogProbs: 65},
		"of the prompt": {Prompt: []int32{1}, TopPrompt: 65},
		"sample params": {Prompt: []int32{1}, Params: sample.Params{TopP: 2}},
	} {
		if _, err := e.Submit(context.Background(), r); !errors.As(err, &re) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var ce *engine.ContextError
	if _, err := e.Submit(context.Background(), engine.Request{Prompt: prompt(1, 20), MaxTokens: 1}); !errors.As(err, &ce) || ce.Limit != 20 {
		t.Errorf("a prompt as long as all pages: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := e.Submit(ctx, engine.Request{Prompt: []int32{1}}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// passes records the shape of every pass.
type passes struct {
	mu   sync.Mutex
	rows [][]int // tokens of each row
}

func (p *passes) note(_ context.Context, rows []engine.Row) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lens []int
	for _, r := range rows {
		lens = append(lens, len(r.Tokens))
	}
	p.rows = append(p.rows, lens)
	return nil
}

// A long prompt must not keep others from decoding: each pass has their token.
func TestDecodingContinuesDuringALongPrompt(t *testing.T) {
	var p passes
	m := &enginetest.Model{MaxLen: 4096, Pages: 8192}
	var e *engine.Engine
	var long *engine.Stream
	m.BeforePass = func(ctx context.Context, rows []engine.Row) error {
		if len(p.rows) == 3 {
			long, _ = e.Submit(context.Background(), engine.Request{Prompt: prompt(9, 1000), MaxTokens: 2})
		}
		return p.note(ctx, rows)
	}
	e = engine.New(m, engine.Options{ChunkTokens: 64, MaxBatchTokens: 256})
	defer e.Close()
	if _, err := collect(submit(t, e, engine.Request{Prompt: prompt(1, 300), MaxTokens: 30}), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := collect(long, 1); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.rows[0], []int{256}) || !slices.Equal(p.rows[1], []int{44}) {
		t.Errorf("a prompt alone went in chunks %v", p.rows[:2])
	}
	for i, rows := range p.rows[4:19] {
		if !slices.Equal(rows, []int{1, 64}) && len(rows) != 1 {
			t.Fatalf("pass %d computes %v, want a token and a chunk of 64", i+4, rows)
		}
	}
}

// While weights stream from the disk, a pass takes as long for one token as for many: prompts that
// wait are gathered into one pass, with those that decode.
func TestPromptsAreGatheredWhileWeightsStream(t *testing.T) {
	var p passes
	entered, release := make(chan struct{}), make(chan struct{})
	m := &enginetest.Model{MaxLen: 4096, Pages: 8192, Most: engine.Limits{Tokens: 4096, Sequences: 16, Streaming: true}}
	m.BeforePass = func(ctx context.Context, rows []engine.Row) error {
		if len(p.rows) == 0 {
			close(entered)
			<-release
		}
		return p.note(ctx, rows)
	}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	streams := []*engine.Stream{submit(t, e, engine.Request{Prompt: prompt(1, 2), MaxTokens: 3})}
	<-entered
	for i, n := range []int{2000, 900, 600, 7} {
		streams = append(streams, submit(t, e, engine.Request{Prompt: prompt(i+2, n), MaxTokens: 1}))
	}
	close(release)
	for _, s := range streams {
		if _, err := collect(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{1, 2000, 900, 600, 7}; !slices.Equal(p.rows[1], want) {
		t.Errorf("the second pass has %v tokens, want %v", p.rows[1], want)
	}
}

// TestShortPromptOvertakesALongOne: a short prompt does not wait for a long one, and does not starve it.
func TestShortPromptOvertakesALongOne(t *testing.T) {
	var p passes
	m := &enginetest.Model{BeforePass: p.note}
	entered, release := make(chan struct{}), make(chan struct{})
	first := true
	m.BeforePass = func(ctx context.Context, rows []engine.Row) error {
		if first {
			first = false
			close(entered)
			<-release
			return nil
		}
		return p.note(ctx, rows)
	}
	e := engine.New(m, engine.Options{MaxBatchTokens: 100})
	defer e.Close()
	a := submit(t, e, engine.Request{Prompt: prompt(1, 2), MaxTokens: 1})
	<-entered
	b := submit(t, e, engine.Request{Prompt: prompt(2, 400), MaxTokens: 1})
	c := submit(t, e, engine.Request{Prompt: prompt(3, 30), MaxTokens: 1})
	close(release)
	for _, s := range []*engine.Stream{a, b, c} {
		if _, err := collect(s, 1); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{70, 30}; !slices.Equal(p.rows[0], want) {
		t.Errorf("the first pass has %v tokens, want %v", p.rows[0], want)
	}
}

func TestBrokenLogitsFailTheRequest(t *testing.T) {
	e := engine.New(&enginetest.Model{Width: 4}, engine.Options{})
	defer e.Close()
	s := submit(t, e, engine.Request{Prompt: []int32{1, 2}, MaxTokens: 5, Params: sample.Params{Suppress: []int32{0, 1, 2, 3}}})
	if _, err := collect(s, 1); !errors.Is(err, sample.ErrNoCandidate) {
		t.Errorf("error %v", err)
	}
}

func TestChoicesShareThePrompt(t *testing.T) {
	var p passes
	m := &enginetest.Model{BeforePass: p.note, PageTokens: 4}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	r := engine.Request{Prompt: prompt(1, 42), N: 3, MaxTokens: 2, Params: sample.Default()}
	if _, err := collect(submit(t, e, r), 3); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.rows[0], []int{42}) || !slices.Equal(p.rows[1], []int{1, 2, 2}) {
		t.Errorf("passes %v: the prompt is computed more than once", p.rows)
	}
	s := submit(t, e, r)
	if _, err := collect(s, 3); err != nil || s.Cached() != 40 {
		t.Errorf("%d tokens cached, error %v", s.Cached(), err)
	}
}

// TestYoungestIsPreempted: when pages run out, the youngest sequence is preempted. It later continues with the same
// tokens.
func TestYoungestIsPreempted(t *testing.T) {
	m := &enginetest.Model{PageTokens: 4, Pages: 12}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	var requests []engine.Request
	var streams []*engine.Stream
	for i := range 4 {
		r := engine.Request{Prompt: prompt(i, 8), MaxTokens: 20, Seed: uint64(i), Params: sample.Default()}
		requests = append(requests, r)
		streams = append(streams, submit(t, e, r))
	}
	for i, s := range streams {
		got, err := collect(s, 1)
		want, _ := alone(t, m, e.Limit(), requests[i], 0)
		if err != nil || !slices.Equal(got[0].tokens, want) {
			t.Errorf("request %d: %v (%v), want %v", i, got[0].tokens, err, want)
		}
	}
	if st := counted(t, e); st.Preemptions == 0 || st.KV.Used != 0 {
		t.Errorf("%+v", st)
	}
}

func TestLogProbs(t *testing.T) {
	m := &enginetest.Model{PageTokens: 4}
	e := engine.New(m, engine.Options{MaxLogitRows: 3, MaxBatchTokens: 16})
	defer e.Close()
	warm := engine.Request{Prompt: prompt(1, 21), MaxTokens: 1}
	if _, err := collect(submit(t, e, warm), 1); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 3} {
		r := engine.Request{Prompt: prompt(1, 21), MaxTokens: n, LogProbs: true, PromptLogProbs: true, TopLogProbs: 2, TopPrompt: 2,
			Params: sample.Params{Temperature: 0.5, Suppress: []int32{3}}}
		got, err := collect(submit(t, e, r), 1)
		if err != nil {
			t.Fatal(err)
		}
		first := got[0].events[0]
		if len(first.Prompt) != 21 || first.Token != engine.NoToken {
			t.Fatalf("the first event is %+v", first)
		}
		s := sample.New(m.Vocab(), "")
		check := func(what string, before []int32, token int32, own float32, top []sample.LogProb) {
			wantOwn, wantTop, _ := s.LogProbs(nil, m.After(before), token, 2)
			if own != wantOwn || !slices.Equal(top, wantTop) {
				t.Errorf("%s: %v %v, want %v %v", what, own, top, wantOwn, wantTop)
			}
		}
		for i := 1; i < 21; i++ {
			check(fmt.Sprint("prompt ", i), r.Prompt[:i], r.Prompt[i], first.Prompt[i].LogProb, first.Prompt[i].Top)
			if got, want := int(first.Prompt[i].Rank), sample.Rank(m.After(r.Prompt[:i]), r.Prompt[i]); got != want {
				t.Errorf("prompt %d: got rank %d, want %d", i, got, want)
			}
		}
		for i, id := range got[0].tokens {
			ev := got[0].events[i+1]
			check(fmt.Sprint("token ", i), append(slices.Clone(r.Prompt), got[0].tokens[:i]...), id, ev.LogProb, ev.Top)
		}
		if len(got[0].tokens) != n {
			t.Errorf("%d tokens, want %d", len(got[0].tokens), n)
		}
	}
}

// TestASlowReaderStallsNoOther: a client that does not read its stream does not delay others.
func TestASlowReaderStallsNoOther(t *testing.T) {
	e := engine.New(&enginetest.Model{}, engine.Options{})
	defer e.Close()
	slow := submit(t, e, engine.Request{Prompt: prompt(1, 3), MaxTokens: 500})
	if got, err := collect(submit(t, e, engine.Request{Prompt: prompt(2, 3), MaxTokens: 600}), 1); err != nil || len(got[0].tokens) != 600 {
		t.Fatalf("%d tokens, error %v", len(got[0].tokens), err)
	}
	if got, err := collect(slow, 1); err != nil || len(got[0].tokens) != 500 {
		t.Fatalf("slow reader: %d tokens, error %v", len(got[0].tokens), err)
	}
}
