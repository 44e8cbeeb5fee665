package engine_test

import (
	"context"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// TestBackgroundRequestsYield: a background request gives up its slot for a request that comes later, waits
// behind all others, and still returns its own tokens.
func TestBackgroundRequestsYield(t *testing.T) {
	for name, limits := range map[string]struct {
		model   enginetest.Model
		options engine.Options
	}{
		"slots": {options: engine.Options{MaxBatch: 2}},
		"pages": {enginetest.Model{Pages: 12}, engine.Options{MaxBatch: 8}},
	} {
		t.Run(name, func(t *testing.T) {
			m := limits.model
			gate := make(chan struct{})
			m.BeforePass = func(context.Context, []engine.Row) error { <-gate; return nil }
			e := engine.New(&m, limits.options)
			defer e.Close()
			var background, others []*engine.Stream
			request := func(i int, background bool) engine.Request {
				return engine.Request{Prompt: prompt(i, 8), MaxTokens: 12, Background: background}
			}
			for i := range 4 {
				background = append(background, submit(t, e, request(i, true)))
			}
			gate <- struct{}{} // they run
			gate <- struct{}{}
			for i := range 2 {
				others = append(others, submit(t, e, request(10+i, false)))
			}
			close(gate)
			for i, s := range others {
				wantAlone(t, e, &m, s, request(10+i, false))
			}
			for i, s := range background {
				wantAlone(t, e, &m, s, request(i, true))
			}
			if e.Stats().Preemptions == 0 {
				t.Error("no background choice was preempted")
			}
		})
	}
}

func wantAlone(t *testing.T, e *engine.Engine, m *enginetest.Model, s *engine.Stream, r engine.Request) {
	t.Helper()
	got, err := collect(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := alone(t, m, e.Limit(), r, 0); !slices.Equal(got[0].tokens, want) {
		t.Errorf("got %v, want %v", got[0].tokens, want)
	}
}

// TestBackgroundTakesNoPlaceInTheQueue: background requests that fill the queue do not make the engine reject
// others.
func TestBackgroundTakesNoPlaceInTheQueue(t *testing.T) {
	gate := make(chan struct{})
	m := &enginetest.Model{BeforePass: func(context.Context, []engine.Row) error { <-gate; return nil }}
	e := engine.New(m, engine.Options{MaxBatch: 1, MaxQueue: -1})
	defer e.Close()
	defer close(gate)
	r := engine.Request{Prompt: prompt(1, 4), MaxTokens: 2, Background: true}
	submit(t, e, r)
	if _, err := e.Submit(context.Background(), r); err == nil {
		t.Error("a second background request found a place")
	}
	r.Background = false
	submit(t, e, r)
	if _, err := e.Submit(context.Background(), r); err == nil {
		t.Error("a second request found a place")
	}
}
