package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// adapting is a model that notes the names of the adapters it was asked for.
type adapting struct {
	*enginetest.Model
	names []string
}

var errUnknown = errors.New("unknown adapter")

func (m *adapting) Adapted(name string) (engine.NewSequence, error) {
	m.names = append(m.names, name)
	if name == "nobody" {
		return nil, errUnknown
	}
	return func(promptLen int) (engine.Sequence, error) { return m.NewSequence(promptLen), nil }, nil
}

// TestAdaptersOfRequests: the model makes the sequence of a request that names an adapter;
// a name that it does not know, or a model without adapters, fails that request alone.
func TestAdaptersOfRequests(t *testing.T) {
	m := &adapting{Model: &enginetest.Model{}}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	finish := func(e *engine.Engine, adapter string) error {
		s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2}, MaxTokens: 2, Adapter: adapter})
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			ev, err := s.Next(context.Background())
			if err != nil || ev.Finish != "" {
				return err
			}
		}
	}
	for _, c := range []struct {
		name string
		want error
	}{{"", nil}, {"a", nil}, {"nobody", errUnknown}, {"b", nil}} {
		if err := finish(e, c.name); !errors.Is(err, c.want) {
			t.Errorf("adapter %q: %v, want %v", c.name, err, c.want)
		}
	}
	plain := engine.New(&enginetest.Model{}, engine.Options{})
	defer plain.Close()
	if err := finish(plain, "a"); err == nil {
		t.Error("a model without adapters ran one")
	}
	e.Close()
	if want := []string{"a", "nobody", "b"}; !slices.Equal(m.names, want) {
		t.Errorf("the model was asked for %v, want %v", m.names, want)
	}
}

// crowded is a model whose memory for adapters has no room for b while another sequence has pages.
type crowded struct {
	*enginetest.Model
	refused atomic.Int32
}

func (m *crowded) Adapted(name string) (engine.NewSequence, error) {
	return func(promptLen int) (engine.Sequence, error) {
		if name == "b" && m.KV().Used > 0 {
			m.refused.Add(1)
			return nil, engine.ErrAdaptersFull
		}
		return m.NewSequence(promptLen), nil
	}, nil
}

// TestARequestWaitsForAdapterMemory: a request whose adapter has no room waits, and runs after one that ends.
func TestARequestWaitsForAdapterMemory(t *testing.T) {
	m := &crowded{Model: &enginetest.Model{MaxLen: 1 << 14, PageTokens: 16}}
	e := engine.New(m, engine.Options{MaxBatch: 4})
	defer e.Close()
	submit := func(adapter string, tokens int) *engine.Stream {
		s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2}, MaxTokens: tokens, Adapter: adapter})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	read := func(s *engine.Stream, goOn func() bool) {
		for goOn() {
			ev, err := s.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if ev.Finish != "" {
				return
			}
		}
	}
	first := submit("a", 1<<13)
	second := submit("b", 2)
	read(first, func() bool { return m.refused.Load() == 0 })
	first.Close()
	read(second, func() bool { return true })
	second.Close()
	if m.refused.Load() == 0 {
		t.Error("the second request never waited")
	}
}

// beside is a model whose memory for adapters is used by those of another model.
type beside struct {
	*enginetest.Model
	room    atomic.Bool
	call    func()
	stopped []string
}

func (m *beside) NotifyAdapters(call func()) { m.call = call }

func (m *beside) StopWaiting(name string) { m.stopped = append(m.stopped, name) }

func (m *beside) Adapted(string) (engine.NewSequence, error) {
	return func(promptLen int) (engine.Sequence, error) {
		if !m.room.Load() {
			return nil, engine.ErrAdaptersFull
		}
		return m.NewSequence(promptLen), nil
	}, nil
}

// TestARequestWaitsForAnotherModelsAdapters: a request failed if another model's adapters took the memory. It waits,
// also while nothing runs, and holds up no request without an adapter.
func TestARequestWaitsForAnotherModelsAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &beside{Model: &enginetest.Model{Delay: time.Second}}
		e := engine.New(m, engine.Options{MaxBatch: 4})
		defer e.Close()
		adapted := engine.Request{Prompt: prompt(1, 5), MaxTokens: 3, Adapter: "a"}
		s := submit(t, e, adapted)
		synctest.Wait()
		for i := range 2 {
			r := engine.Request{Prompt: prompt(i+2, 5), MaxTokens: 3}
			got, err := collect(submit(t, e, r), 1)
			if want, _ := alone(t, m.Model, e.Limit(), r, 0); err != nil || !slices.Equal(got[0].tokens, want) {
				t.Errorf("without an adapter: got %v and %v, want %v", got[0].tokens, err, want)
			}
		}
		m.room.Store(true)
		m.call()
		got, err := collect(s, 1)
		if want, _ := alone(t, m.Model, e.Limit(), adapted, 0); err != nil || !slices.Equal(got[0].tokens, want) {
			t.Errorf("got %v and %v, want %v", got[0].tokens, err, want)
		}
	})
}

// TestAnEndedRequestWaitsForNoAdapter: the model kept a turn for an adapter whose last waiting client had left.
func TestAnEndedRequestWaitsForNoAdapter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &beside{Model: &enginetest.Model{Delay: time.Second}}
		e := engine.New(m, engine.Options{MaxBatch: 4})
		var streams []*engine.Stream
		for i, adapter := range []string{"a", "b", "a"} {
			streams = append(streams, submit(t, e, engine.Request{Prompt: prompt(i, 5), MaxTokens: 3, Adapter: adapter}))
		}
		synctest.Wait()
		for i, want := range [][]string{nil, {"b"}, {"b", "a"}} {
			streams[i].Close()
			synctest.Wait()
			if !slices.Equal(m.stopped, want) {
				t.Errorf("after request %d the model was told of %v, want %v", i, m.stopped, want)
			}
		}
		e.Close()
	})
}

// TestStatsNameTheAdapters: the statistics have the adapters of sequences in the batch and of those that wait.
func TestStatsNameTheAdapters(t *testing.T) {
	m := &adapting{Model: &enginetest.Model{Delay: time.Millisecond, MaxLen: 4096}}
	e := engine.New(m, engine.Options{MaxBatch: 2})
	defer e.Close()
	for _, name := range []string{"b", "a", "d", "c"} {
		s, err := e.Submit(context.Background(), engine.Request{Prompt: []int32{1, 2}, MaxTokens: 3000, Adapter: name})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
	deadline := time.Now().Add(5 * time.Second)
	for {
		s := e.Stats()
		if slices.Equal(s.RunningAdapters, []string{"a", "b"}) && slices.Equal(s.WaitingAdapters, []string{"c", "d"}) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("running %v, waiting %v", s.RunningAdapters, s.WaitingAdapters)
		}
		time.Sleep(time.Millisecond)
	}
}
