//go:build linux

package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestPaged compares Scores and Weigh with Columns and Mix, bit by bit, over pages in any order
// that end where memory does.
func TestPaged(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(3, 8))
		for i, dim := range []int{1, 8, 15, 16, 20, 31, 32, 33, 64, 80, 100, 128, 200} {
			for _, p := range []Paged{{Format: BFloat16}, {Format: Float32}, {Blocks: true}} {
				if !set.Pages(&p) {
					continue
				}
				for _, queries := range []int{1, 2, 4, 8} {
					pagedCase(t, set, r, p, queries, dim, i%4+1)
				}
			}
		}
	})
}

func pagedCase(t *testing.T, set *Set, r *rand.Rand, p Paged, queries, dim, count int) {
	t.Helper()
	what := fmt.Sprintf("%d queries, %d channels, %d pages, %+v", queries, dim, count, p.kindName())
	width := ceil(dim, BlockColumns) * BlockColumns
	p.Row = p.bytes(dim)
	p.Page = PagedTokens * p.Row
	p.Data = guarded(t, (count+1)*p.Page)
	values := Weights{Data: make([]byte, 4*count*PagedTokens*width), Stride: 4 * width, Format: Float32}
	var pages []int32
	for _, page := range r.Perm(count + 1)[:count] {
		for j := range PagedTokens {
			x := make([]float32, width)
			copy(x, random(r, dim))
			to := p.Data[page*p.Page+j*p.Row:][:p.Row]
			out := make([]float32, width)
			switch {
			case p.Blocks:
				set.PackBlocks(Q8, to, x)
				blocksGo(Q8, out, to)
			default:
				data, rounded := store(p.Format, x[:dim], 0)
				copy(to, data)
				copy(out, rounded)
			}
			data, _ := store(Float32, out, 0)
			copy(values.Data[(len(pages)*PagedTokens+j)*values.Stride:], data)
		}
		pages = append(pages, int32(page))
	}
	keys := count * PagedTokens
	q, turned := random(r, queries*dim), guardedFloats(t, queries*width)
	for i, v := range q {
		turned[i%dim*queries+i/dim] = v
	}
	columns, want := Floats{make([]float32, dim*keys), keys}, Floats{make([]float32, queries*keys), keys}
	set.Columns(columns, values, keys, dim)
	data, _ := store(Float32, columns.V, 0)
	set.Mix(want, Floats{q, dim}, 1, Weights{data, 4 * keys, Float32}, dim, queries, keys)
	got := Floats{guardedFloats(t, queries*keys), keys}
	set.Scores(got, turned, queries, &p, pages, dim)
	sameFloats(t, what+": scores", got.V, want.V)

	if queries > 4 {
		return
	}
	first := r.IntN(PagedTokens)
	n := 1 + r.IntN(keys-first)
	sums, sum := Floats{guardedFloats(t, queries*width), width}, Floats{make([]float32, queries*width), width}
	part := values
	part.Data = part.Data[first*part.Stride:]
	weights := Floats{want.V[first:], keys}
	set.Mix(sum, weights, 1, part, n, queries, width)
	set.Weigh(sums, weights, queries, &p, pages, first, n, dim)
	for h := range queries {
		sameFloats(t, what+": sums", sums.V[h*width:][:dim], sum.V[h*width:][:dim])
	}
}

func (p *Paged) kindName() string {
	if p.Blocks {
		return "blocks"
	}
	return fmt.Sprint("format ", p.Format)
}

// TestPromptsStayInside runs what attention of prompts needs beside tiles on operands at the end of
// memory.
func TestPromptsStayInside(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		for n := 1; n <= 70; n++ {
			blocks := ceil(n, BlockColumns)
			rows := guarded(t, 3*blocks*q8Bytes)
			set.UnpackRows(Floats{guardedFloats(t, 3*blocks*BlockColumns), blocks * BlockColumns}, rows, blocks*q8Bytes, 3, blocks)
			if !set.Rounds() {
				continue
			}
			set.NarrowRows(guarded(t, 3*blocks*2*BlockColumns), blocks*2*BlockColumns, rows, blocks*q8Bytes, 3, blocks)
			first := Weights{guarded(t, PackRows*2*n), 2 * n, BFloat16}
			dst := make([]uint32, blocks*2*BlockK/2*PackRows)
			set.PackTurned(dst, BlockK/2*PackRows, first, Weights{guarded(t, PackRows*2*n), 2 * n, BFloat16}, n)
			var o Online
			o.Reset()
			scores := Floats{guardedFloats(t, 32*PanelTokens), PanelTokens}
			set.Softmax(make([]uint32, 16*PanelTokens), scores, 32, n, 1, &o)
			set.ScaleLanes(scores, 32, &o.Factor)
		}
	})
}
