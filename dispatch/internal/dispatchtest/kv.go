package dispatchtest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// AfterReuse returns the logits of ids after the reused prefix of the prompt, and the number of
// tokens in that prefix.
func AfterReuse(t *testing.T, m *dispatch.Model, ids []int32, prompt int) ([][]float32, int) {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	n := s.Reuse(ids[:prompt])
	var out [][]float32
	for len(ids) > s.Len() {
		count := 1
		if s.Len() < prompt {
			count = prompt - s.Len()
		}
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:count], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Rows(got, 0)...)
	}
	return out, n
}

// OpenKVStore opens a store of pages and closes it when the test ends.
func OpenKVStore(t *testing.T, dir string) *dispatch.KVStore {
	t.Helper()
	s, err := dispatch.OpenKVStore(dir, 1<<30, func(message string, args ...any) { t.Log(message, args) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// StorePrompt returns a prompt of several pages.
func StorePrompt() []int32 {
	prompt := make([]int32, 70)
	for i := range prompt {
		prompt[i] = int32(i*31%223 + 3)
	}
	return prompt
}

// Answered runs a prompt and some generated tokens, and returns the logits and how many tokens of the
// prompt were reused.
func Answered(t *testing.T, m *dispatch.Model, salt, adapter string, prompt []int32) (reused int, logits []float32) {
	t.Helper()
	s, err := m.NewAdaptedSequence(adapter)
	if err != nil {
		t.Fatal(err)
	}
	s.Salt(salt)
	reused = s.Reuse(prompt)
	_, logits = InChunks(t, m, s, prompt, 512, 5)
	s.Free()
	return reused, logits
}

// StoreFolder returns the folder of a random model.
func StoreFolder(t *testing.T, seed uint64) string {
	s := Shape{Hidden: 96, Inner: 160, Heads: 4, KV: 2, Dim: 24, Vocab: 230, Layers: 2, DType: meta.BFloat16, Shift: 3}
	return s.Folder(t, rand.New(rand.NewPCG(seed, 5)))
}

// InChunks runs a prompt in chunks and n greedy tokens after it. It returns the tokens and the
// logits of all steps.
func InChunks(t *testing.T, m *dispatch.Model, s *dispatch.Sequence, prompt []int32, chunk, n int) (ids []int32, logits []float32) {
	t.Helper()
	for at := s.Len(); at < len(prompt); at += chunk {
		next := prompt[at:min(at+chunk, len(prompt))]
		row := dispatch.BatchRow{Sequence: s, Tokens: next, PromptLen: len(prompt), Logits: dispatch.LogitsLast}
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}})
		if err != nil {
			t.Fatal(err)
		}
		if at+chunk >= len(prompt) {
			_, values := out.Row(0)
			logits = append(logits, values...)
		}
	}
	for range n {
		last := logits[len(logits)-m.Vocab():]
		ids = append(ids, int32(slices.Index(last, slices.Max(last))))
		row := dispatch.BatchRow{Sequence: s, Tokens: ids[len(ids)-1:], PromptLen: len(prompt), Logits: dispatch.LogitsLast}
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{row}})
		if err != nil {
			t.Fatal(err)
		}
		_, values := out.Row(0)
		logits = append(logits, values...)
	}
	return ids, logits
}

// Windowed returns a small model with one layer for each attention window, in tokens; 0 means no
// window.
func Windowed(t *testing.T, windows ...int) func(o dispatch.Options) *dispatch.Model {
	skeleton, checkpoint := OpenCheckpoint(t, golden.OwnDir(t, "small-llama-bf16"))
	for i, window := range windows {
		layer := skeleton.Root.Find("model.layers").Children[i]
		layer.Find("self_attn").Spec.(*meta.AttentionSpec).Window = window
	}
	return func(o dispatch.Options) *dispatch.Model {
		t.Helper()
		o.Threads, o.Context, o.Precision = 1, 128, dispatch.PrecisionHigh
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		return m
	}
}

// Extend computes ids in s, the prompt in chunks of 32 tokens and the rest one by one. It calls check after each pass and
// returns the logits of all tokens.
func Extend(t *testing.T, m *dispatch.Model, s *dispatch.Sequence, ids []int32, prompt int, check func()) (got [][]float32) {
	t.Helper()
	for s.Len() < len(ids) {
		n := 1
		if s.Len() < prompt {
			n = min(32, prompt-s.Len())
		}
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:n], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, Rows(out, 0)...)
		check()
	}
	return got
}
