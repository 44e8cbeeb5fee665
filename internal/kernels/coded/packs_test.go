package coded_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

// TestPacksAreThoseOfDecodedRows compares packs of coded rows with those of the plain rows.
func TestPacksAreThoseOfDecodedRows(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(5, 19))
		for _, cols := range []int{100, 128, 256, 640, 1152} {
			if !set.Coded.HasPacks(cols) {
				continue
			}
			const rows = 71
			for _, words := range [][]byte{trained(r, rows, cols), hostile(r, rows, cols)} {
				m := coded.Matrix{Data: kerneltest.Guarded(t, rows*coded.RowBytes(cols)), Rows: rows, Cols: cols}
				if err := coded.Encode(m.Data, words, rows, cols); err != nil {
					continue // hostile weights may have too many exceptions
				}
				for _, part := range []coded.Piece{{Rows: 64, Cols: cols}, {Row: 3, Rows: 32, Cols: 128, Col: cols - 128}, {Row: 60, Rows: 11, Cols: cols}, {Row: 70, Rows: 1, Cols: 128}} {
					part.W = &m
					comparePacks(t, set, part, words)
				}
			}
		}
	})
}

func comparePacks(t *testing.T, set *kernels.Set, p coded.Piece, words []byte) {
	t.Helper()
	packs := mat.CeilDiv(p.Rows, gemm.PackRows)
	got, want := make([]uint32, packs*gemm.PanelWords(p.Cols)), make([]uint32, packs*gemm.PanelWords(p.Cols))
	set.Coded.PackPiece(got, p)
	set.GEMM.PackPiece(want, mat.Weights{Data: words[2*(p.Row*p.W.Cols+p.Col):], Stride: 2 * p.W.Cols, Format: mat.BFloat16}, p.Rows, p.Cols, packs)
	if !slices.Equal(got, want) {
		t.Errorf("%d columns: packs of rows %d to %d, columns %d to %d differ from those of the plain rows", p.W.Cols, p.Row, p.Row+p.Rows, p.Col, p.Col+p.Cols)
	}
}
