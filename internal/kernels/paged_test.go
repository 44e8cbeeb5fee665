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
					pagedCase(t, set, r, p, queries, dim, i%4+1, (i+queries)%3+1)
				}
			}
		}
	})
}

// pagedCase has heads one behind another, which are compared one by one.
func pagedCase(t *testing.T, set *Set, r *rand.Rand, p Paged, queries, dim, count, heads int) {
	t.Helper()
	what := fmt.Sprintf("%d queries, %d channels, %d pages, %d heads, %+v", queries, dim, count, heads, p.kindName())
	width, keys := ceil(dim, BlockColumns)*BlockColumns, count*PagedTokens
	p.Row, p.Heads = p.bytes(dim), heads
	p.Head, p.Page = PagedTokens*p.Row, heads*PagedTokens*p.Row
	p.Data = guarded(t, (count+1)*p.Page)
	var pages []int32
	for _, page := range r.Perm(count + 1)[:count] {
		pages = append(pages, int32(page))
	}
	q, turned := random(r, heads*queries*dim), guardedFloats(t, heads*queries*width)
	for i, v := range q {
		h, query, c := i/dim/queries, i/dim%queries, i%dim
		turned[(h*width+c)*queries+query] = v
	}
	rows := heads * queries
	want, got := Floats{make([]float32, rows*keys), keys}, Floats{guardedFloats(t, rows*keys), keys}
	sum, sums := Floats{make([]float32, rows*width), width}, Floats{guardedFloats(t, rows*width), width}
	first := r.IntN(PagedTokens)
	n := 1 + r.IntN(keys-first)
	for h := range heads {
		values := fillHead(set, r, &p, pages, h, dim)
		columns := Floats{make([]float32, dim*keys), keys}
		set.Columns(columns, values, keys, dim)
		data, _ := store(Float32, columns.V, 0)
		own := Floats{want.V[h*queries*keys:], keys}
		set.Mix(own, Floats{q[h*queries*dim:], dim}, 1, Weights{data, 4 * keys, Float32}, dim, queries, keys)
		values.Data = values.Data[first*values.Stride:]
		set.Mix(Floats{sum.V[h*queries*width:], width}, Floats{own.V[first:], keys}, 1, values, n, queries, width)
	}
	set.Scores(got, turned, queries, &p, pages, dim)
	sameFloats(t, what+": scores", got.V, want.V)
	if queries > set.MostWeighed() {
		return
	}
	set.Weigh(sums, Floats{want.V[first:], keys}, queries, &p, pages, first, n, dim)
	for r := range rows {
		sameFloats(t, what+": sums", sums.V[r*width:][:dim], sum.V[r*width:][:dim])
	}
}

// fillHead stores random tokens of a head in pages and returns them as they are rounded.
func fillHead(set *Set, r *rand.Rand, p *Paged, pages []int32, head, dim int) Weights {
	width := ceil(dim, BlockColumns) * BlockColumns
	values := Weights{Stride: 4 * width, Format: Float32}
	for _, page := range pages {
		for j := range PagedTokens {
			x, out := make([]float32, width), make([]float32, width)
			copy(x, random(r, dim))
			to := p.Data[int(page)*p.Page+head*p.Head+j*p.Row:][:p.Row]
			if p.Blocks {
				set.PackBlocks(Q8, to, x)
				blocksGo(Q8, out, to)
			} else {
				data, rounded := store(p.Format, x[:dim], 0)
				copy(to, data)
				copy(out, rounded)
			}
			data, _ := store(Float32, out, 0)
			values.Data = append(values.Data, data...)
		}
	}
	return values
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
