package kv_test

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/engine"
)

// generated runs requests on an engine of m, one after the other, and returns their tokens.
func generated(t *testing.T, s *engine.Stream) (tokens []int32) {
	t.Helper()
	for {
		ev, err := s.Next(context.Background())
		if err == io.EOF {
			return tokens
		}
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, ev.Token)
	}
}

// TestOthersGoOnWhileStoredPagesAreRead: with pages of a stored prefix that are read slowly, other requests
// get their tokens meanwhile, and all tokens are those of a model that computes everything.
func TestOthersGoOnWhileStoredPagesAreRead(t *testing.T) {
	dir, where, prompt := dispatchtest.StoreFolder(t, 1), t.TempDir(), dispatchtest.StorePrompt()
	o := dispatch.Options{Threads: 1, Context: 128, Precision: dispatch.PrecisionHigh, KVTokens: 512, MaxSequences: 4}
	submit := func(e *engine.Engine, prompt []int32) *engine.Stream {
		s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt, MaxTokens: 12})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	other := []int32{5, 9, 77, 31, 8}
	plain := dispatchtest.OpenModel(t, dir, o)
	e := engine.New(engine.ForDispatch(plain), engine.Options{})
	want, wantOther := generated(t, submit(e, prompt)), generated(t, submit(e, other))
	e.Close()

	o.KVStore = dispatchtest.OpenKVStore(t, where)
	first := dispatchtest.OpenModel(t, dir, o)
	dispatchtest.Answered(t, first, "", "", prompt)
	first.Close()
	reading, goOn := make(chan struct{}), make(chan struct{})
	dispatchtest.SlowReads(o.KVStore, func() { reading <- struct{}{}; <-goOn })
	o.Ledger = nil
	e = engine.New(engine.ForDispatch(dispatchtest.OpenModel(t, dir, o)), engine.Options{})
	defer e.Close()
	slow := submit(e, prompt)
	for range 4 { // pages
		<-reading
		if got := generated(t, submit(e, other)); !slices.Equal(got, wantOther) {
			t.Errorf("another request has tokens %v, want %v", got, wantOther)
		}
		goOn <- struct{}{}
	}
	if got := generated(t, slow); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := slow.Cached(); n != 64 {
		t.Errorf("%d tokens were reused, want 64", n)
	}
}
