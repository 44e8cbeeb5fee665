package kernels

import (
	"encoding/binary"
	"math"
)

// goLanes is the number of partial sums of the Go variant.
const goLanes = 8

// mixBlock is how many columns of Mix are widened at a time.
const mixBlock = 256

// goOps is the reference. Products are rounded before they are added (the conversions
// to float32 forbid fusing), so that every GOARCH computes the same bits.
type goOps struct{}

func (goOps) mul(y Floats, w Weights, x Floats, rows, tokens, n int) {
	size := n * w.Format.Size()
	for r := range rows {
		row := w.Data[r*w.Stride:][:size]
		for t := range tokens {
			in := x.V[t*x.Stride:][:n]
			var sum float32
			switch w.Format {
			case BFloat16:
				sum = dotBFloat16(row, in)
			case Float16:
				sum = dotFloat16(row, in)
			case Float32:
				sum = dotFloat32(row, in)
			}
			y.V[t*y.Stride+r] = sum
		}
	}
}

// lanes8 are the partial sums of one dot product.
type lanes8 [goLanes]float32

func (l *lanes8) fold() float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

func dotBFloat16(w []byte, x []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a, b := binary.LittleEndian.Uint64(w[2*i:]), binary.LittleEndian.Uint64(w[2*i+8:])
		v := (*[8]float32)(x[i:])
		s0 += float32(math.Float32frombits(uint32(a)<<16) * v[0])
		s1 += float32(math.Float32frombits(uint32(a)&0xffff0000) * v[1])
		s2 += float32(math.Float32frombits(uint32(a>>32)<<16) * v[2])
		s3 += float32(math.Float32frombits(uint32(a>>32)&0xffff0000) * v[3])
		s4 += float32(math.Float32frombits(uint32(b)<<16) * v[4])
		s5 += float32(math.Float32frombits(uint32(b)&0xffff0000) * v[5])
		s6 += float32(math.Float32frombits(uint32(b>>32)<<16) * v[6])
		s7 += float32(math.Float32frombits(uint32(b>>32)&0xffff0000) * v[7])
	}
	l := lanes8{s0, s1, s2, s3, s4, s5, s6, s7}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(FromBFloat16(binary.LittleEndian.Uint16(w[2*j:])) * x[j])
	}
	return l.fold()
}

func dotFloat16(w []byte, x []float32) float32 {
	var l lanes8
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a, v := (*[16]byte)(w[2*i:]), (*[8]float32)(x[i:])
		for j := range l {
			l[j] += float32(FromFloat16(uint16(a[2*j])|uint16(a[2*j+1])<<8) * v[j])
		}
	}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(FromFloat16(binary.LittleEndian.Uint16(w[2*j:])) * x[j])
	}
	return l.fold()
}

func dotFloat32(w []byte, x []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a, v := (*[32]byte)(w[4*i:]), (*[8]float32)(x[i:])
		s0 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[0:])) * v[0])
		s1 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[4:])) * v[1])
		s2 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[8:])) * v[2])
		s3 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[12:])) * v[3])
		s4 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[16:])) * v[4])
		s5 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[20:])) * v[5])
		s6 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[24:])) * v[6])
		s7 += float32(math.Float32frombits(binary.LittleEndian.Uint32(a[28:])) * v[7])
	}
	l := lanes8{s0, s1, s2, s3, s4, s5, s6, s7}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(math.Float32frombits(binary.LittleEndian.Uint32(w[4*j:])) * x[j])
	}
	return l.fold()
}

func (goOps) mix(y, p Floats, step int, v Weights, keys, tokens, cols int) {
	var buf [mixBlock]float32
	size := v.Format.Size()
	for begin := 0; begin < cols; begin += mixBlock {
		row := buf[:min(mixBlock, cols-begin)]
		for j := range keys {
			widenGo(row, v.Data[j*v.Stride+begin*size:], v.Format)
			for t := range tokens {
				weight := p.V[t*p.Stride+j*step]
				out := y.V[t*y.Stride+begin:][:len(row)]
				for c, e := range row {
					out[c] += float32(weight * e)
				}
			}
		}
	}
}

func (goOps) addLanes(lanes, x []float32, v Weights, cols int) {
	var buf [mixBlock]float32
	size := v.Format.Size()
	for j, a := range x {
		out := lanes[j%goLanes*cols:][:cols]
		for begin := 0; begin < cols; begin += mixBlock {
			row := buf[:min(mixBlock, cols-begin)]
			widenGo(row, v.Data[j*v.Stride+begin*size:], v.Format)
			for c, e := range row {
				out[begin+c] += float32(a * e)
			}
		}
	}
}

func (goOps) expSum(x []float32, shift float32) float32 {
	var l lanes8
	for i, v := range x {
		e := exp32(v - shift)
		x[i] = e
		l[i%goLanes] += e
	}
	return l.fold()
}

func (goOps) gate(dst, gate, up []float32, c1, c3 float32) {
	for i, g := range gate {
		u := float32(g * c1)
		if c3 != 0 { // 0·g³ would turn an infinity into NaN
			u = float32(g * (c1 + float32(c3*float32(g*g))))
		}
		a := g / (1 + exp32(-u))
		if up != nil {
			a *= up[i]
		}
		dst[i] = a
	}
}

func (goOps) gelu(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
	}
}

func (goOps) tanh(x []float32, inner, outer float32) {
	for i, v := range x {
		x[i] = outer * float32(math.Tanh(float64(inner*v)))
	}
}

func (goOps) scaleMax(x []float32, scale float32) float32 {
	top := float32(math.Inf(-1))
	for i, v := range x {
		v *= scale
		x[i] = v
		if v > top {
			top = v
		}
	}
	return top
}

func (goOps) sumSquares(x []float32, shift float32) float32 {
	var s lanes8
	i := 0
	for ; i+8 <= len(x); i += 8 {
		v := (*[8]float32)(x[i:])
		for j := range s {
			d := v[j] - shift
			s[j] += float32(d * d)
		}
	}
	for j := i; j < len(x); j++ {
		d := x[j] - shift
		s[j-i] += float32(d * d)
	}
	return s.fold()
}

func (goOps) widen(dst []float32, src []byte, f Format) { widenGo(dst, src, f) }

func (goOps) columns(dst Floats, w Weights, rows, cols int) { columnsGo(dst, w, 0, rows, 0, cols) }

// columnsGo transposes rows [r, rows) of columns [c, cols).
func columnsGo(dst Floats, w Weights, r, rows, c, cols int) {
	var buf [mixBlock]float32
	size := w.Format.Size()
	for ; r < rows; r++ {
		for begin := c; begin < cols; begin += mixBlock {
			row := buf[:min(mixBlock, cols-begin)]
			widenGo(row, w.Data[r*w.Stride+begin*size:], w.Format)
			for i, v := range row {
				dst.V[(begin+i)*dst.Stride+r] = v
			}
		}
	}
}

// The reduction of exp32: x = n·ln 2 + r with ln 2 in two parts, the first of which has
// so few bits that its product with n is exact.
const (
	log2E = 1.44269504088896340736
	ln2Hi = 0.693359375
	ln2Lo = -2.12194440054690582767e-4
)

// exp32 is e^x within 2 units in the last place: the Taylor polynomial of degree 7 on
// |r| ≤ ln 2 / 2, whose remainder is below 6e-9, times 2^n.
func exp32(x float32) float32 {
	switch {
	case x > 88.8:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	case x != x:
		return x
	}
	const round = 3 << 22 // adding it rounds to the nearest integer
	n := float32(float32(x*log2E)+round) - round
	r := float32(x-float32(n*ln2Hi)) - float32(n*ln2Lo)
	p := float32(r*(1./5040)) + 1./720
	p = float32(p*r) + 1./120
	p = float32(p*r) + 1./24
	p = float32(p*r) + 1./6
	p = float32(p*r) + 1./2
	p = float32(p*r) + 1
	p = float32(p*r) + 1
	// Two factors, since 2^n itself may leave the range where the result does not.
	half := int32(n) >> 1
	a := math.Float32frombits(uint32(half+127) << 23)
	b := math.Float32frombits(uint32(int32(n)-half+127) << 23)
	return float32(p*a) * b
}
