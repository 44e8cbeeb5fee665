package qgemm

import (
	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// bytePacker is implemented by packers that look bytes up in a table of 128 entries: the values
// of codes without sign times a scale, rounded to bfloat16. The sign of the code is applied to
// the entry. The bits are those of the other kernel.
type bytePacker interface {
	// packBytes packs whole blocks of rows that begin stride bytes apart and share a scale.
	// values holds the values of codes without sign.
	packBytes(dst []uint32, codes []byte, stride int, values *[128]float32, scale float32, rows, blocks int)
}

var e4m3Magnitudes = func() (v [128]float32) {
	for i := range v {
		v[i] = floats.FromE4M3(byte(i))
	}
	return v
}()

// packRuns packs whole blocks of an FP8 matrix, one run after another. A run is the blocks and
// rows that share a scale, limited to the number of blocks of all rows that fit the first-level
// cache.
func (s *Kernels) packRuns(k bytePacker, dst []uint32, p *quant.Packed, row, step, col, rows, blocks int) {
	chunks := mat.CeilDiv(p.Width, p.Columns)
	for b := 0; b < blocks; {
		first := col + b*gemm.BlockK
		n := min(packBlocks, blocks-b, mat.CeilDiv((first/p.Columns+1)*p.Columns-first, gemm.BlockK))
		for i := 0; i < rows; {
			r := row + i*step
			group := r / p.Rows
			count := min(rows-i, mat.CeilDiv((group+1)*p.Rows-r, step))
			scale := p.CodeScale(group*chunks + first/p.Columns)
			codes := p.Codes[r*p.Width+first : (r+(count-1)*step)*p.Width+first+n*gemm.BlockK]
			k.packBytes(dst[b*gemm.BlockK/2*gemm.PackRows+i*gemm.BlockK/2:], codes, step*p.Width, &e4m3Magnitudes, scale, count, n)
			i += count
		}
		b += n
	}
}
