package vector

import (
	"github.com/heftai/heft/internal/kernels/mat"
)

// pointwise is implemented by each variant for the operations below, with the same bits. Slices
// have the same length.
type pointwise interface {
	addRounded(dst, x []float32, a float32)
	norm(dst, x, w, b []float32, mean, by, offset float32)
	rotate(a, b, cos, sin []float32)
	narrowBFloat16(dst []byte, x []float32)
	sigmoid(dst, x []float32)
}

// AddRounded sets dst[i] += a·x[i]. The product is rounded before the addition.
func (s *Kernels) AddRounded(dst, x []float32, a float32) { s.ops.addRounded(dst, x[:len(dst)], a) }

// Affine holds the coefficients of [Kernels.Norm]. A normalised element is (x − Mean) · By, and
// Offset is added to weights.
type Affine struct{ Mean, By, Offset float32 }

// Norm sets dst[i] = (x[i] − Mean) · By · (Offset + w[i]) + b[i]. If w is nil, that factor is 1.
// If b is nil, nothing is added. dst may be x.
func (s *Kernels) Norm(dst, x, w, b []float32, a Affine) {
	x = x[:len(dst)]
	if w != nil {
		w = w[:len(dst)]
	}
	if b != nil {
		b = b[:len(dst)]
	}
	s.ops.norm(dst, x, w, b, a.Mean, a.By, a.Offset)
}

// Rotate rotates the pairs (a[i], b[i]) by the angles with the given cosines and sines.
func (s *Kernels) Rotate(a, b, cos, sin []float32) {
	s.ops.rotate(a, b[:len(a)], cos[:len(a)], sin[:len(a)])
}

// NarrowBFloat16 stores x rounded to bfloat16 at dst, like [mat.NarrowBFloat16].
func (s *Kernels) NarrowBFloat16(dst []byte, x []float32) { s.ops.narrowBFloat16(dst[:2*len(x)], x) }

// Sigmoid sets dst[i] = 1 / (1 + exp(−x[i])), which is [AccurateSigmoid] rounded to float32. dst
// may be x.
func (s *Kernels) Sigmoid(dst, x []float32) { s.ops.sigmoid(dst, x[:len(dst)]) }

func (goOps) sigmoid(dst, x []float32) {
	for i, v := range x {
		dst[i] = float32(AccurateSigmoid(float64(v)))
	}
}

func (goOps) addRounded(dst, x []float32, a float32) {
	for i, v := range x {
		dst[i] += float32(a * v)
	}
}

func (goOps) norm(dst, x, w, b []float32, mean, by, offset float32) {
	for i, v := range x {
		v = (v - mean) * by
		if w != nil {
			v = float32(v * (offset + w[i]))
		}
		if b != nil {
			v += b[i]
		}
		dst[i] = v
	}
}

func (goOps) rotate(a, b, cos, sin []float32) {
	for i, u := range a {
		v, c, s := b[i], cos[i], sin[i]
		a[i] = float32(u*c) - float32(v*s)
		b[i] = float32(v*c) + float32(u*s)
	}
}

func (goOps) narrowBFloat16(dst []byte, x []float32) { mat.NarrowBFloat16(dst, x) }
