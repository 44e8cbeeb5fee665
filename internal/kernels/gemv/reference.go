package gemv

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/kernels/mat"
)

func (goOps) mul(p *Product) {
	w := &p.W
	size := p.N * w.Format.Size()
	for r := range p.Rows {
		row := w.Data[r*w.Stride:][:size]
		for t := range p.Tokens {
			in := p.X.V[t*p.X.Stride:][:p.N]
			var sum float32
			switch w.Format {
			case mat.BFloat16:
				sum = dotBFloat16(row, in)
			case mat.Float16:
				sum = dotFloat16(row, in)
			case mat.Float32:
				sum = dotFloat32(row, in)
			}
			p.Y.V[t*p.Y.Stride+r] = sum
		}
	}
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
	l := mat.Lanes8{s0, s1, s2, s3, s4, s5, s6, s7}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(mat.FromBFloat16(binary.LittleEndian.Uint16(w[2*j:])) * x[j])
	}
	return l.Fold()
}

func dotFloat16(w []byte, x []float32) float32 {
	var l mat.Lanes8
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a, v := (*[16]byte)(w[2*i:]), (*[8]float32)(x[i:])
		for j := range l {
			l[j] += float32(mat.FromFloat16(uint16(a[2*j])|uint16(a[2*j+1])<<8) * v[j])
		}
	}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(mat.FromFloat16(binary.LittleEndian.Uint16(w[2*j:])) * x[j])
	}
	return l.Fold()
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
	l := mat.Lanes8{s0, s1, s2, s3, s4, s5, s6, s7}
	for j := i; j < len(x); j++ {
		l[j-i] += float32(math.Float32frombits(binary.LittleEndian.Uint32(w[4*j:])) * x[j])
	}
	return l.Fold()
}

func (goOps) mix(y, p mat.Floats, step int, v mat.Weights, keys, tokens, cols int) {
	var buf [mat.RowBlock]float32
	size := v.Format.Size()
	for begin := 0; begin < cols; begin += mat.RowBlock {
		row := buf[:min(mat.RowBlock, cols-begin)]
		for j := range keys {
			mat.Widen(row, v.Data[j*v.Stride+begin*size:], v.Format)
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

func (goOps) addLanes(lanes, x []float32, v mat.Weights, cols int) {
	var buf [mat.RowBlock]float32
	size := v.Format.Size()
	for j, a := range x {
		out := lanes[j%mat.GoLanes*cols:][:cols]
		for begin := 0; begin < cols; begin += mat.RowBlock {
			row := buf[:min(mat.RowBlock, cols-begin)]
			mat.Widen(row, v.Data[j*v.Stride+begin*size:], v.Format)
			for c, e := range row {
				out[begin+c] += float32(a * e)
			}
		}
	}
}

// goOps is the reference implementation. It rounds products before it adds them (the conversions
// to float32 forbid fusing), so that every GOARCH computes the same bits.
type goOps struct{}
