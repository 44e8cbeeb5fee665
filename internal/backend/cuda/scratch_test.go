//go:build cuda

package cuda

import (
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestScratchIsWhatPlansCount runs attention of long prompts, which needs more scratch memory with
// each pass. The scratch memory used to grow to twice the size it needed, which exceeded the plan.
func TestScratchIsWhatPlansCount(t *testing.T) {
	need(t)
	for _, fast := range []bool{false, true} {
		const heads, dim, context, step, page = 4, 16, 640, 80, 16
		rows := step
		if fast {
			rows = 1 // with more, rows of tiles need no scratch
		}
		w := backend.Work{Attention: []backend.AttentionWork{{Heads: heads, KVHeads: 2, Dim: dim, ValueDim: dim, Context: context, Tokens: rows}}}
		b := openWith(t, "", fast)
		b.LimitOwn(OwnBytes(&w, fast))
		a := backend.AttentionArgs{Heads: heads, KVHeads: 2, Dim: dim, ValueDim: dim, Scale: 0.2, Prompts: make([]bool, rows)}
		kv := backend.KV{PageTokens: page, Heads: 2}
		var err error
		take := func(d meta.DType, dims ...int) (x tensor.Tensor) {
			if x, err = b.New(d, dims...); err != nil {
				t.Fatal(err)
			}
			return x
		}
		kv.K, kv.V = take(meta.BFloat16, context/page, page, 2*dim), take(meta.BFloat16, context/page, page, 2*dim)
		q, y := take(meta.Float32, rows, heads*dim), take(meta.Float32, rows, heads*dim)
		pages := make([]int32, context/page)
		for i := range pages {
			pages[i] = int32(i)
		}
		for start := 0; start < context; start += step {
			b.Attention(y, q, kv, []backend.Span{{Rows: rows, Start: start, Pages: pages}}, a)
		}
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		if own, planned := b.Use().Own, OwnBytes(&w, fast); own > planned || own == ringBytes {
			t.Errorf("fast kernels %v: operands and scratch are %d bytes, plans count %d", fast, own, planned)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if own := b.Use().Own; own != 0 {
			t.Errorf("%d bytes of operands and scratch are left", own)
		}
	}
}
