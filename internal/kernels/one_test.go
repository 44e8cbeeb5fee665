//go:build linux

package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/roof"
	"golang.org/x/sys/unix"
)

// TestOneTokenInLongRows: a token alone has the bits that it has among others, and nothing
// past the weights is read, for rows that are fetched ahead in part or whole and for any number
// of them beside the streams.
func TestOneTokenInLongRows(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(8, 1))
		for i, n := range []int{31, 32, 63, 64, 65, 512, 513, 541, 1023, 1024, 1087, 1600} {
			rows, pad := 1+(7*i+5)%29, 2*(i%3)
			for f := range mat.Formats {
				data, _ := store(f, random(r, rows*(n+pad)), 0)
				lies := guarded(t, len(data)-pad*f.Size())
				copy(lies, data)
				w, x := mat.Weights{Data: lies, Stride: (n + pad) * f.Size(), Format: f}, mat.Floats{V: random(r, 2*n), Stride: n}
				both, alone := make([]float32, 2*rows), make([]float32, rows)
				set.GEMV.Mul(mat.Floats{V: both, Stride: rows}, w, x, rows, 2, n)
				set.GEMV.Mul(mat.Floats{V: alone, Stride: rows}, w, x, rows, 1, n)
				sameBits(t, fmt.Sprintf("format %d, %d rows of %d", f, rows, n), alone, both[:rows])
				if f == mat.BFloat16 && set.GEMV.Halves() {
					both, alone = byHalves(set, w, x, rows, 2, n, n), byHalves(set, w, x, rows, 1, n, n)
					sameBits(t, fmt.Sprintf("halves, %d rows of %d", rows, n), alone, both[:rows])
				}
			}
		}
	})
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %g alone, %g among others", what, i, v, want[i])
		}
	}
}

// Weights of a benchmark that no cache holds.
const (
	benchWeights = 512 << 20
	benchPart    = 64 << 20 // of them in turn
)

// besideReads times products with weights that no cache holds, in parts, and reports the share of the rate
// at which the same memory is read by a loop that does nothing else.
func besideReads(b *testing.B, data []byte, products func(w []byte)) {
	var took, read time.Duration
	b.SetBytes(benchWeights)
	for b.Loop() {
		for at := 0; at < benchWeights; at += benchPart { // in turn, as rates wander
			start := time.Now()
			products(data[at:][:benchPart])
			middle := time.Now()
			for w := data[(at+benchWeights/2)%benchWeights:][:benchPart]; len(w) > 0; w = w[1<<20:] {
				roof.ReadMemory(w[:1<<20])
			}
			took, read = took+middle.Sub(start), read+time.Since(middle)
		}
	}
	b.ReportMetric(float64(read)/float64(took), "share")
}

// uncached is the memory of besideReads.
func uncached(b *testing.B) []byte {
	data, err := unix.Mmap(-1, 0, benchWeights, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(data) })
	_ = unix.Madvise(data, unix.MADV_HUGEPAGE)
	for i := range data {
		data[i] = 0x3c
	}
	return data
}

// BenchmarkOneToken is products of one token.
func BenchmarkOneToken(b *testing.B) {
	const unit = 128 << 10
	data := uncached(b)
	one := func(b *testing.B, each int, mul func(w []byte, rows int)) {
		rows := max(unit/each, 1)
		if rows > 8 {
			rows &^= 7
		}
		besideReads(b, data, func(w []byte) {
			for ; len(w) >= rows*each; w = w[rows*each:] {
				mul(w[:rows*each], rows)
			}
		})
	}
	for _, set := range variants() {
		if set.Name != "avx512" && set.Name != "avx2" {
			continue
		}
		for _, n := range []int{512, 2048, 5632} {
			x, y := make([]float32, n+gemv.HalvesBlock), make([]float32, unit)
			for f, name := range []string{mat.BFloat16: "bfloat16", mat.Float16: "float16", mat.Float32: "float32"} {
				each := n * mat.Format(f).Size()
				b.Run(fmt.Sprintf("%s/%s/%d", set.Name, name, n), func(b *testing.B) {
					one(b, each, func(w []byte, rows int) {
						set.GEMV.Mul(mat.Floats{V: y, Stride: rows}, mat.Weights{Data: w, Stride: each, Format: mat.Format(f)}, mat.Floats{V: x, Stride: n}, rows, 1, n)
					})
				})
			}
			if set.GEMV.Halves() {
				sums := make([]float32, set.GEMV.HalvesSums(unit/(2*n)+8, 1))
				b.Run(fmt.Sprintf("%s/halves/%d", set.Name, n), func(b *testing.B) {
					one(b, 2*n, func(w []byte, rows int) {
						set.GEMV.MulHalves(mat.Floats{V: y, Stride: rows}, mat.Weights{Data: w, Stride: 2 * n, Format: mat.BFloat16}, x, sums, rows, 1, n, 0, true)
					})
				})
			}
		}
	}
}

// BenchmarkFewTokens is products of tiles of so many tokens, of the variants that have such tiles.
func BenchmarkFewTokens(b *testing.B) {
	data := uncached(b)
	for _, set := range variants() {
		if !set.AMX {
			continue
		}
		for _, n := range []int{1024, 2048, 5632} {
			for _, tokens := range []int{16, 32, 64, 128} {
				b.Run(fmt.Sprintf("%s/%d/%d", set.Name, n, tokens), func(b *testing.B) {
					rows, words := max((256<<10)/(2*n)/gemm.CoupleTokens, 1)*gemm.CoupleTokens, gemm.PanelWords(n)
					x, c := make([]uint32, tokens/gemm.PanelTokens*words), make([]float32, rows*gemm.CoupleTokens)
					besideReads(b, data, func(w []byte) {
						for ; len(w) >= 2*rows*n; w = w[2*rows*n:] {
							f := gemm.Fetch{Next: w[2*rows*n:]}
							for t := 0; t < tokens; t += gemm.CoupleTokens {
								f.Quarters = max(4/mat.CeilDiv(tokens, gemm.CoupleTokens), 1)
								set.GEMM.TileRows(c, mat.Weights{Data: w, Stride: 2 * n, Format: mat.BFloat16}, x[t/gemm.PanelTokens*words:], words, min(2, (tokens-t)/gemm.PanelTokens), rows, n/gemm.BlockK, f)
								f.Done += f.Quarters
							}
						}
					})
				})
			}
		}
	}
}

// TestTileOne: tiles of one token give the bits of tiles of many, for rows fetched ahead in part or
// whole and for any number of them beside the streams, and read nothing past the weights.
func TestTileOne(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(8, 2))
		for i, blocks := range []int{1, 2, 15, 16, 17, 40} {
			for rows := 1 + i%3; rows < 40; rows += 3 {
				n := blocks * gemm.BlockK
				data, _ := store(mat.BFloat16, random(r, rows*n), 0)
				lies, x := guarded(t, len(data)), random(r, n)
				copy(lies, data)
				want := tiled(set, data, x, nil, rows, 1, n, 1000)
				pairs, y := make([]uint32, mat.PairWords(n)), make([]float32, rows)
				set.Vector.Narrow(pairs, x)
				set.GEMV.TileOne(y, mat.Weights{Data: lies, Stride: 2 * n, Format: mat.BFloat16}, pairs, rows, blocks)
				sameBits(t, fmt.Sprintf("%d rows of %d blocks", rows, blocks), y, want)
			}
		}
	})
}
