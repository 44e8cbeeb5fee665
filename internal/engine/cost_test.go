package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
)

// Law: nothing is allocated per decoded token beyond what leaves the process.
func TestDecodingAllocatesNothing(t *testing.T) {
	m := &enginetest.Model{PageTokens: 1 << 14, MaxLen: 1 << 14, Pages: 8}
	e := engine.New(m, engine.Options{})
	defer e.Close()
	r := engine.Request{Prompt: prompt(1, 8), MaxTokens: 4000, Params: sample.Params{Temperature: 1, TopK: 8}}
	allocationsAfter100(t, e, r)
	if n := allocationsAfter100(t, e, r); n > 100 { // growing buffers, the runtime's own
		t.Errorf("%d allocations for 3900 tokens", n)
	}
}

// allocationsAfter100 runs a request and counts the allocations after its first 100 tokens.
func allocationsAfter100(t *testing.T, e *engine.Engine, r engine.Request) uint64 {
	t.Helper()
	s := submit(t, e, r)
	for range 100 {
		s.Next(context.Background())
	}
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	for {
		if _, err := s.Next(context.Background()); err != nil {
			break
		}
	}
	runtime.ReadMemStats(&b)
	return b.Mallocs - a.Mallocs
}

// The same with a model of weights, four choices at a time.
func TestServingAllocatesNothing(t *testing.T) {
	dir := golden.OwnDir(t, "small-llama-bf16")
	e := engine.New(engine.ForDispatch(openModel(t, dir, 512)), engine.Options{})
	defer e.Close()
	var a, b runtime.MemStats
	for range 2 { // the first warms up
		var streams []*engine.Stream
		for i := range 4 {
			streams = append(streams, submit(t, e, engine.Request{Prompt: prompt(i, 5), MaxTokens: 120}))
		}
		for _, s := range streams {
			for range 20 {
				s.Next(context.Background())
			}
		}
		runtime.ReadMemStats(&a)
		for _, s := range streams {
			for {
				if _, err := s.Next(context.Background()); err != nil {
					break
				}
			}
		}
		runtime.ReadMemStats(&b)
	}
	if n := b.Mallocs - a.Mallocs; n > 80 { // buffers of events that grow, the runtime's own
		t.Errorf("%d allocations for 400 tokens", n)
	}
}

func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 16} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			e := engine.New(&enginetest.Model{PageTokens: 1 << 24, MaxLen: 1 << 24, Pages: 64}, engine.Options{})
			defer e.Close()
			var streams []*engine.Stream
			for i := range n {
				s, err := e.Submit(context.Background(), engine.Request{Prompt: prompt(i, 4), MaxTokens: b.N + 1})
				if err != nil {
					b.Fatal(err)
				}
				streams = append(streams, s)
			}
			b.ReportAllocs()
			for _, s := range streams {
				for {
					if _, err := s.Next(context.Background()); err != nil {
						break
					}
				}
			}
		})
	}
}
