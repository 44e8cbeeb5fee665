package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
	"github.com/heftai/heft/internal/sample"
)

// track allows one id alone at most places, which depends on all ids accepted before, and a quarter of
// the ids at others.
type track struct {
	words []uint64
	sum   int32
	ids   int32 // below which those allowed alone are
}

func (r *track) Mask() []uint64 {
	clear(r.words)
	for id := range int32(len(r.words) * 64) {
		if r.sum%5 != 0 && id == (r.sum*7)%r.ids || r.sum%5 == 0 && (r.sum+id)&3 == 0 {
			r.words[id>>6] |= 1 << (id & 63)
		}
	}
	return r.words
}

func (r *track) Accept(id int32) error {
	r.sum = (r.sum*5 + id + 1) & 0xFFFF
	return nil
}

// TestForcedTokensPassTogetherWithTheBitsOfSingleOnes: tokens, log-probabilities and ends are those of
// tokens that pass one at a time, in batches, with little room for keys and values, with every limit
// of a pass, and fewer passes are needed.
func TestForcedTokensPassTogetherWithTheBitsOfSingleOnes(t *testing.T) {
	params := []sample.Params{{}, {Temperature: 1}, {Temperature: 0.8, TopK: 9, TopP: 0.9, Stop: []int32{8, 9, 49}}, {Temperature: 1, MinTokens: 9, Stop: []int32{60, 61}}}
	for name, c := range map[string]struct {
		pages   int
		options engine.Options
		limits  engine.Limits
	}{
		"room":         {pages: 4096},
		"preemptions":  {pages: 26},
		"small passes": {pages: 60, options: engine.Options{MaxBatch: 3, MaxBatchTokens: 4, MaxLogitRows: 4}},
		"limits":       {pages: 60, limits: engine.Limits{Tokens: 7, Sequences: 4, LogitRows: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			var all [2][]string
			var passes [2]int
			for k, oneByOne := range []bool{false, true} {
				m := &enginetest.Model{Pages: c.pages, MaxLen: 80, Most: c.limits}
				begin := make(chan struct{})
				m.BeforePass = func(context.Context, []engine.Row) error { <-begin; passes[k]++; return nil }
				o := c.options
				o.OneByOne = oneByOne
				e := engine.New(m, o)
				var streams []*engine.Stream
				for i := range 8 {
					streams = append(streams, submit(t, e, engine.Request{
						Prompt: prompt(i, 5), MaxTokens: 20 + 5*i, N: 1 + i%2, Seed: uint64(i), Params: params[i%len(params)],
						LogProbs: i%3 != 0, TopLogProbs: i % 3,
						Constrain: func(choice int) engine.Constraint { return &track{make([]uint64, 1), int32(choice), 60} },
					}))
				}
				close(begin)
				for i, s := range streams {
					results, err := collect(s, 1+i%2)
					if err != nil {
						t.Fatal(err)
					}
					for _, r := range results {
						var text string
						for _, ev := range r.events {
							text += fmt.Sprintf("%d %x %v %s;", ev.Token, ev.LogProb, ev.Top, ev.Finish)
						}
						all[k] = append(all[k], text)
					}
				}
				e.Close()
			}
			if !slices.Equal(all[0], all[1]) {
				for i := range all[0] {
					if all[0][i] != all[1][i] {
						t.Errorf("together %s\none by one %s", all[0][i], all[1][i])
					}
				}
			}
			if passes[0] >= passes[1] {
				t.Errorf("%d passes together, %d one by one", passes[0], passes[1])
			}
		})
	}
}
