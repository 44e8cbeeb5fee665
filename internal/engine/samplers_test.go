package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
)

// threaded is a model that computes on a number of threads.
type threaded struct {
	engine.Model
	threads int
}

func (m threaded) Kernels() dispatch.Kernels { return dispatch.Kernels{Threads: m.threads} }

// TestManyThreadsChooseTheSameTokens: one thread chose the tokens of all sequences of a batch, one after the other.
// Several threads choose the same.
func TestManyThreadsChooseTheSameTokens(t *testing.T) {
	dir := golden.OwnDir(t, "small-llama-bf16")
	run := func(threads int) (all [][]int32) {
		e := engine.New(threaded{engine.ForDispatch(openModel(t, dir, 4096)), threads}, engine.Options{DraftTokens: -1})
		defer e.Close()
		var streams []*engine.Stream
		for i := range 12 {
			r := engine.Request{Prompt: prompt(i, 5+i), MaxTokens: 20 + i, Seed: uint64(i), N: 1 + i%2}
			if i%3 > 0 {
				r.Params = sample.Params{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1.1}
			}
			streams = append(streams, submit(t, e, r))
		}
		for i, s := range streams {
			results, err := collect(s, 1+i%2)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				all = append(all, r.tokens)
			}
		}
		return all
	}
	want := run(1)
	for _, threads := range []int{2, 3, 64} {
		if got := run(threads); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%d threads: got %v, want %v", threads, got, want)
		}
	}
}

// BenchmarkSampling measures a pass of 64 sequences with top_p over a vocabulary of 32,000, in which the model itself
// takes little time.
func BenchmarkSampling(b *testing.B) {
	for _, threads := range []int{1, 2, 4} {
		b.Run(fmt.Sprint("threads=", threads), func(b *testing.B) {
			m := &enginetest.Model{Width: 32000, PageTokens: 1 << 14, MaxLen: 1 << 14, Pages: 64}
			e := engine.New(threaded{m, threads}, engine.Options{DraftTokens: -1})
			defer e.Close()
			var streams []*engine.Stream
			for i := range 64 {
				r := engine.Request{Prompt: prompt(i, 4), MaxTokens: b.N, Params: sample.Params{Temperature: 1, TopP: 0.95}}
				s, err := e.Submit(b.Context(), r)
				if err != nil {
					b.Fatal(err)
				}
				streams = append(streams, s)
			}
			for _, s := range streams {
				if _, err := collect(s, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
