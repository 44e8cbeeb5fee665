package kernels_test

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/kerneltest"

	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/fetch/fetchtest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestMain runs all tests with several fetch plans, so that every form of a kernel is held to the
// same references, tails and guard pages.
func TestMain(m *testing.M) { os.Exit(fetchtest.Main(m)) }

// TestDecodeOnAMDReadsAsFetchPlanSays: how weights are read, many rows at once with prefetch or one
// without, changes no bit of a product with one token or with several, for all formats, tails and
// numbers of rows.
func TestDecodeOnAMDReadsAsFetchPlanSays(t *testing.T) {
	defer fetch.Use(fetch.Current())
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for _, n := range []int{1, 31, 32, 96, 512, 545, 1600} {
			for _, rows := range []int{1, 3, 5, 8, 13, 21, 147} {
				var want [][]float32
				for i, plan := range fetchtest.Plans() {
					fetch.Use(plan)
					got := everyProduct(set, rows, n)
					if i == 0 {
						want = got
					}
					for k := range got {
						for j, v := range got[k] {
							if math.Float32bits(v) != math.Float32bits(want[k][j]) {
								t.Fatalf("plan %v, product %d, %d rows of %d: element %d is %g, want %g", plan, k, rows, n, j, v, want[k][j])
							}
						}
					}
				}
			}
		}
	})
}

// everyProduct computes products of the formats whose kernels have several forms.
func everyProduct(set *kernels.Set, rows, n int) (all [][]float32) {
	r := rand.New(rand.NewPCG(uint64(rows), uint64(n)))
	values, in := kerneltest.Random(r, rows*n), kerneltest.Random(r, 3*n)
	x := mat.Floats{V: in, Stride: n}
	for f := range mat.Formats {
		data, _ := kerneltest.Store(f, values, 2)
		w := mat.Weights{Data: data, Stride: n * f.Size(), Format: f}
		for tokens := 1; tokens <= 3; tokens++ {
			y := make([]float32, tokens*rows)
			set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: rows}, W: w, X: x, Rows: rows, Tokens: tokens, N: n})
			all = append(all, y)
		}
		if f == mat.BFloat16 {
			all = append(all, bfloatProducts(set, w, x, rows, n)...)
		}
	}
	if n%quant.BlockColumns == 0 {
		all = append(all, blockProducts(set, r, in, rows, n)...)
	}
	return all
}

func bfloatProducts(set *kernels.Set, w mat.Weights, x mat.Floats, rows, n int) (all [][]float32) {
	if set.GEMV.HasSplit() {
		all = append(all, kerneltest.BySplit(set, w, x, rows, 1, n, n), kerneltest.BySplit(set, w, x, rows, 2, n, n))
	}
	if set.BF16 {
		words := mat.PairWords(n)
		narrow, y := make([]uint32, words), make([]float32, rows)
		set.Vector.RoundPairs(narrow, x.V[:n])
		set.GEMV.MulPairs(mat.Floats{V: y, Stride: rows}, w, mat.Pairs{V: narrow, Stride: words}, rows, 1, n)
		all = append(all, y)
	}
	return all
}

func blockProducts(set *kernels.Set, r *rand.Rand, in []float32, rows, n int) (all [][]float32) {
	for _, packing := range []quant.Packing{quant.Q8, quant.Q4} {
		p, _ := kerneltest.Interleaved(r, packing, rows, n)
		for tokens := 1; tokens <= 3; tokens += 2 {
			y := mat.Floats{V: make([]float32, tokens*rows), Stride: rows}
			set.QGEMM.MulInterleaved(y, quant.View{Packed: p, Step: 1, Rows: rows, Cols: n}, mat.Floats{V: in, Stride: n}, tokens, false)
			all = append(all, y.V)
			if set.QGEMM.HasInt8() {
				all = append(all, kerneltest.MulInts(set, p, 0, 1, 0, rows, in[:tokens*n], tokens, n, n/64*32))
			}
		}
	}
	for _, p := range []*quant.Packed{kerneltest.Minifloats(r, quant.E4M3, rows, n, 128, n), kerneltest.Minifloats(r, quant.MXFP4, rows, n, 1, 32)} {
		if set.QGEMM.HasMinifloat(p, 0, n) {
			all = append(all, kerneltest.MulCodes(set, p, 0, 1, rows, mat.Floats{V: in, Stride: n}, 1, n))
		}
	}
	return all
}
