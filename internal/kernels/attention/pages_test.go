package attention_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestPaged compares Scores and WeightedSum with Columns and Mix, bit by bit, over pages in any order
// that end where memory does.
func TestPaged(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(3, 8))
		for i, dim := range []int{1, 8, 15, 16, 20, 31, 32, 33, 64, 80, 100, 128, 200} {
			for _, p := range []attention.Paged{{Format: mat.BFloat16}, {Format: mat.Float32}, {Blocks: true}} {
				if !set.Attention.HasPages() {
					continue
				}
				for _, queries := range []int{1, 2, 4, 8} {
					pagedCase(t, set, r, p, queries, dim, i%4+1, (i+queries)%3+1)
				}
			}
		}
	})
}

// pagedCase has heads one behind another, which are compared one by one.
func pagedCase(t *testing.T, set *kernels.Set, r *rand.Rand, p attention.Paged, queries, dim, count, heads int) {
	t.Helper()
	what := fmt.Sprintf("%d queries, %d channels, %d pages, %d heads, %+v", queries, dim, count, heads, kindName(&p))
	width, keys := mat.CeilDiv(dim, quant.BlockColumns)*quant.BlockColumns, count*attention.PagedTokens
	p.Row, p.Heads = p.Bytes(dim), heads
	p.Head, p.Page = attention.PagedTokens*p.Row, heads*attention.PagedTokens*p.Row
	p.Data = kerneltest.Guarded(t, (count+1)*p.Page)
	var pages []int32
	for _, page := range r.Perm(count + 1)[:count] {
		pages = append(pages, int32(page))
	}
	q, turned := kerneltest.Random(r, heads*queries*dim), kerneltest.GuardedFloats(t, heads*queries*width)
	for i, v := range q {
		h, query, c := i/dim/queries, i/dim%queries, i%dim
		turned[(h*width+c)*queries+query] = v
	}
	rows := heads * queries
	want, got := mat.Floats{V: make([]float32, rows*keys), Stride: keys}, mat.Floats{V: kerneltest.GuardedFloats(t, rows*keys), Stride: keys}
	sum, sums := mat.Floats{V: make([]float32, rows*width), Stride: width}, mat.Floats{V: kerneltest.GuardedFloats(t, rows*width), Stride: width}
	first := r.IntN(attention.PagedTokens)
	n := 1 + r.IntN(keys-first)
	for h := range heads {
		values := fillHead(set, r, &p, pages, h, dim)
		columns := mat.Floats{V: make([]float32, dim*keys), Stride: keys}
		set.Vector.Transpose(columns, values, keys, dim)
		data, _ := kerneltest.Store(mat.Float32, columns.V, 0)
		own := mat.Floats{V: want.V[h*queries*keys:], Stride: keys}
		set.GEMV.Mix(&gemv.RowSum{Y: own, P: mat.Floats{V: q[h*queries*dim:], Stride: dim}, Step: 1, V: mat.Weights{Data: data, Stride: 4 * keys, Format: mat.Float32}, Keys: dim, Tokens: queries, Cols: keys})
		values.Data = values.Data[first*values.Stride:]
		set.GEMV.Mix(&gemv.RowSum{Y: mat.Floats{V: sum.V[h*queries*width:], Stride: width}, P: mat.Floats{V: own.V[first:], Stride: keys}, Step: 1, V: values, Keys: n, Tokens: queries, Cols: width})
	}
	set.Attention.Scores(got, turned, queries, &p, pages, dim)
	kerneltest.SameFloats(t, what+": scores", got.V, want.V)
	if queries > set.Attention.MaxQueries() {
		return
	}
	set.Attention.WeightedSum(attention.PageSum{Y: sums, W: mat.Floats{V: want.V[first:], Stride: keys}, Queries: queries, P: &p, Pages: pages, First: first, Keys: n, Cols: dim})
	for r := range rows {
		kerneltest.SameFloats(t, what+": sums", sums.V[r*width:][:dim], sum.V[r*width:][:dim])
	}
}

// fillHead stores random tokens of a head in pages and returns them as they are rounded.
func fillHead(set *kernels.Set, r *rand.Rand, p *attention.Paged, pages []int32, head, dim int) mat.Weights {
	width := mat.CeilDiv(dim, quant.BlockColumns) * quant.BlockColumns
	values := mat.Weights{Stride: 4 * width, Format: mat.Float32}
	for _, page := range pages {
		for j := range attention.PagedTokens {
			x, out := make([]float32, width), make([]float32, width)
			copy(x, kerneltest.Random(r, dim))
			to := p.Data[int(page)*p.Page+head*p.Head+j*p.Row:][:p.Row]
			if p.Blocks {
				set.Quant.PackBlocks(quant.Q8, to, x)
				quant.UnpackBlocks(quant.Q8, out, to)
			} else {
				data, rounded := kerneltest.Store(p.Format, x[:dim], 0)
				copy(to, data)
				copy(out, rounded)
			}
			data, _ := kerneltest.Store(mat.Float32, out, 0)
			values.Data = append(values.Data, data...)
		}
	}
	return values
}

func kindName(p *attention.Paged) string {
	if p.Blocks {
		return "blocks"
	}
	return fmt.Sprint("format ", p.Format)
}

// TestPromptsStayInside runs the operations of prompts' attention other than tiles on operands at the end of
// memory.
func TestPromptsStayInside(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := 1; n <= 70; n++ {
			blocks := mat.CeilDiv(n, quant.BlockColumns)
			rows := kerneltest.Guarded(t, 3*blocks*quant.Q8Bytes)
			set.Attention.UnpackRows(mat.Floats{V: kerneltest.GuardedFloats(t, 3*blocks*quant.BlockColumns), Stride: blocks * quant.BlockColumns}, rows, blocks*quant.Q8Bytes, 3, blocks)
			if !set.BF16 {
				continue
			}
			set.Attention.NarrowRows(kerneltest.Guarded(t, 3*blocks*2*quant.BlockColumns), blocks*2*quant.BlockColumns, rows, blocks*quant.Q8Bytes, 3, blocks)
			first := mat.Weights{Data: kerneltest.Guarded(t, gemm.PackRows*2*n), Stride: 2 * n, Format: mat.BFloat16}
			dst := make([]uint32, blocks*2*gemm.BlockK/2*gemm.PackRows)
			set.Attention.PackTransposed(dst, gemm.BlockK/2*gemm.PackRows, first, mat.Weights{Data: kerneltest.Guarded(t, gemm.PackRows*2*n), Stride: 2 * n, Format: mat.BFloat16}, n)
			var o attention.Online
			o.Reset()
			scores := mat.Floats{V: kerneltest.GuardedFloats(t, 32*gemm.PanelTokens), Stride: gemm.PanelTokens}
			set.Attention.Softmax(make([]uint32, 16*gemm.PanelTokens), scores, 32, n, 1, &o)
			set.Attention.ScaleLanes(scores, 32, &o.Factor)
		}
	})
}
