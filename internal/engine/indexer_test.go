package engine_test

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
)

// TestIndexersChooseTheSameAfterPreemptionsAndGuesses: sequences that lose their pages and compute them again,
// and guesses that are taken back, leave keys of the indexer that choose the same positions.
func TestIndexersChooseTheSameAfterPreemptionsAndGuesses(t *testing.T) {
	for _, name := range []string{"family-deepseek-v32-1", "family-glm-moe-dsa-1"} {
		m := openModel(t, golden.OwnDir(t, name), 128)
		requests := make([]engine.Request, 4)
		want := make([][]int32, len(requests))
		for i := range requests {
			// Repetitive prompts, whose guesses are sometimes right.
			requests[i] = engine.Request{Prompt: narrow(prompt(i, 30), 4), MaxTokens: 60}
			e := engine.New(engine.ForDispatch(m), engine.Options{DraftTokens: -1})
			got, err := collect(submit(t, e, requests[i]), 1)
			if err != nil {
				t.Fatal(err)
			}
			want[i] = got[0].tokens
			e.Close()
		}
		for _, guesses := range []int{-1, 4} {
			e := engine.New(engine.ForDispatch(m), engine.Options{MaxBatchTokens: 24, ChunkTokens: 7, DraftTokens: guesses})
			streams := make([]*engine.Stream, len(requests))
			for i := range requests {
				streams[i] = submit(t, e, requests[i])
			}
			for i, s := range streams {
				if got, err := collect(s, 1); err != nil || !slices.Equal(got[0].tokens, want[i]) {
					t.Errorf("%s, %d guesses, request %d: %v (%v), want %v", name, guesses, i, got[0].tokens, err, want[i])
				}
			}
			st := counted(t, e)
			if st.Preemptions == 0 || guesses > 0 && (st.AcceptedTokens == 0 || st.AcceptedTokens == st.DraftTokens) {
				t.Errorf("%s: %d preemptions, %d guesses of which %d were right, want some of each", name, st.Preemptions, st.DraftTokens, st.AcceptedTokens)
			}
			e.Close()
		}
	}
}
