package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// TestAClientsHundredRequestsDoNotStarveAnothersOne: the second client's request gets the next place, not the
// hundredth, with the tokens that it gets alone.
func TestAClientsHundredRequestsDoNotStarveAnothersOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &enginetest.Model{Delay: time.Second}
		e := engine.New(m, engine.Options{MaxBatch: 2})
		defer e.Close()
		begin := time.Now()
		ask := func(client string, seed, n int) *engine.Stream {
			return submit(t, e, engine.Request{Prompt: prompt(seed, 4), MaxTokens: n, Client: client})
		}
		var many []*engine.Stream
		for i := range 100 {
			many = append(many, ask("a", i, 5))
		}
		time.Sleep(1500 * time.Millisecond) // two of them have a place
		one := ask("b", 7, 5)
		r, err := collect(one, 1)
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d > 12*time.Second {
			t.Errorf("the other client's request took %v", d)
		}
		want, _ := alone(t, m, e.Limit(), engine.Request{Prompt: prompt(7, 4), MaxTokens: 5}, 0)
		if !slices.Equal(r[0].tokens, want) {
			t.Errorf("tokens %v, want %v", r[0].tokens, want)
		}
		for i, s := range many {
			r, err := collect(s, 1)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := alone(t, m, e.Limit(), engine.Request{Prompt: prompt(i, 4), MaxTokens: 5}, 0)
			if !slices.Equal(r[0].tokens, want) {
				t.Errorf("request %d: tokens %v, want %v", i, r[0].tokens, want)
			}
		}
		synctest.Wait() // a pass is counted after its events
		if st := e.Stats(); st.Running+st.Waiting+st.KV.Used != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestClientsTakeTurns: with one place, the requests of three clients run in turns, each client's in their order.
func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int32
		m := &enginetest.Model{Delay: time.Second}
		m.BeforePass = func(_ context.Context, rows []engine.Row) error {
			order = append(order, rows[0].Tokens[0])
			return nil
		}
		e := engine.New(m, engine.Options{MaxBatch: 1})
		defer e.Close()
		var all []*engine.Stream
		for _, r := range []struct {
			client string
			id     int32
		}{{"a", 1}, {"a", 2}, {"a", 3}, {"b", 11}, {"b", 12}, {"c", 21}} {
			all = append(all, submit(t, e, engine.Request{Prompt: []int32{r.id}, MaxTokens: 1, Client: r.client}))
			synctest.Wait()
		}
		for _, s := range all {
			if _, err := collect(s, 1); err != nil {
				t.Fatal(err)
			}
		}
		if want := []int32{1, 11, 21, 2, 12, 3}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

// TestAFullQueueTakesANewClientsRequest: one client fills the queue; another's first request still gets in, its
// second does not.
func TestAFullQueueTakesANewClientsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Second}, engine.Options{MaxBatch: 1, MaxQueue: 2})
		defer e.Close()
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 5, Client: "a"}
		for range 3 {
			submit(t, e, r)
		}
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, engine.ErrOverloaded) {
			t.Errorf("the first client's fourth: %v", err)
		}
		r.Client = "b"
		submit(t, e, r)
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, engine.ErrOverloaded) {
			t.Errorf("the other client's second: %v", err)
		}
		r.Client = "c" // the part of the queue that is reserved for new clients is used
		if _, err := e.Submit(t.Context(), r); !errors.Is(err, engine.ErrOverloaded) {
			t.Errorf("a third client: %v", err)
		}
	})
}

// TestRetryAfterIsTheQueuesTime: a full server answers with the expected time of its queue, from the durations of
// earlier choices; the first of them counted an eighth.
func TestRetryAfterIsTheQueuesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Second}, engine.Options{MaxBatch: 2, MaxQueue: 4})
		defer e.Close()
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 8}
		if _, err := collect(submit(t, e, r), 1); err != nil { // 8 s
			t.Fatal(err)
		}
		for range 6 {
			submit(t, e, r)
		}
		var o *engine.OverloadedError
		if _, err := e.Submit(t.Context(), r); !errors.As(err, &o) || o.RetryAfter != 20*time.Second { // 5 of 8 s, two at once
			t.Errorf("%v", err)
		}
	})
}
