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

func TestCancelFreesSlotAndPagesWithinOneStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &enginetest.Model{Delay: time.Second, MaxLen: 4096}
		e := engine.New(m, engine.Options{MaxBatch: 2})
		defer e.Close()
		ctx, cancel := context.WithCancel(context.Background())
		s, err := e.Submit(ctx, engine.Request{Prompt: prompt(1, 100), MaxTokens: -1})
		if err != nil {
			t.Fatal(err)
		}
		other := submit(t, e, engine.Request{Prompt: prompt(2, 8), MaxTokens: 1000})
		waits := submit(t, e, engine.Request{Prompt: prompt(3, 8), MaxTokens: 1})
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		before := e.Stats()
		if before.Running != 2 || before.Waiting != 1 || before.KV.Used < 25 {
			t.Errorf("before: %+v", before)
		}
		cancel()
		time.Sleep(time.Second) // the step that was running ends, and one begins
		synctest.Wait()
		if _, err := waits.Next(context.Background()); err != nil {
			t.Errorf("the freed slot was not given on: %v", err)
		}
		if st := e.Stats(); st.KV.Used > before.KV.Used-20 || st.Finished[engine.FinishAbort] != 1 {
			t.Errorf("after: %+v", st)
		}
		for err = nil; err == nil; {
			_, err = s.Next(context.Background())
		}
		if !errors.Is(err, engine.ErrStopped) {
			t.Errorf("the cancelled stream ends with %v", err)
		}
		other.Close()
	})
}

// TestThePassEndsWhenItsLastClientDisconnects: a pass is aborted when the last client that waits for it has disconnected.
func TestThePassEndsWhenItsLastClientDisconnects(t *testing.T) {
	for name, leave := range map[string]func(s *engine.Stream){
		"close": (*engine.Stream).Close,
		"stop":  func(s *engine.Stream) { s.Stop(0); s.Stop(1); s.Stop(7) },
	} {
		synctest.Test(t, func(t *testing.T) {
			e := engine.New(&enginetest.Model{Delay: time.Hour}, engine.Options{})
			defer e.Close()
			begin := time.Now()
			s := submit(t, e, engine.Request{Prompt: prompt(1, 4), MaxTokens: 5, N: 2})
			synctest.Wait()
			leave(s)
			synctest.Wait()
			if st := e.Stats(); st.Running+st.Waiting+st.KV.Used != 0 || st.Finished[engine.FinishError] != 0 {
				t.Errorf("%s: %+v", name, st)
			}
			next := submit(t, e, engine.Request{Prompt: prompt(1, 4), MaxTokens: 1})
			if r, err := collect(next, 1); err != nil || len(r[0].tokens) != 1 {
				t.Errorf("%s: the next request: %v", name, err)
			}
			if d := time.Since(begin); d != time.Hour {
				t.Errorf("%s: took %v", name, d)
			}
		})
	}
}

func TestOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Second}, engine.Options{MaxBatch: 1, MaxQueue: 2})
		defer e.Close()
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 5}
		var streams []*engine.Stream
		for range 3 {
			streams = append(streams, submit(t, e, r))
		}
		var o *engine.OverloadedError
		_, err := e.Submit(context.Background(), r)
		if !errors.As(err, &o) || !errors.Is(err, engine.ErrOverloaded) || o.Waiting != 2 || o.RetryAfter < time.Second {
			t.Errorf("a fourth request: %v", err)
		}
		streams[1].Close() // one that waits
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		submit(t, e, r).Close()
	})
}

// TestThePlaceIsFreeWhenTheLastEventArrives: a client that sent its next request as soon as it had its
// answer got an error that the server was overloaded.
func TestThePlaceIsFreeWhenTheLastEventArrives(t *testing.T) {
	e := engine.New(&enginetest.Model{}, engine.Options{MaxBatch: 1, MaxQueue: -1})
	defer e.Close()
	for range 2000 {
		s, err := e.Submit(t.Context(), engine.Request{Prompt: prompt(1, 2), MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		for ev := (engine.Event{}); ev.Finish == ""; {
			if ev, err = s.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestShutdownFinishesWhatWasAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Second}, engine.Options{MaxBatch: 1})
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 5}
		a, b := submit(t, e, r), submit(t, e, r)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := e.Shutdown(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a short shutdown: %v", err)
		}
		if _, err := e.Submit(context.Background(), r); !errors.Is(err, engine.ErrDraining) {
			t.Errorf("submit while draining: %v", err)
		}
		if err := e.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for _, s := range []*engine.Stream{a, b} {
			if got, err := collect(s, 1); err != nil || len(got[0].tokens) != 5 {
				t.Errorf("%d tokens, error %v", len(got[0].tokens), err)
			}
		}
		e.Close()
	})
}

func TestCloseAborts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Hour}, engine.Options{MaxBatch: 1})
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 5}
		a, b := submit(t, e, r), submit(t, e, r)
		synctest.Wait()
		e.Close()
		for _, s := range []*engine.Stream{a, b} {
			if _, err := collect(s, 1); !errors.Is(err, engine.ErrClosed) {
				t.Errorf("stream ends with %v", err)
			}
		}
		if _, err := e.Submit(context.Background(), r); !errors.Is(err, engine.ErrClosed) {
			t.Errorf("submit after Close: %v", err)
		}
		e.Close()
	})
}

// A truncated shard fails the requests in the pass; those that waited are served.
func TestFailedPassFailsItsRequestsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("shard 2 is truncated")
		n := 0
		m := &enginetest.Model{Delay: time.Second}
		var e *engine.Engine
		var b *engine.Stream
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 5}
		m.BeforePass = func(context.Context, []engine.Row) error {
			n++
			switch n {
			case 2:
				b, _ = e.Submit(context.Background(), r)
			case 3:
				return broken
			}
			return nil
		}
		e = engine.New(m, engine.Options{MaxBatch: 2})
		defer e.Close()
		two := r
		two.N = 2
		a := submit(t, e, two)
		if got, err := collect(a, 2); !errors.Is(err, broken) || len(got[0].tokens) != 2 {
			t.Errorf("the request in the pass: %v, %v", got, err)
		}
		if got, err := collect(b, 1); err != nil || len(got[0].tokens) != 5 {
			t.Errorf("the one that waited: %v, %v", got, err)
		}
		synctest.Wait() // a pass is counted after its events
		if st := e.Stats(); st.KV.Used != 0 || st.Finished[engine.FinishError] != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// recorder is an Observer.
type recorder struct {
	queued, first, next []time.Duration
	steps               []engine.StepStats
	finished            []engine.ChoiceStats
}

func (r *recorder) Queued(d time.Duration)        { r.queued = append(r.queued, d) }
func (r *recorder) FirstToken(d time.Duration)    { r.first = append(r.first, d) }
func (r *recorder) NextToken(d time.Duration)     { r.next = append(r.next, d) }
func (r *recorder) Step(s engine.StepStats)       { r.steps = append(r.steps, s) }
func (r *recorder) Finished(s engine.ChoiceStats) { r.finished = append(r.finished, s) }

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec recorder
		e := engine.New(&enginetest.Model{Delay: time.Second}, engine.Options{MaxBatch: 1, Observer: &rec})
		r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 3}
		submit(t, e, r)
		submit(t, e, engine.Request{Prompt: prompt(2, 4), MaxTokens: 1})
		if err := e.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		s := time.Second
		if !slices.Equal(rec.queued, []time.Duration{0, 3 * s}) || !slices.Equal(rec.first, []time.Duration{s, 4 * s}) ||
			!slices.Equal(rec.next, []time.Duration{s, s}) {
			t.Errorf("queued %v, first %v, next %v", rec.queued, rec.first, rec.next)
		}
		if want := (engine.StepStats{Rows: 1, PromptTokens: 4, GeneratedTokens: 1, Duration: s}); rec.steps[0] != want || len(rec.steps) != 4 {
			t.Errorf("steps %+v", rec.steps)
		}
		want := engine.ChoiceStats{Reason: engine.FinishLength, Prompt: 4, Generated: 3, MaxTokens: 3, Total: 3 * s, Prefill: s, Decode: 2 * s,
			Choices: 1, LongestGenerated: 3}
		if rec.finished[0] != want {
			t.Errorf("finished %+v, want %+v", rec.finished[0], want)
		}
		st := e.Stats()
		if st.PromptTokens != 8 || st.GeneratedTokens != 4 || st.Finished[engine.FinishLength] != 2 || st.KV.Queries != 8 {
			t.Errorf("%+v", st)
		}
	})
}

// TestStatsCountARequestInItsFirstPass: between its admission and the end of its first pass, which
// may read weights for minutes, a request was neither running nor waiting.
func TestStatsCountARequestInItsFirstPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine.New(&enginetest.Model{Delay: time.Hour}, engine.Options{MaxBatch: 1})
		defer e.Close()
		for i, want := range [][2]int{{1, 0}, {1, 1}} {
			submit(t, e, engine.Request{Prompt: prompt(i, 8), MaxTokens: 1}) // the second waits
			synctest.Wait()
			if st := e.Stats(); st.Running != want[0] || st.Waiting != want[1] {
				t.Errorf("%d requests, in the first pass: %d running, %d waiting; want %v", i+1, st.Running, st.Waiting, want)
			}
		}
	})
}
