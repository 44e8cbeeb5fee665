package qgemm_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// TestStoredRowsHaveTheBitsOfBands: rows as they are stored have the products of interleaved ones,
// for any number of rows from StoredRows on, any step, and any whole blocks.
func TestStoredRowsHaveTheBitsOfBands(t *testing.T) {
	const height, width = 40, 224
	random := rand.New(rand.NewPCG(21, 22))
	for name, packing := range kerneltest.BlockPackings {
		size := width / quant.BlockColumns * packing.BlockBytes()
		rows := &quant.Packed{Packing: packing, Codes: kerneltest.RandomBlocks(random, packing, height*width/32), Width: width}
		for _, s := range kerneltest.Variants() {
			if !s.QGEMM.HasInt8() {
				continue
			}
			bands := &quant.Packed{Packing: packing, Codes: make([]byte, len(rows.Codes)), Width: width, Height: height}
			s.Quant.Interleave(packing, bands.Codes, rows.Codes, size, height, width/32)
			for _, c := range []struct{ row, step, col, rows, n int }{
				{0, 1, 0, height, width}, {0, 1, 0, qgemm.StoredRows, 32}, {3, 1, 32, 13, 160}, {1, 3, 64, 13, 96}, {height - 9, 1, 160, 9, 64}, {0, 2, 0, 20, 192},
			} {
				x := make([]float32, c.n)
				for i := range x {
					x[i] = float32(random.NormFloat64())
				}
				want := kerneltest.MulInts(&s, bands, c.row, c.step, c.col, c.rows, x, 1, c.n, c.n)
				rounded, got := make([]uint32, s.QGEMM.Int8Words(packing, c.n)), make([]float32, c.rows)
				s.QGEMM.RoundInt8(packing, rounded, x)
				s.QGEMM.MulInt8Stored(got, quant.View{Packed: rows, Row: c.row, Step: c.step, Col: c.col, Rows: c.rows, Cols: c.n}, rounded)
				kerneltest.SameFloats(t, fmt.Sprintf("%s by %s, %+v", name, s.Name, c), got, want)
			}
		}
	}
}

// BenchmarkStoredRows is one token through weights that no cache holds, in units as the cpu backend
// cuts them, stored by rows and interleaved.
func BenchmarkStoredRows(b *testing.B) {
	const size, unit = 1 << 27, 128
	for _, s := range kerneltest.Variants() {
		if !s.QGEMM.HasInt8() || s.Name == "amx" || s.Name == "avx512" { // which have those of others
			continue
		}
		for name, packing := range kerneltest.BlockPackings {
			for _, width := range []int{2048, 5632} {
				rows := size / width / unit * unit
				p := &quant.Packed{Packing: packing, Codes: make([]byte, rows*width/32*packing.BlockBytes()), Width: width}
				for i := range p.Codes {
					p.Codes[i] = byte(i * 7 % 113)
				}
				bands, x := *p, make([]uint32, s.QGEMM.Int8Words(packing, width))
				bands.Height = rows
				mul := map[string]func(y []float32, row int){
					"stored": func(y []float32, row int) {
						s.QGEMM.MulInt8Stored(y, quant.View{Packed: p, Row: row, Step: 1, Rows: unit, Cols: width}, x)
					},
					"bands": func(y []float32, row int) {
						s.QGEMM.MulInt8(mat.Floats{V: y, Stride: unit}, quant.View{Packed: &bands, Row: row, Step: 1, Rows: unit, Cols: width}, mat.Pairs{V: x, Stride: len(x)}, 1, false)
					},
				}
				for how, mul := range mul {
					for _, threads := range []int{1, 2} {
						b.Run(fmt.Sprintf("%s/%d/%s/%d/%s", name, width, s.Name, threads, how), func(b *testing.B) {
							b.SetBytes(int64(len(p.Codes)))
							for b.Loop() {
								var all sync.WaitGroup
								for i := range threads {
									all.Go(func() {
										y := make([]float32, unit)
										for u := i * rows / unit / threads; u < (i+1)*rows/unit/threads; u++ {
											mul(y, u*unit)
										}
									})
								}
								all.Wait()
							}
						})
					}
				}
			}
		}
	}
}
