package cpu

import (
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// choosing returns a function that chooses for the last rows of a sequence of tokens, and the choice.
func choosing(t testing.TB, threads, tokens, rows int, a backend.IndexArgs) (choose func(), chosen []float32) {
	const page = 64
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	kv := backend.KV{PageTokens: page, Heads: 1}
	if kv.K, err = b.New(meta.BFloat16, tokens/page, page, backend.KVRow(meta.BFloat16, 1, a.Dim)); err != nil {
		t.Fatal(err)
	}
	kv.V = kv.K
	floats := func(rows, width int) tensor.Tensor {
		v := make([]float32, rows*width)
		for i := range v {
			v[i] = float32(i*7%23-11)/8 + float32(i/width%7)/16
		}
		return tensor.Floats(v, rows, width)
	}
	table, slots := make([]int32, tokens/page), make([]int32, tokens)
	for i := range table {
		table[i] = int32(i)
	}
	for i := range slots {
		slots[i] = int32(i)
	}
	b.StoreKV(kv, floats(tokens, a.Dim), tensor.Tensor{}, slots)
	q, weights := floats(rows, a.Heads*a.Dim), floats(rows, a.Heads)
	chosen = make([]float32, rows*a.Count)
	spans := []backend.Span{{Rows: rows, Start: tokens - rows, Pages: table}}
	return func() {
		b.Choose(tensor.Floats(chosen, rows, a.Count), q, weights, kv, spans, a)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
	}, chosen
}

// TestChooseSplitItsWorkByRowsOnly: one generated token scored all positions on one thread. Any number of
// threads chooses the same.
func TestChooseSplitItsWorkByRowsOnly(t *testing.T) {
	a := backend.IndexArgs{Heads: 16, Dim: 32, Count: 100, Scale: 0.1, WeightScale: 0.25}
	for rows := 1; rows < 9; rows++ {
		choose, want := choosing(t, 1, 1024, rows, a)
		choose()
		for threads := 2; threads < 5; threads++ {
			choose, got := choosing(t, threads, 1024, rows, a)
			choose()
			if !slices.Equal(got, want) {
				t.Errorf("%d rows: %d threads choose other positions", rows, threads)
			}
		}
	}
}

// BenchmarkChoose chooses for a generated token as DeepSeek-V3.2's indexer does: 2048 of the positions, by
// 64 heads of 128.
func BenchmarkChoose(b *testing.B) {
	for _, tokens := range []int{8192, 65536} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("tokens=%d/threads=%d", tokens, threads), func(b *testing.B) {
				choose, _ := choosing(b, threads, tokens, 1, backend.IndexArgs{Heads: 64, Dim: 128, Count: 2048, Scale: 0.1, WeightScale: 0.125})
				for b.Loop() {
					choose()
				}
			})
		}
	}
}
