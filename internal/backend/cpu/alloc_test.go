package cpu_test

import (
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

func zeros(dims ...int) tensor.Tensor {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return tensor.Floats(make([]float32, n), dims...)
}

// TestOperationsAllocateNothing holds the law that decoding leaves the Go heap alone.
func TestOperationsAllocateNothing(t *testing.T) {
	const n, dim, rows = 5, 64, 96
	x, y, wide := zeros(n, dim), zeros(n, dim), zeros(n, rows)
	half := make([]byte, 2*rows*dim)
	w := backend.Matrix{Tensor: tensor.Tensor{DType: meta.BFloat16, Rank: 2, Dims: [tensor.MaxRank]int{rows, dim}, Data: half}}
	turned := w
	turned.Transposed, turned.Dims = true, [tensor.MaxRank]int{dim, rows}
	bias := tensor.Tensor{DType: meta.BFloat16, Rank: 1, Dims: [tensor.MaxRank]int{rows}, Data: half[1:]}
	weight := bias
	weight.Dims[0] = dim
	kv := backend.KV{K: zeros(3, 4, dim), V: zeros(3, 4, dim), PageTokens: 4}
	spans := []backend.Span{{Rows: n, Start: 2, Pages: []int32{2, 0}}}
	list, shares, none := []int32{0, 3, 1, 2, 4}, make([]float32, n), tensor.Tensor{}
	moe := &meta.MoESpec{TopK: 1, Groups: 4, TopGroups: 2, GroupsByTwo: true, Score: meta.ScoreSigmoid}
	quantised := backend.Matrix{Tensor: w.Tensor, Quant: &backend.Quant{Width: dim, Scales: zeros(rows * dim), Zeros: zeros(rows * dim)}}
	formats := [...]meta.Quant{
		meta.QuantFP8:   {Format: meta.QuantFP8, Rows: 16, Columns: 16},
		meta.QuantMXFP4: {Format: meta.QuantMXFP4, Rows: 1, Columns: 32},
		meta.QuantGPTQ:  {Format: meta.QuantGPTQ, Rows: 32, Columns: 1},
		meta.QuantAWQ:   {Format: meta.QuantAWQ, Rows: 32, Columns: 1},
	}
	several := []backend.Product{
		{Dst: wide, X: y, W: w, Bias: bias, Rounded: true}, {Dst: zeros(n, rows), X: y, W: w, Rounded: true, Role: backend.Prompt},
		{Dst: zeros(n, rows), X: y, W: turned, Bias: bias},
	}
	for _, threads := range []int{1, 2} {
		b := open(t, threads, "")
		defer b.Close()
		ops := func() {
			b.Embed(x, w, list, 2)
			b.Norm(y, x, weight, weight, meta.NormSpec{Dim: dim, Eps: 1e-6})
			b.Linear(wide, y, w, bias)
			b.Linear(wide, y, turned, bias)
			b.Products(several)
			b.Linear(wide.Slice(0, 1), y.Slice(0, 1), turned, none)
			for f := meta.QuantFP8; f <= meta.QuantAWQ; f++ {
				quantised.Quant.Quant = &formats[f]
				b.Linear(wide, y, quantised, bias)
				b.Linear(wide.Slice(0, 1), y.Slice(0, 1), quantised, bias)
			}
			b.Rope(x, 16, x.Columns(0, 8), x.Columns(8, 16), false)
			b.StoreKV(kv, x, y, list)
			b.Attention(y, x, kv, spans, backend.AttentionArgs{Heads: 4, KVHeads: 4, Dim: 16, ValueDim: 16, Scale: 1, Sinks: tensor.Floats(shares[:4], 4)})
			b.Gate(y, x, x, meta.ActSiLU, 0)
			b.Gate(y, x, x, meta.ActClampedSwiGLU, 7)
			b.Add(y, x, 0.5)
			b.Gather(y, x, list)
			b.ScatterAdd(y, x, list, shares)
			b.Scale(y, 0.5, 3)
			b.Route(list, shares, wide.Columns(0, n-1), none, moe)
			copy(list, []int32{0, 3, 1, 2, 4})
			if err := b.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if got := testing.AllocsPerRun(50, ops); got != 0 {
			t.Errorf("%d threads: %v allocations", threads, got)
		}
	}
}
