package quant

import "github.com/heftai/heft/internal/kernels/mat"

// bnbScale is 1/127 as bitsandbytes has it.
const bnbScale float32 = 7.874015718698502e-3

// unpackInt8 widens signed bytes of a row from column col on.
func (p *Packed) unpackInt8(dst []float32, row, col int) {
	scales := row / p.Rows * mat.CeilDiv(p.Width, p.Columns)
	codes := p.Codes[row*p.Width+col:][:len(dst)]
	for len(dst) > 0 {
		block := col / p.Columns
		n := min(len(dst), (block+1)*p.Columns-col)
		scale, zero, factor := p.Scale(scales+block), 0, float32(1)
		if p.Zeros != nil {
			zero = int(int8(p.Zeros[scales+block]))
		}
		if p.Packing == BnbInt8 {
			factor = bnbScale
		}
		for i, code := range codes[:n] {
			v := float32(int(int8(code))-zero) * scale
			dst[i] = v * factor
		}
		dst, codes, col = dst[n:], codes[n:], col+n
	}
}
