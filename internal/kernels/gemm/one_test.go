package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestTileOne: tiles of one token give the bits of tiles of many, for rows fetched ahead in part or
// whole and for any number of them beside the streams, and read nothing past the weights.
func TestTileOne(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(8, 2))
		for i, blocks := range []int{1, 2, 15, 16, 17, 40} {
			for rows := 1 + i%3; rows < 40; rows += 3 {
				n := blocks * gemm.BlockK
				data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), 0)
				lies, x := kerneltest.Guarded(t, len(data)), kerneltest.Random(r, n)
				copy(lies, data)
				want := kerneltest.Tiled(set, data, x, nil, rows, 1, n, 1000)
				pairs, y := make([]uint32, mat.PairWords(n)), make([]float32, rows)
				set.Vector.RoundPairs(pairs, x)
				set.GEMV.MulTile(y, mat.Weights{Data: lies, Stride: 2 * n, Format: mat.BFloat16}, pairs, rows, blocks)
				kerneltest.SameBits(t, fmt.Sprintf("%d rows of %d blocks", rows, blocks), y, want)
			}
		}
	})
}
