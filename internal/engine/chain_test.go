package engine_test

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
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

// openChain binds all modules for multi-token prediction of the checkpoint in dir.
func openChain(t *testing.T, dir string) engine.Model {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checkpoint.Close() })
	all, err := meta.NewNexts(skeleton.Config, checkpoint)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d modules: %v", len(all), err)
	}
	var models []engine.Model
	for _, skeleton := range all {
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
			dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, KVTokens: 512, HiddenStates: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		models = append(models, engine.ForDispatch(m))
	}
	return engine.Chain(models...)
}

// passOf runs one row and returns its last logits and hidden state.
func passOf(t *testing.T, m engine.Model, r engine.Row) (logits, state []float32) {
	t.Helper()
	r.PromptLen, r.Logits, r.Hidden = 1, engine.LogitsLast, engine.HiddenLast
	if err := r.Sequence.Reserve(len(r.Tokens)); err != nil {
		t.Fatal(err)
	}
	out, err := m.Forward(context.Background(), []engine.Row{r})
	if err != nil {
		t.Fatal(err)
	}
	_, values := out.Row(0)
	return slices.Clone(values), slices.Clone(out.(engine.HiddenStates).Hidden(0))
}

func nearTo(t *testing.T, what string, got []float32, want []float64) {
	t.Helper()
	for i := range want {
		if len(got) != len(want) || !(math.Abs(float64(got[i])-want[i]) <= 1e-4*(1+math.Abs(want[i]))) {
			t.Fatalf("%s: logits %v, want %v", what, got, want)
		}
	}
}

// TestModulesThatFollowEachOther: the logits of both guesses are transformers', whether the text comes at once or token by token,
// and again behind forgotten guesses.
func TestModulesThatFollowEachOther(t *testing.T) {
	dir := golden.OwnMTP(t, "deepseek_v3_two")
	var f struct {
		Cases []struct {
			IDs    []int32     `json:"input_ids"`
			Guess  int32       `json:"guess"`
			Logits [][]float64 `json:"logits"`
			Second [][]float64 `json:"second"`
		} `json:"cases"`
	}
	golden.JSON(t, filepath.Join(dir, "cases.json"), &f)
	m, next := openModel(t, dir, 512), openChain(t, dir)
	if u := m.Unexpected(); len(u) > 0 {
		t.Errorf("unexpected tensors of the model: %v", u)
	}
	width := next.(interface{ Joins() int }).Joins()
	for _, c := range f.Cases {
		known := len(c.IDs) - 1
		s := m.NewSequence()
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: c.IDs[:known], Hidden: dispatch.HiddenAll}}})
		if err != nil {
			t.Fatal(err)
		}
		states := slices.Clone(out.Hidden(0))
		s.Free()
		for _, step := range []int{known, 1} {
			s := next.NewSequence(1)
			for at := 0; at < known; at += step {
				first, state := passOf(t, next, engine.Row{Sequence: s, Tokens: c.IDs[at+1:][:step], Before: states[at*width:][:step*width]})
				nearTo(t, fmt.Sprintf("%d tokens, first guess", at+step), first, c.Logits[at+step-1])
				guess := c.Guess
				if at+step < known {
					guess = c.IDs[at+step+1] // the guess was right
				}
				second, state := passOf(t, next, engine.Row{Sequence: s, Tokens: []int32{guess}, Before: state, Guessed: true})
				nearTo(t, fmt.Sprintf("%d tokens, second guess", at+step), second, c.Second[at+step-1])
				passOf(t, next, engine.Row{Sequence: s, Tokens: []int32{5}, Before: state, Guessed: true})
				if n := s.(interface{ Truncate(int) int }).Truncate(at + step); n != at+step || s.Len() != n {
					t.Fatalf("%d tokens left, want %d", n, at+step)
				}
			}
			s.Free()
		}
	}
}

// TestChainsOfModulesChangeNoAnswer: answers of a batch are those without guesses, with preemptions and cached prefixes, and the
// modules' guesses are right mostly.
func TestChainsOfModulesChangeNoAnswer(t *testing.T) {
	dir := golden.OwnMTP(t, "deepseek_v3_two")
	var requests []engine.Request
	for i := range 4 {
		r := engine.Request{Prompt: slices.Concat(prompt(3, 50), prompt(4+i, 40)), MaxTokens: 40, Seed: uint64(i)}
		if i > 1 {
			r.Params = sample.Params{Temperature: 1.2}
		}
		requests = append(requests, r)
	}
	for _, room := range []int{320, 1024} {
		want, _ := runAll(t, engine.ForDispatch(openModel(t, dir, room)), engine.Options{DraftTokens: -1, MaxBatchTokens: 60}, requests, true)
		run := func(d engine.Model) engine.Stats {
			got, st := runAll(t, engine.ForDispatch(openModel(t, dir, room)), engine.Options{DraftTokens: 3, MaxBatchTokens: 60, Draft: d,
				DraftFailed: func(err error) { t.Error(err) }}, requests, true)
			if !slices.EqualFunc(got, want, slices.Equal) {
				t.Errorf("room for %d: answers\n%v\nwant\n%v", room, got, want)
			}
			if n := d.KV().Used; n != 0 {
				t.Errorf("%d pages are still in use", n)
			}
			return st
		}
		one, two := run(engine.ForDispatch(openNext(t, dir))), run(openChain(t, dir))
		t.Logf("room for %d: %d of %d guesses right with one module, %d of %d with two", room, one.AcceptedTokens, one.DraftTokens, two.AcceptedTokens, two.DraftTokens)
		if two.AcceptedTokens < one.AcceptedTokens*3/4 || two.AcceptedTokens == two.DraftTokens || room == 320 && two.Preemptions == 0 {
			t.Errorf("room for %d: want about as many right with two modules, some wrong, and preemptions: %+v", room, two)
		}
	}
}
