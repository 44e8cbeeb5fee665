package engine_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/engine/enginetest"
)

// embedding is the one event of an embedding.
func embedding(t *testing.T, s *engine.Stream) []float32 {
	t.Helper()
	ev, err := s.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if ev.Token != engine.NoToken || ev.Finish != engine.FinishStop {
		t.Errorf("event %+v", ev)
	}
	if _, err := s.Next(context.Background()); err != io.EOF {
		t.Errorf("after the embedding: %v", err)
	}
	return ev.Embedding
}

// TestEmbeddings pools prompts of many lengths in small chunks, in a batch with a request that
// decodes, with pages for a few.
func TestEmbeddings(t *testing.T) {
	m := &enginetest.Model{MaxLen: 64, Pages: 24}
	e := engine.New(m, engine.Options{MaxBatchTokens: 9, ChunkTokens: 5, MaxBatch: 6})
	defer e.Close()
	answer := submit(t, e, engine.Request{Prompt: prompt(9, 8), MaxTokens: 40})
	var streams []*engine.Stream
	var want [][]float32
	for n := 1; n <= 64; n += 7 {
		p := prompt(3, n)
		mean := make([]float32, 4)
		for i := range p {
			for k, v := range m.State(p[:i+1]) {
				mean[k] += v
			}
		}
		for k := range mean {
			mean[k] /= float32(n)
		}
		for pooling, vector := range map[engine.Pooling][]float32{
			engine.PoolFirst: m.State(p[:1]), engine.PoolLast: m.State(p), engine.PoolMean: mean,
		} {
			streams = append(streams, submit(t, e, engine.Request{Prompt: p, Embed: pooling}))
			want = append(want, vector)
		}
	}
	for i, s := range streams {
		if got := embedding(t, s); !slices.Equal(got, want[i]) {
			t.Errorf("request %d: %v, want %v", i, got, want[i])
		}
	}
	if got, err := collect(answer, 1); err != nil || len(got[0].tokens) != 40 {
		t.Errorf("beside them: %v, %v", got, err)
	}
	if st := counted(t, e); st.GeneratedTokens != 40 || st.Finished[engine.FinishStop] != int64(len(streams)) {
		t.Errorf("stats %+v", st)
	}
}

func TestEmbeddingErrors(t *testing.T) {
	e := engine.New(&enginetest.Model{MaxLen: 16, Mute: true}, engine.Options{})
	defer e.Close()
	var bad *engine.RequestError
	for name, r := range map[string]engine.Request{
		"with tokens":        {Embed: engine.PoolLast, MaxTokens: 1},
		"with choices":       {Embed: engine.PoolLast, N: 2},
		"with scores":        {Embed: engine.PoolLast, PromptLogProbs: true},
		"of another pooling": {Embed: 9},
	} {
		r.Prompt = prompt(1, 3)
		if _, err := e.Submit(context.Background(), r); !errors.As(err, &bad) || bad.Field != "embed" {
			t.Errorf("%s: %v", name, err)
		}
	}
	var long *engine.ContextError
	if _, err := e.Submit(context.Background(), engine.Request{Prompt: prompt(1, 17), Embed: engine.PoolMean}); !errors.As(err, &long) {
		t.Errorf("a prompt beyond the context: %v", err)
	}
	s := submit(t, e, engine.Request{Prompt: prompt(1, 16), Embed: engine.PoolMean})
	if _, err := s.Next(context.Background()); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a model without hidden states: %v", err)
	}
}
