//go:build !purego

package grad

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
)

//go:noinline
func (a *simd) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
	dg, du, d, g, u, n := asm.Floats(dgate), asm.Floats(dup), asm.Floats(dy), asm.Floats(gate), asm.Floats(up), int64(len(dgate))
	switch alone := up == nil; {
	case a.wide && tanh && alone:
		avx512GELUTanhGradAlone(dg, d, g, n)
	case a.wide && tanh:
		avx512GELUTanhGrad(dg, du, d, g, u, n)
	case a.wide && alone:
		avx512SiLUGradAlone(dg, d, g, n)
	case a.wide:
		avx512SiLUGrad(dg, du, d, g, u, n)
	case tanh && alone:
		avx2GELUTanhGradAlone(dg, d, g, n)
	case tanh:
		avx2GELUTanhGrad(dg, du, d, g, u, n)
	case alone:
		avx2SiLUGradAlone(dg, d, g, n)
	default:
		avx2SiLUGrad(dg, du, d, g, u, n)
	}
}

//go:noinline
func (a *simd) softmaxGrad(g, p []float32, c [9]float32) {
	if a.wide {
		avx512SoftmaxGrad(asm.Floats(g), asm.Floats(p), int64(len(g)), unsafe.Pointer(&c))
	} else {
		avx2SoftmaxGrad(asm.Floats(g), asm.Floats(p), int64(len(g)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) normal(y, x, w []float32, c [9]float32) {
	if a.wide {
		avx512Normal(asm.Floats(y), asm.Floats(x), asm.Floats(w), int64(len(y)), unsafe.Pointer(&c))
	} else {
		avx2Normal(asm.Floats(y), asm.Floats(x), asm.Floats(w), int64(len(y)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) normSums(dy, x, w []float32, c [9]float32) (along, level float64) {
	var s [2]float64
	if a.wide {
		avx512NormSums(asm.Floats(dy), asm.Floats(x), asm.Floats(w), int64(len(dy)), unsafe.Pointer(&c), unsafe.Pointer(&s))
	} else {
		avx2NormSums(asm.Floats(dy), asm.Floats(x), asm.Floats(w), int64(len(dy)), unsafe.Pointer(&c), unsafe.Pointer(&s))
	}
	return s[0], s[1]
}

//go:noinline
func (a *simd) normGrad(dx, dy, x, w []float32, c [9]float32) {
	if a.wide {
		avx512NormGrad(asm.Floats(dx), asm.Floats(dy), asm.Floats(x), asm.Floats(w), int64(len(dx)), unsafe.Pointer(&c))
	} else {
		avx2NormGrad(asm.Floats(dx), asm.Floats(dy), asm.Floats(x), asm.Floats(w), int64(len(dx)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) normWeight(dw, dy, x []float32, c [9]float32) {
	if a.wide {
		avx512NormWeight(asm.Floats(dw), asm.Floats(dy), asm.Floats(x), int64(len(dw)), unsafe.Pointer(&c))
	} else {
		avx2NormWeight(asm.Floats(dw), asm.Floats(dy), asm.Floats(x), int64(len(dw)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) rotateHalf(u, v, cosine, sine []float32, c [9]float32) {
	if a.wide {
		avx512RotateHalf(asm.Floats(u), asm.Floats(v), asm.Floats(cosine), asm.Floats(sine), int64(len(u)), unsafe.Pointer(&c))
	} else {
		avx2RotateHalf(asm.Floats(u), asm.Floats(v), asm.Floats(cosine), asm.Floats(sine), int64(len(u)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *simd) deltaGrad(dkq, state, dstate, k, v []float32, decay float32) (sum float64) {
	to, s, d, key, in := asm.Floats(dkq), asm.Floats(state), asm.Floats(dstate), asm.Floats(k), asm.Floats(v)
	if a.wide {
		avx512DeltaGrad(to, s, d, key, in, int64(len(k)), int64(len(v)/3), unsafe.Pointer(&decay), unsafe.Pointer(&sum))
	} else {
		avx2DeltaGrad(to, s, d, key, in, int64(len(k)), int64(len(v)/3), unsafe.Pointer(&decay), unsafe.Pointer(&sum))
	}
	return sum
}

// simd is a variant implemented in assembly.
type simd struct{ wide bool } // wide: AVX-512

func opsOf(v isa.Variant) ops {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}
