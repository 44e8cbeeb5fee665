package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

// Blocks of Q8 and Q4 are those of GGUF files.
const (
	// BlockColumns is the number of columns of a block of Q8 and Q4.
	BlockColumns = 32
	// Q8Bytes and Q4Bytes are the sizes of one.
	Q8Bytes = 2 + 32
	Q4Bytes = 2 + 16
)

// maxBlockColumns is the number of columns of the largest block.
const maxBlockColumns = 256

// blocker is what a variant implements for the packings in blocks. Bounds have been
// checked, and the numbers of columns are multiples of 32.
type blocker interface {
	unpackBlocks(p Packing, dst []float32, blocks []byte)
	// packBlocks is the same in all variants, bit for bit.
	packBlocks(p Packing, dst []byte, x []float32)
	// dots reports whether the variant has dotBlocks, which sets y[i] to the product of x with the row of
	// blocks at byte i·stride.
	dots() bool
	dotBlocks(p Packing, y []float32, blocks []byte, stride int, x []float32)
}

// PackBlocks stores x, whole blocks of it, at dst as p, which is Q8 or Q4. All variants
// store the same bits. It reports false where a value is not finite or a scale would not
// be.
func (s *Kernels) PackBlocks(p Packing, dst []byte, x []float32) bool {
	n, size := len(x)/BlockColumns, p.BlockBytes()
	dst = dst[:n*size]
	if n == 0 {
		return true
	}
	s.ops.packBlocks(p, dst, x[:n*BlockColumns])
	for i := 0; i < len(dst); i += size {
		if dst[i+1]&0x7c == 0x7c { // a scale that is infinite or no number
			return false
		}
	}
	return true
}

// unpackRow unpacks columns of a row from col on. A block of which only a part is wanted is widened in
// part first.
func (p *Packed) unpackRow(ops ops, dst []float32, row, col int, part []float32) {
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

// largest is the largest magnitude, NaN where one is NaN.
func largest(x *[BlockColumns]float32) float32 {
	top := uint32(0)
	for _, v := range x {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	return math.Float32frombits(top)
}

func finite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

// packQ8 makes the largest magnitude 127; codes are the nearest for the scale as it is
// stored.
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

// inverseScale is 0 where there is no inverse.
func inverseScale(h uint16) float32 {
	if d := mat.FromFloat16(h); d != 0 && finite(d) {
		return 1 / d
	}
	return 0
}

// packQ4 chooses the scale by least squares. For some codes q the best scale is
// Σxq ÷ Σq², which leaves Σx² - (Σxq)² ÷ Σq² of error. Codes are rounded for scales that
// give the value of largest magnitude, whose sign is the scale's with the eight codes below
// zero, from 6.75 to 8.75 steps: what is beyond is clipped. The best scale of the best of
// these is refined once with its own codes.
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

// codeQ4 is the code of v, less 8.
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

// sumsQ4 are Σxq and Σq², in 16 lanes that are added in halves.
func sumsQ4(x *[BlockColumns]float32, by float32) (xq, qq float32) {
	var lanes [16]float32
	for i := range lanes {
		p, q := codeQ4(x[i], by), codeQ4(x[i+16], by)
		lanes[i] = float32(x[i]*p) + float32(x[i+16]*q)
		qq += p*p + q*q // small integers: exact
	}
	for half := 8; half > 0; half /= 2 {
		for i := range half {
			lanes[i] += lanes[i+half]
		}
	}
	return lanes[0], qq
}
