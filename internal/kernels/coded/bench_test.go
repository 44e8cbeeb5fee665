package coded_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// An uncached matrix is the same weights, plain and coded, which no cache holds, and a token.
type uncached struct {
	words      []byte
	m          coded.Matrix
	x          []uint32
	rows, cols int
}

func newUncached(b *testing.B, set *kernels.Set, rows, cols int) *uncached {
	const some = 1024
	r := rand.New(rand.NewPCG(6, 19))
	rows = rows / some * some
	u := &uncached{words: kerneltest.Uncached(b)[:2*rows*cols], m: coded.Matrix{Data: kerneltest.Uncached(b)[:rows*coded.RowBytes(cols)], Rows: rows, Cols: cols}, rows: rows, cols: cols}
	sample, part := trained(r, some, cols), make([]byte, some*coded.RowBytes(cols))
	if err := coded.Encode(part, sample, some, cols); err != nil {
		b.Fatal(err)
	}
	for i := 0; i < rows; i += some {
		copy(u.words[2*i*cols:], sample)
		copy(u.m.Data[i*coded.RowBytes(cols):], part)
	}
	u.x = make([]uint32, cols/2)
	set.Vector.RoundPairs(u.x, kerneltest.Random(r, cols))
	return u
}

// plain are rows from i on.
func (u *uncached) plain(i int) mat.Weights {
	return mat.Weights{Data: u.words[2*i*u.cols:], Stride: 2 * u.cols, Format: mat.BFloat16}
}

// compare reports how many times faster one thread is with coded weights, and with weights that are decoded to memory
// first, 16 rows at a time. The functions multiply so many rows.
func (u *uncached) compare(b *testing.B, set *kernels.Set, plain func(w mat.Weights, rows int), fused func(first, rows int)) {
	buffer := make([]byte, 16*2*u.cols)
	var took [3]time.Duration
	b.SetBytes(int64(2 * u.rows * u.cols))
	for b.Loop() {
		const step = 64
		start := time.Now()
		for i := 0; i < u.rows; i += step {
			plain(u.plain(i), step)
		}
		middle := time.Now()
		for i := 0; i < u.rows; i += step {
			fused(i, step)
		}
		end := time.Now()
		for i := 0; i < u.rows; i += 16 {
			set.Coded.Decode(buffer, &u.m, i, 16)
			plain(mat.Weights{Data: buffer, Stride: 2 * u.cols, Format: mat.BFloat16}, 16)
		}
		took[0], took[1], took[2] = took[0]+middle.Sub(start), took[1]+end.Sub(middle), took[2]+time.Since(end)
	}
	b.ReportMetric(float64(b.N*u.rows*u.cols)/took[1].Seconds()/1e9, "codedGw/s")
	b.ReportMetric(float64(b.N*u.rows*u.cols)/took[0].Seconds()/1e9, "plainGw/s")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "fused-x")
	b.ReportMetric(took[0].Seconds()/took[2].Seconds(), "decoded-x")
}

// benchPairs compares dot products of one token.
func benchPairs(b *testing.B, set *kernels.Set, rows, cols int) {
	u, y := newUncached(b, set, rows, cols), make([]float32, 64)
	u.compare(b, set, func(w mat.Weights, rows int) {
		set.GEMV.MulPairs(mat.Floats{V: y, Stride: rows}, w, mat.Pairs{V: u.x, Stride: len(u.x)}, rows, 1, u.cols)
	}, func(first, rows int) {
		set.Coded.MulPairs(y[:rows], &u.m, first, u.x)
	})
}

// benchTiles compares products of tiles and one token, or panels of tokens.
func benchTiles(b *testing.B, set *kernels.Set, rows, cols, panels int) {
	u, y := newUncached(b, set, rows, cols), make([]float32, 64*gemm.CoupleTokens)
	x, size, scratch := make([]uint32, 2*gemm.PanelWords(cols)), gemm.PanelWords(cols), make([]float32, coded.TileScratch)
	p := coded.TilesProduct{C: y, W: &u.m, X: x, XStride: size, Panels: panels, Scratch: scratch}
	if panels == 0 {
		p.X = u.x
	}
	u.compare(b, set, func(w mat.Weights, rows int) {
		if panels == 0 {
			set.GEMV.MulTile(y[:rows], w, u.x, rows, u.cols/gemm.BlockK)
			return
		}
		set.GEMM.TileRows(gemm.RowTiles{C: y, W: w, X: x, XStride: size, Panels: panels, Rows: rows, Blocks: u.cols / gemm.BlockK,
			Fetch: gemm.Fetch{Next: w.Data[min(len(w.Data), rows*w.Stride):], Quarters: 4}})
	}, func(first, rows int) {
		p.Row, p.Rows = first, rows
		set.Coded.MulTiles(p)
	})
}

// BenchmarkPairs multiplies weights that no cache holds, plain and coded in turn.
func BenchmarkPairs(b *testing.B) {
	eachVariant(b, func(b *testing.B, set *kernels.Set) {
		for _, cols := range []int{4096, 14336} {
			if set.Coded.HasPairs(cols) {
				b.Run(fmt.Sprint(cols), func(b *testing.B) { benchPairs(b, set, 512<<20/2/cols, cols) })
			}
		}
	})
}

// BenchmarkTiles is that for tiles: one token, and one and two panels of tokens.
func BenchmarkTiles(b *testing.B) {
	eachVariant(b, func(b *testing.B, set *kernels.Set) {
		for _, cols := range []int{2048, 4096, 14336} {
			for panels := range 3 {
				if set.Coded.HasTiles(cols) {
					b.Run(fmt.Sprintf("%d/panels=%d", cols, panels), func(b *testing.B) { benchTiles(b, set, 512<<20/2/cols, cols, panels) })
				}
			}
		}
	})
}

// eachVariant runs f for the kernels of each variant.
func eachVariant(b *testing.B, f func(b *testing.B, set *kernels.Set)) {
	for _, name := range kernels.Names() {
		set, err := kernels.Select(name)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) { f(b, set) })
	}
}
