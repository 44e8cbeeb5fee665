package gemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestTileSteps: steps of k give the bits of whole rows, however tokens are divided into calls, with two packs and with four.
func TestTileSteps(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(3, 10))
		for _, s := range [][4]int{{1, 1, 1, 2}, {33, 70, 1, 4}, {64, 512, 2, 2}, {95, 1100, 16, 2}, {95, 1100, 8, 4}, {32, 96, 3, 4}} { // tokens, n, blocks of a step, packs
			tokens, n, blocks, packs := s[0], s[1], s[2], s[3]
			rows := packs * gemm.PackRows
			data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), 3)
			x := kerneltest.Random(r, tokens*n)
			want := kerneltest.Tiled(set, data, x, nil, rows, tokens, n, 1)
			got := tiledInSteps(set, data, x, packs, tokens, n, blocks)
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("shape %v, row %d, token %d: got %g, want %g", s, i%rows, i/rows, got[i], want[i])
				}
			}
		}
	})
}

// tiledInSteps computes products of bfloat16 rows by TileSteps in two calls for each step, sums of one token after another.
func tiledInSteps(set *kernels.Set, data []byte, x []float32, packs, tokens, n, blocks int) []float32 {
	rows, count := packs*gemm.PackRows, mat.CeilDiv(tokens, gemm.PanelTokens)
	sums := make([]float32, rows*count*gemm.PanelTokens)
	for k := 0; k < n; k += blocks * gemm.BlockK {
		cols := min(blocks*gemm.BlockK, n-k)
		size := gemm.PanelWords(cols)
		panels, w := make([]uint32, count*size), make([]uint32, packs*size)
		for i := range count {
			own := min(gemm.PanelTokens, tokens-i*gemm.PanelTokens)
			set.GEMM.PackTokens(panels[i*size:], mat.Floats{V: x[i*gemm.PanelTokens*n+k:], Stride: n}, own, cols)
		}
		for i := range packs {
			set.GEMM.PackWeights(w[i*size:], mat.Weights{Data: data[i*gemm.PackRows*2*n+2*k:], Stride: 2 * n, Format: mat.BFloat16}, gemm.PackRows, cols)
		}
		first := count / 2 // panels of the first call
		for _, part := range [][2]int{{0, first}, {first, count}} {
			set.GEMM.TileSteps(&gemm.StepTiles{C: sums[part[0]*rows*gemm.PanelTokens:], W: w, X: panels[part[0]*size:], Packs: packs, Blocks: mat.CeilDiv(cols, gemm.BlockK), Panels: part[1] - part[0], Add: k > 0})
		}
	}
	y := make([]float32, rows*tokens)
	for i := range y {
		token, row := i/rows, i%rows
		y[i] = sums[(token/gemm.PanelTokens*rows+row)*gemm.PanelTokens+token%gemm.PanelTokens]
	}
	return y
}

// TestPackPiece: packs of a piece have the words that PackWeights gives for each, also where rows and columns end early.
func TestPackPiece(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(3, 12))
		for _, s := range [][3]int{{64, 256, 4}, {50, 256, 4}, {17, 70, 2}, {1, 1, 4}, {32, 33, 2}, {5, 31, 2}} { // rows, n, packs
			rows, n, packs := s[0], s[1], s[2]
			data, _ := kerneltest.Store(mat.BFloat16, kerneltest.Random(r, rows*n), 3)
			w, size := mat.Weights{Data: data, Stride: 2 * n, Format: mat.BFloat16}, gemm.PanelWords(n)
			got, want := make([]uint32, packs*size), make([]uint32, packs*size)
			for i := range got {
				got[i] = 0xdeadbeef
			}
			set.GEMM.PackPiece(got, w, rows, n, packs)
			for i := range packs {
				own := w
				first := min(i*gemm.PackRows, rows)
				own.Data = data[first*2*n:]
				set.GEMM.PackWeights(want[i*size:], own, min(gemm.PackRows, rows-first), n)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("shape %v, word %d: got %#x, want %#x", s, i, got[i], want[i])
				}
			}
		}
	})
}

// TestStoreSteps: results lie where they belong, whether or not they are stored past the caches, for whole lines and parts
// of lines, and nothing is stored outside of them.
func TestStoreSteps(t *testing.T) {
	kerneltest.EachRounding(t, func(t *testing.T, set *kernels.Set) {
		if !set.AMX {
			return
		}
		r := rand.New(rand.NewPCG(3, 11))
		for _, s := range [][4]int{{16, 64, 4, 64}, {16, 150, 4, 160}, {16, 48, 2, 48}, {5, 70, 2, 80}, {16, 64, 4, 67}, {1, 1, 4, 1}} { // tokens, rows, packs, stride of results
			tokens, rows, packs, stride := s[0], s[1], s[2], s[3]
			piece := packs * gemm.PackRows
			apart := piece*gemm.PanelTokens + 32
			c, bias := kerneltest.Random(r, mat.CeilDiv(rows, piece)*apart), kerneltest.Random(r, rows)
			for _, past := range []bool{false, true} {
				for _, b := range [][]float32{nil, bias} {
					y := make([]float32, (tokens+1)*stride+16)
					at := int(64-uintptr(unsafe.Pointer(unsafe.SliceData(y)))%64) / 4 % 16 // lines begin there
					set.GEMM.StoreSteps(&gemm.StepSums{Y: mat.Floats{V: y[at:], Stride: stride}, C: c, Stride: apart, Bias: b, Packs: packs, Rows: rows, Tokens: tokens, Past: past})
					for i, got := range y {
						want, token, row := float32(0), (i-at)/stride, (i-at)%stride
						if i >= at && token < tokens && row < rows {
							want = c[row/piece*apart+row%piece*gemm.PanelTokens+token]
							if b != nil {
								want += b[row]
							}
						}
						if got != want {
							t.Fatalf("shape %v, past caches %v, with bias %v: element %d is %g, want %g", s, past, b != nil, i, got, want)
						}
					}
				}
			}
		}
	})
}

// BenchmarkTileSteps is a step of a prompt of 512 tokens on 256 rows: packs in the first-level cache, tokens and sums in the
// second. Memory that was never written is one page of zeros, in the first-level cache, so all operands are filled.
func BenchmarkTileSteps(b *testing.B) {
	const rows, tokens = 256, 512
	for _, set := range kerneltest.Variants() {
		if !set.AMX {
			continue
		}
		for _, packs := range []int{2, 4} {
			b.Run(fmt.Sprintf("packs=%d", packs), func(b *testing.B) {
				blocks, panels := gemm.StepBlocks, tokens/gemm.PanelTokens
				size := gemm.PanelWords(blocks * gemm.BlockK)
				w, x, c := filled(packs*size), filled(panels*size), make([]float32, rows*tokens)
				for i := range c {
					c[i] = 1
				}
				for b.Loop() {
					for r := 0; r < rows; r += packs * gemm.PackRows {
						set.GEMM.TileSteps(&gemm.StepTiles{C: c[r*tokens:], W: w, X: x, Packs: packs, Blocks: blocks, Panels: panels, Add: true})
					}
				}
				b.ReportMetric(float64(2*rows*tokens*blocks*gemm.BlockK)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOPS")
			})
		}
	}
}
