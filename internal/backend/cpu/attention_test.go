package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestATokenAloneHasTheBitsOfATile: a token's attention has the same bits alone and in a tile with another token, for
// all numbers of heads and threads, dtypes of keys, windows and biases by distance. Alone, a kernel computes several
// heads of keys at once, page by page.
func TestATokenAloneHasTheBitsOfATile(t *testing.T) {
	for _, variant := range kernels.Names() {
		for _, threads := range []int{1, 3} {
			host := open(t, threads, variant)
			r := rand.New(rand.NewPCG(1, uint64(threads)))
			for _, dtype := range []meta.DType{meta.Float32, meta.BFloat16, meta.Int8} {
				for _, heads := range [][2]int{{1, 1}, {12, 12}, {16, 8}, {12, 4}, {14, 2}, {24, 2}, {9, 1}} {
					oneToken(t, host, r, dtype, heads[0], heads[1], 1+r.IntN(300), r.IntN(2)*(1+r.IntN(60)))
				}
			}
			host.Close()
		}
	}
}

func oneToken(t *testing.T, host *cpu.Backend, r *rand.Rand, dtype meta.DType, heads, kvHeads, start, window int) {
	t.Helper()
	const dim, page = 40, 16
	count := (start+2)/page + 1
	kv := backend.KV{PageTokens: page, Heads: kvHeads}
	for _, x := range []*tensor.Tensor{&kv.K, &kv.V} {
		var err error
		if *x, err = host.New(dtype, count, page, backend.KVRow(dtype, kvHeads, dim)); err != nil {
			t.Fatal(err)
		}
		defer host.Free(*x)
	}
	random := func(rows, cols int) tensor.Tensor {
		x := zeros(rows, cols)
		for i := range x.F32() {
			x.F32()[i] = r.Float32() - 0.5
		}
		return x
	}
	var slots, pages []int32
	for _, p := range r.Perm(count) {
		pages = append(pages, int32(p))
	}
	for i := range start + 2 {
		slots = append(slots, pages[i/page]*page+int32(i%page))
	}
	host.StoreKV(kv, random(start+2, kvHeads*dim), random(start+2, kvHeads*dim), slots)
	a := backend.AttentionArgs{Heads: heads, KVHeads: kvHeads, Dim: dim, ValueDim: dim, Scale: 0.3, Window: window}
	if start%2 == 0 { // biases by distance
		for i := range heads {
			a.Slopes = append(a.Slopes, 1/float32(i+2))
		}
	}
	q := random(2, heads*dim)
	both, alone := zeros(2, heads*dim), zeros(1, heads*dim)
	host.Attention(both, q, kv, []backend.Span{{Rows: 2, Start: start, Pages: pages}}, a)
	host.Attention(alone, q.Slice(1, 2), kv, []backend.Span{{Rows: 1, Start: start + 1, Pages: pages}}, a)
	if err := host.Sync(); err != nil {
		t.Fatal(err)
	}
	for i, v := range alone.F32() {
		if w := both.F32()[heads*dim+i]; math.Float32bits(v) != math.Float32bits(w) {
			what := fmt.Sprintf("%s, %v, %d over %d heads, %d tokens before, window %d", host.Variant(), dtype, heads, kvHeads, start+1, window)
			t.Fatalf("%s: channel %d is %v alone, %v behind another token", what, i, v, w)
		}
	}
}
