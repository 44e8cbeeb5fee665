package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

// plannedRequest joins before a pass and may leave before another.
type plannedRequest struct {
	engine.Request
	join, leave int // leave is 0 for a request that stays
	stopChoice  int // leave stops this choice only, unless below 0
	tried       bool
	stream      *engine.Stream // nil if it was refused: its prompt is longer than the memory
}

func drawRequest(t *rapid.T) *plannedRequest {
	p := &plannedRequest{join: rapid.IntRange(0, 30).Draw(t, "join"), stopChoice: -1}
	// Prompts with common beginnings, so that pages are shared.
	p.Prompt = prompt(rapid.IntRange(0, 2).Draw(t, "prompt"), rapid.IntRange(1, 40).Draw(t, "length"))
	p.MaxTokens = rapid.IntRange(-1, 25).Draw(t, "max")
	p.N = rapid.IntRange(1, 3).Draw(t, "n")
	p.Seed = uint64(rapid.IntRange(0, 3).Draw(t, "seed"))
	p.Client = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "client")
	p.LogProbs = rapid.Bool().Draw(t, "logprobs")
	p.PromptLogProbs = rapid.IntRange(0, 3).Draw(t, "score") == 0
	if rapid.Bool().Draw(t, "sampled") {
		p.Params = sample.Params{Temperature: 0.9, TopK: 20, TopP: 0.9, RepetitionPenalty: 1.1}
	}
	if rapid.Bool().Draw(t, "stops") {
		p.Params.Stop = []int32{1, 2, 3, 4}
		p.Params.MinTokens = rapid.IntRange(0, 4).Draw(t, "least")
	}
	if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
		p.leave = p.join + rapid.IntRange(1, 20).Draw(t, "after")
		p.stopChoice = rapid.IntRange(-1, p.N-1).Draw(t, "stop")
	}
	return p
}

// Whatever joins, leaves, is chunked, shared or preempted: every choice gets the tokens
// that it gets alone, and in the end nothing is held.
func TestAnyMixGivesTheTokensOfEachAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &enginetest.Model{MaxLen: 60, PageTokens: rapid.IntRange(1, 7).Draw(t, "page"), Memory: rapid.IntRange(0, 2).Draw(t, "memory")}
		m.Pages = rapid.IntRange(42, 200).Draw(t, "tokens") / m.PageTokens
		m.Most = engine.Limits{Tokens: rapid.IntRange(1, 40).Draw(t, "most tokens"),
			Sequences: rapid.IntRange(0, 5).Draw(t, "sequences"), LogitRows: rapid.IntRange(1, 6).Draw(t, "most logits")}
		list := rapid.SliceOfN(rapid.Custom(drawRequest), 1, 8).Draw(t, "requests")
		var e *engine.Engine
		pass := 0
		joined := make(chan struct{}, len(list))
		act := func() {
			for _, p := range list {
				if !p.tried && p.join <= pass {
					p.tried = true
					p.stream, _ = e.Submit(context.Background(), p.Request)
					joined <- struct{}{}
				}
				if p.stream != nil && p.leave == pass && p.leave > 0 {
					if p.stopChoice >= 0 {
						p.stream.Stop(p.stopChoice)
					} else {
						p.stream.Close()
					}
				}
			}
			pass++
		}
		start := make(chan struct{})
		m.BeforePass = func(context.Context, []engine.Row) error { <-start; act(); return nil }
		e = engine.New(m, engine.Options{
			MaxBatch:       rapid.IntRange(1, 6).Draw(t, "batch"),
			MaxBatchTokens: rapid.IntRange(1, 40).Draw(t, "tokens a step"),
			ChunkTokens:    rapid.IntRange(1, 20).Draw(t, "chunk"),
			MaxLogitRows:   rapid.IntRange(1, 10).Draw(t, "logit rows"),
			DraftTokens:    rapid.IntRange(-1, 6).Draw(t, "draft tokens"),
		})
		defer e.Close()
		act()
		close(start)
		for range list { // passes may cease before the last has joined
			select {
			case <-joined:
			case <-time.After(20 * time.Millisecond):
				s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1}, MaxTokens: 40})
				if err == nil {
					collect(s, 1)
				}
			}
		}
		for i, p := range list {
			checkStream(t, m, e.Limit(), i, p)
		}
		if err := e.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if st := e.Stats(); st.KV.Used != 0 || st.Running+st.Waiting != 0 || st.Finished[engine.FinishError] != 0 {
			t.Fatalf("left over: %+v", st)
		}
	})
}

func checkStream(t *rapid.T, m *enginetest.Model, limit, i int, p *plannedRequest) {
	if p.stream == nil {
		return
	}
	got, err := collect(p.stream, p.N)
	if err != nil && !(errors.Is(err, engine.ErrStopped) && p.leave > 0 && p.stopChoice < 0) {
		t.Fatalf("request %d: %v", i, err)
	}
	for c, g := range got {
		want, why := alone(t, m, limit, p.Request, c)
		cut := p.leave > 0 && (p.stopChoice == c || p.stopChoice < 0)
		if cut && len(g.tokens) < len(want) {
			want, why = want[:len(g.tokens)], ""
		}
		if !slices.Equal(g.tokens, want) || g.finish != why && !cut {
			t.Fatalf("request %d, choice %d: %v (%q), want %v (%q)", i, c, g.tokens, g.finish, want, why)
		}
	}
	if _, again := p.stream.Next(context.Background()); !errors.Is(again, io.EOF) && !errors.Is(again, err) {
		t.Fatalf("request %d: after its end Next returns %v", i, again)
	}
}
