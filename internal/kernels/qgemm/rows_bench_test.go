//go:build linux

package qgemm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// BenchmarkOneTokenRows: one token with rows of each packing that no cache holds, in units of 60 rows, beside reads
// of the same memory. "share" is the rate as a part of theirs.
func BenchmarkOneTokenRows(b *testing.B) {
	const width, rows = 2048, 60
	data := kerneltest.Uncached(b)
	for p := quant.Q41; p < quant.Packings; p++ {
		if !p.HasRows() {
			continue
		}
		w := &quant.Packed{Packing: p, Width: width, Rows: 1, Columns: p.BlockColumns()}
		unit := rows * width / p.BlockColumns() * p.BlockBytes()
		x, y := kerneltest.Random(rand.New(rand.NewPCG(7, 8)), width), mat.Floats{V: make([]float32, rows), Stride: rows}
		for _, s := range kerneltest.Variants() {
			if !s.QGEMM.HasRows(w, 0, width) || s.AMX || s.BF16 && !s.Bytes {
				continue // has the kernels of another variant
			}
			in := mat.Pairs{V: make([]uint32, qgemm.RowsWords(width)), Stride: qgemm.RowsWords(width)}
			s.QGEMM.RoundRows(in.V, x)
			b.Run(fmt.Sprintf("%v/%s", p, s.Name), func(b *testing.B) {
				kerneltest.BesideReads(b, data, func(part []byte) {
					for ; len(part) >= unit; part = part[unit:] {
						w.Codes = part[:unit]
						s.QGEMM.MulRows(y, quant.View{Packed: w, Step: 1, Rows: rows, Cols: width}, in, 1)
					}
				})
			})
		}
	}
}
