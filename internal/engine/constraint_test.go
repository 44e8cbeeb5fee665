package engine_test

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

// rule allows a quarter of the ids, which depends on all ids accepted before. It notes what the
// engine does with it.
type rule struct {
	choice   int
	words    []uint64
	accepted []int32
	masks    int
	misuse   string
}

func newRule(choice, vocab int) *rule {
	return &rule{choice: choice, words: make([]uint64, (vocab+63)/64)}
}

// allows reports whether id may follow before.
func allows(choice int, before []int32, id int32) bool {
	sum := int32(choice)
	for _, b := range before {
		sum = sum*5 + b
	}
	return (sum+id)&3 == 0
}

func (r *rule) Mask() []uint64 {
	if r.masks++; r.masks != len(r.accepted)+1 {
		r.misuse = "Mask is not called once a token"
	}
	clear(r.words)
	for id := range int32(len(r.words) * 64) {
		if allows(r.choice, r.accepted, id) {
			r.words[id>>6] |= 1 << (id & 63)
		}
	}
	return r.words
}

func (r *rule) Accept(id int32) error {
	if r.masks != len(r.accepted)+1 {
		r.misuse = "Accept is called without Mask"
	}
	r.accepted = append(r.accepted, id)
	return nil
}

// constrained is what choice i of r must return on m under its rule, without an engine.
func constrained(t *testing.T, m *enginetest.Model, r engine.Request, i int) (tokens []int32) {
	t.Helper()
	src, s, law := sample.NewSource(r.Seed, i), sample.New(m.Vocab(), ""), newRule(i, m.Vocab())
	for len(tokens) < r.MaxTokens {
		step := sample.Step{Prompt: r.Prompt, Generated: tokens, Mask: law.Mask()}
		id, err := s.Next(&r.Params, &src, step, m.After(slices.Concat(r.Prompt, tokens)))
		if err != nil || law.Accept(id) != nil {
			t.Fatal(err)
		}
		if tokens = append(tokens, id); slices.Contains(r.Params.Stop, id) {
			break
		}
	}
	return tokens
}

// TestConstraintsHoldInBatchesAndAfterPreemption: only allowed ids come out, each choice has a
// constraint of its own, and each token is accepted once and in order.
func TestConstraintsHoldInBatchesAndAfterPreemption(t *testing.T) {
	m := &enginetest.Model{Pages: 24, MaxLen: 64}
	begin := make(chan struct{})
	m.BeforePass = func(context.Context, []engine.Row) error { <-begin; return nil }
	e := engine.New(m, engine.Options{MaxBatch: 5})
	defer e.Close()
	params := []sample.Params{{}, {Temperature: 1}, {Temperature: 0.8, TopK: 9, TopP: 0.9, Stop: []int32{8, 9, 10, 11}}}
	rules := make([][]*rule, 6)
	var requests []engine.Request
	var streams []*engine.Stream
	for k := range rules {
		r := engine.Request{Prompt: prompt(k, 5), MaxTokens: 30, N: 1 + k%3, Seed: uint64(k), Params: params[k%len(params)]}
		r.Constrain = func(choice int) engine.Constraint {
			rules[k] = append(rules[k], newRule(choice, m.Vocab()))
			return rules[k][choice]
		}
		requests = append(requests, r)
		streams = append(streams, submit(t, e, r))
	}
	free := submit(t, e, engine.Request{Prompt: prompt(9, 5), MaxTokens: 30, Seed: 9})
	close(begin)
	for k, s := range streams {
		got, err := collect(s, requests[k].N)
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range got {
			if want := constrained(t, m, requests[k], i); !slices.Equal(g.tokens, want) {
				t.Errorf("request %d, choice %d: got %v, want %v", k, i, g.tokens, want)
			}
			for at, id := range g.tokens {
				if !allows(i, g.tokens[:at], id) {
					t.Errorf("request %d, choice %d: id %d at %d is not allowed", k, i, id, at)
				}
			}
			if law := rules[k][i]; !slices.Equal(law.accepted, g.tokens) || law.misuse != "" {
				t.Errorf("request %d, choice %d: accepted %v, want %v %s", k, i, law.accepted, g.tokens, law.misuse)
			}
		}
	}
	got, err := collect(free, 1)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := alone(t, m, e.Limit(), engine.Request{Prompt: prompt(9, 5), MaxTokens: 30, Seed: 9}, 0)
	if !slices.Equal(got[0].tokens, want) {
		t.Errorf("the request without a constraint: got %v, want %v", got[0].tokens, want)
	}
	if e.Stats().Preemptions == 0 {
		t.Error("nothing was preempted: the test shows nothing")
	}
}

// fixed is a constraint with one mask.
type fixed struct {
	words []uint64
	err   error
}

func (f fixed) Mask() []uint64     { return f.words }
func (f fixed) Accept(int32) error { return f.err }

// TestAConstraintThatCannotGoOnFailsItsRequestAlone: the request fails if its constraint does, and the others go on.
func TestAConstraintThatCannotGoOnFailsItsRequestAlone(t *testing.T) {
	refused := errors.New("no such document")
	m := &enginetest.Model{Width: 100}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	for name, c := range map[string]struct {
		constraint fixed
		want       string // of the error; "" for none
	}{
		"no id":      {fixed{words: make([]uint64, 2)}, "no token is allowed"},
		"too short":  {fixed{words: []uint64{1}}, "mask of 1 words"},
		"empty":      {fixed{words: []uint64{}}, "mask of 0 words"},
		"rejected":   {fixed{err: refused}, "no such document"},
		"everything": {fixed{}, ""},
		"one id":     {fixed{words: []uint64{0, 1 << 5}}, ""},
		"beyond":     {fixed{words: []uint64{0, 1<<5 | 1<<60}}, ""},
	} {
		r := engine.Request{Prompt: prompt(1, 3), MaxTokens: 4, Constrain: func(int) engine.Constraint { return c.constraint }}
		beside := submit(t, e, engine.Request{Prompt: prompt(2, 3), MaxTokens: 4})
		got, err := collect(submit(t, e, r), 1)
		if c.want == "" && (err != nil || len(got[0].tokens) != 4) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, error %v, want %q", name, got[0].tokens, err, c.want)
		}
		if words := c.constraint.words; err == nil && words != nil {
			for _, id := range got[0].tokens {
				if words[id>>6]&bits.RotateLeft64(1, int(id&63)) == 0 {
					t.Errorf("%s: got id %d", name, id)
				}
			}
		}
		if _, err := collect(beside, 1); err != nil {
			t.Errorf("%s: the request beside it: %v", name, err)
		}
	}
}

// TestAConstraintCostsNoAllocationPerToken: neither a request with a constraint nor one without allocates per token.
func TestAConstraintCostsNoAllocationPerToken(t *testing.T) {
	m := &enginetest.Model{PageTokens: 1 << 14, MaxLen: 1 << 14, Pages: 8}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	r := engine.Request{Prompt: prompt(1, 8), MaxTokens: 4000, Params: sample.Params{Temperature: 1},
		Constrain: func(int) engine.Constraint { return fixed{words: []uint64{0xffff}} }}
	allocationsAfter100(t, e, r)
	if n := allocationsAfter100(t, e, r); n > 100 { // growing buffers, the runtime's own
		t.Errorf("got %d allocations for 3900 tokens, want at most 100", n)
	}
}
