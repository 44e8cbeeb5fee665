package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

// The blocks of Q8 and Q4 are those of GGUF files.
const (
	// BlockColumns is the number of columns in a block of Q8 and Q4.
	BlockColumns = 32
	// Q8Bytes and Q4Bytes are the sizes of their blocks.
	Q8Bytes = 2 + 32
	Q4Bytes = 2 + 16
)

// maxBlockColumns is the number of columns in the largest block.
const maxBlockColumns = 256

// blocker is implemented by each variant for packings in blocks. The caller has checked bounds,
// and numbers of columns are multiples of 32.
type blocker interface {
	unpackBlocks(p Packing, dst []float32, blocks []byte)
	// packBlocks has the same bits in all variants.
	packBlocks(p Packing, dst []byte, x []float32)
	// dots reports whether the variant has dotBlocks, which sets y[i] to the dot product of x and
	// the row of blocks at byte i·stride.
	dots() bool
	dotBlocks(p Packing, y []float32, blocks []byte, stride int, x []float32)
}

// PackBlocks quantises x, whole blocks of it, to p, which is Q8 or Q4, and stores it at dst. All
// variants store the same bits. It returns false if a value is not finite or a scale overflows.
func (s *Kernels) PackBlocks(p Packing, dst []byte, x []float32) bool {
	n, size := len(x)/BlockColumns, p.BlockBytes()
	dst = dst[:n*size]
	if n == 0 {
		return true
	}
	s.ops.packBlocks(p, dst, x[:n*BlockColumns])
	for i := 0; i < len(dst); i += size {
		if dst[i+1]&0x7c == 0x7c { // the scale is infinite or a NaN
			return false
		}
	}
	return true
}

// unpackRow dequantises columns of a row from col on. If only a part of a block is wanted, the
// block is widened into part first.
func (p *Packed) unpackRow(ops ops, dst []float32, row, col int, part []float32) {
	if p.Packing == NVFP4Block && p.Global != 1 {
		defer multiply(dst, p.Global)
	}
	size, columns, stride := p.Packing.BlockBytes(), p.Packing.BlockColumns(), p.RowBytes()
	blocks := p.Codes[row*stride:][:stride][col/columns*size:]
	for len(dst) > 0 {
		n := len(dst) / columns
		if lead := col % columns; lead != 0 || n == 0 {
			UnpackBlocks(p.Packing, part[:columns], blocks[:size])
			n = copy(dst, part[lead:columns])
			dst, col, blocks = dst[n:], col+n, blocks[size:]
			continue
		}
		if whole := dst[:n*columns]; packings[p.Packing].simd {
			ops.unpackBlocks(p.Packing, whole, blocks[:n*size])
		} else {
			UnpackBlocks(p.Packing, whole, blocks[:n*size])
		}
		dst, col, blocks = dst[n*columns:], col+n*columns, blocks[n*size:]
	}
}

// multiply multiplies values by a number.
func multiply(values []float32, by float32) {
	for i := range values {
		values[i] *= by
	}
}

func (goOps) unpackBlocks(p Packing, dst []float32, blocks []byte) { UnpackBlocks(p, dst, blocks) }

func (goOps) dots() bool { return false }

func (goOps) dotBlocks(Packing, []float32, []byte, int, []float32) {}

func (goOps) packBlocks(p Packing, dst []byte, x []float32) {
	for i := 0; i < len(x); i += BlockColumns {
		block := (*[BlockColumns]float32)(x[i:])
		if p == Q8 {
			packQ8(dst[:Q8Bytes], block)
			dst = dst[Q8Bytes:]
		} else {
			packQ4(dst[:Q4Bytes], block)
			dst = dst[Q4Bytes:]
		}
	}
}

const notANumber = 0x7e00 // as float16

// largest returns the largest magnitude, or NaN if an element is NaN.
func largest(x *[BlockColumns]float32) float32 {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(top)
}

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// packQ8 quantises the largest magnitude to 127. Codes are rounded to the nearest for the scale
// as stored.
func packQ8(dst []byte, x *[BlockColumns]float32) {
	h := uint16(notANumber)
	if top := largest(x); finite(top) {
		h = mat.ToFloat16(top / 127)
	}
	by := inverseScale(h)
	binary.LittleEndian.PutUint16(dst, h)
	for i, v := range x {
		q := int(math.RoundToEven(float64(float32(v * by))))
		dst[2+i] = byte(int8(max(min(q, 127), -127)))
	}
}

// inverseScale returns the inverse of a float16 scale, or 0 if there is none.
func inverseScale(h uint16) float32 {
	if d := mat.FromFloat16(h); d != 0 && finite(d) {
		return 1 / d
	}
	return 0
}

// packQ4 chooses the scale by least squares. For given codes q the best scale is Σxq ÷ Σq², which
// leaves an error of Σx² - (Σxq)² ÷ Σq². Codes are rounded for several scales, which put the
// value of largest magnitude at 6.75 to 8.75 steps. That value is on the side with eight codes
// below zero, and larger results are clipped. The best scale for the best of these codes is
// refined once with its own codes.
func packQ4(dst []byte, x *[BlockColumns]float32) {
	h := uint16(notANumber)
	if m := largest(x); finite(m) {
		h = scaleQ4(x, m)
	}
	by := inverseScale(h)
	binary.LittleEndian.PutUint16(dst, h)
	for i := range 16 {
		dst[2+i] = byte(codeQ4(x[i], by)+8) | byte(codeQ4(x[i+16], by)+8)<<4
	}
}

func scaleQ4(x *[BlockColumns]float32, m float32) uint16 {
	if m == 0 {
		return 0
	}
	for _, v := range x {
		if v == -m {
			m = -m
			break
		}
	}
	var best, d float32
	for s := float32(-6.75); s >= -8.75; s -= 0.25 {
		xq, qq := sumsQ4(x, s/m)
		if score := float32(xq*xq) / qq; score > best {
			best, d = score, xq/qq
		}
	}
	h := mat.ToFloat16(d)
	if !finite(mat.FromFloat16(h)) {
		return h
	}
	if xq, qq := sumsQ4(x, inverseScale(h)); qq > 0 {
		h = mat.ToFloat16(xq / qq)
	}
	return h
}

// codeQ4 returns the code of v, less 8.
func codeQ4(v, by float32) float32 {
	q := float32(math.RoundToEven(float64(float32(v * by))))
	if !(q < 7) {
		q = 7
	}
	if !(q > -8) {
		q = -8
	}
	return q
}

// sumsQ4 returns Σxq and Σq², summed in 16 lanes that are added in halves.
func sumsQ4(x *[BlockColumns]float32, by float32) (xq, qq float32) {
	var lanes [16]float32
	for i := range lanes {
		p, q := codeQ4(x[i], by), codeQ4(x[i+16], by)
		lanes[i] = float32(x[i]*p) + float32(x[i+16]*q)
		qq += p*p + q*q // exact: small integers
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0], qq
}
