package engine_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// TestAClientsLongAnswersDoNotHoldEveryPlace: one client's streams had all places of the batch, or all pages of the KV
// cache, until they ended; a client that came later had its first token after that.
func TestAClientsLongAnswersDoNotHoldEveryPlace(t *testing.T) {
	for name, limits := range map[string]struct {
		pages, batch int
	}{"places": {4096, 2}, "pages": {60, 8}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &enginetest.Model{Delay: time.Second, Pages: limits.pages}
				e := engine.New(m, engine.Options{MaxBatch: limits.batch})
				defer e.Close()
				long := func(i int) engine.Request {
					return engine.Request{Prompt: prompt(i, 60), MaxTokens: 40, Client: "a"}
				}
				var many []*engine.Stream
				for i := range 4 {
					many = append(many, submit(t, e, long(i)))
				}
				time.Sleep(3500 * time.Millisecond)
				begin := time.Now()
				one := engine.Request{Prompt: prompt(9, 100), MaxTokens: 5, Client: "b"}
				wantAlone(t, e, m, submit(t, e, one), one)
				if d := time.Since(begin); d > 10*time.Second {
					t.Errorf("the other client's request took %v", d)
				}
				for i, s := range many {
					wantAlone(t, e, m, s, long(i))
				}
				if n := e.Stats().Preemptions; n == 0 {
					t.Error("got no preemptions")
				}
			})
		})
	}
}

// TestAClientKeepsItsPlaceForShortWaits: places that become free soon are waited for; no choice is computed again.
func TestAClientKeepsItsPlaceForShortWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: 100 * time.Millisecond}, engine.Options{MaxBatch: 2})
		defer e.Close()
		var all []*engine.Stream
		for i, client := range []string{"a", "a", "b"} {
			all = append(all, submit(t, e, engine.Request{Prompt: prompt(i, 4), MaxTokens: 15, Client: client}))
			synctest.Wait()
		}
		for _, s := range all {
			if _, err := collect(s, 1); err != nil {
				t.Fatal(err)
			}
		}
		if n := e.Stats().Preemptions; n != 0 {
			t.Errorf("got %d preemptions, want none", n)
		}
	})
}

// TestSlowReadersDoNotKeepNewRequestsOut: streams that stalled and were read on came before all requests without a
// place. With enough slow readers, neither their client's nor another client's new request ever ran.
func TestSlowReadersDoNotKeepNewRequestsOut(t *testing.T) {
	for _, client := range []string{"slow", "other"} {
		t.Run(client, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &enginetest.Model{Delay: time.Millisecond, MaxLen: 1 << 20, Pages: 1 << 20, Memory: 8}
				passes := 0
				m.BeforePass = func(context.Context, []engine.Row) error {
					if passes++; passes > 8000 {
						return errTooManyPasses
					}
					return nil
				}
				e := engine.New(m, engine.Options{MaxBatch: 2})
				defer e.Close()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				for i := range 20 {
					s := submit(t, e, engine.Request{Prompt: prompt(i, 5), MaxTokens: -1, LogProbs: true, TopLogProbs: 60, Client: "slow"})
					defer s.Close()
					go readSlowly(ctx, s)
				}
				time.Sleep(3 * time.Second) // all have stalled more than once
				begin := time.Now()
				one := engine.Request{Prompt: prompt(9, 5), MaxTokens: 5, Client: client}
				got, err := collect(submit(t, e, one), 1)
				if err != nil {
					t.Fatal(err)
				}
				if want, _ := alone(t, m, e.Limit(), one, 0); !slices.Equal(got[0].tokens, want) {
					t.Errorf("got %v, want %v", got[0].tokens, want)
				}
				if d := time.Since(begin); d > 5*time.Second {
					t.Errorf("the new request took %v", d)
				}
			})
		})
	}
}

// readSlowly reads a stream a little faster than the engine generates.
func readSlowly(ctx context.Context, s *engine.Stream) {
	for n := 0; ; n++ {
		if _, err := s.Next(ctx); err != nil {
			return
		}
		if n%100 == 0 {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}
