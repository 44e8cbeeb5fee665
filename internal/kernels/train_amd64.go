//go:build !purego

package kernels

import "unsafe"

// The functions below are not inlined: see callMul.

//go:noinline
func (a *asm) addScaled(y, x []float32, c [9]float32) {
	if a.wide {
		avx512AddScaled(ptr(y), ptr(x), int64(len(y)), unsafe.Pointer(&c))
	} else {
		avx2AddScaled(ptr(y), ptr(x), int64(len(y)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) sum(y, l, r []float32) {
	if a.wide {
		avx512Sum(ptr(y), ptr(l), ptr(r), int64(len(y)))
	} else {
		avx2Sum(ptr(y), ptr(l), ptr(r), int64(len(y)))
	}
}

//go:noinline
func (a *asm) scaleShift(x []float32, c [9]float32) {
	if a.wide {
		avx512ScaleShift(ptr(x), int64(len(x)), unsafe.Pointer(&c))
	} else {
		avx2ScaleShift(ptr(x), int64(len(x)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) round(x []float32) {
	if a.wide {
		avx512Round(ptr(x), int64(len(x)))
	} else {
		avx2Round(ptr(x), int64(len(x)))
	}
}

//go:noinline
func (a *asm) dot64(l, r []float32) (s float64) {
	if a.wide {
		avx512Dot64(ptr(l), ptr(r), int64(len(l)), unsafe.Pointer(&s))
	} else {
		avx2Dot64(ptr(l), ptr(r), int64(len(l)), unsafe.Pointer(&s))
	}
	return s
}

//go:noinline
func (a *asm) gateGrad(dgate, dup, dy, gate, up []float32, tanh bool) {
	dg, du, d, g, u, n := ptr(dgate), ptr(dup), ptr(dy), ptr(gate), ptr(up), int64(len(dgate))
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
func (a *asm) softmaxGrad(g, p []float32, c [9]float32) {
	if a.wide {
		avx512SoftmaxGrad(ptr(g), ptr(p), int64(len(g)), unsafe.Pointer(&c))
	} else {
		avx2SoftmaxGrad(ptr(g), ptr(p), int64(len(g)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) normal(y, x, w []float32, c [9]float32) {
	if a.wide {
		avx512Normal(ptr(y), ptr(x), ptr(w), int64(len(y)), unsafe.Pointer(&c))
	} else {
		avx2Normal(ptr(y), ptr(x), ptr(w), int64(len(y)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) normSums(dy, x, w []float32, c [9]float32) (along, level float64) {
	var s [2]float64
	if a.wide {
		avx512NormSums(ptr(dy), ptr(x), ptr(w), int64(len(dy)), unsafe.Pointer(&c), unsafe.Pointer(&s))
	} else {
		avx2NormSums(ptr(dy), ptr(x), ptr(w), int64(len(dy)), unsafe.Pointer(&c), unsafe.Pointer(&s))
	}
	return s[0], s[1]
}

//go:noinline
func (a *asm) normGrad(dx, dy, x, w []float32, c [9]float32) {
	if a.wide {
		avx512NormGrad(ptr(dx), ptr(dy), ptr(x), ptr(w), int64(len(dx)), unsafe.Pointer(&c))
	} else {
		avx2NormGrad(ptr(dx), ptr(dy), ptr(x), ptr(w), int64(len(dx)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) normWeight(dw, dy, x []float32, c [9]float32) {
	if a.wide {
		avx512NormWeight(ptr(dw), ptr(dy), ptr(x), int64(len(dw)), unsafe.Pointer(&c))
	} else {
		avx2NormWeight(ptr(dw), ptr(dy), ptr(x), int64(len(dw)), unsafe.Pointer(&c))
	}
}

//go:noinline
func (a *asm) turnHalves(u, v, cosine, sine []float32, c [9]float32) {
	if a.wide {
		avx512TurnHalves(ptr(u), ptr(v), ptr(cosine), ptr(sine), int64(len(u)), unsafe.Pointer(&c))
	} else {
		avx2TurnHalves(ptr(u), ptr(v), ptr(cosine), ptr(sine), int64(len(u)), unsafe.Pointer(&c))
	}
}

// adam leaves what is no whole vector to the Go variant, which computes the same.
//
//go:noinline
func (a *asm) adam(w, m, v, g []float32, c [9]float32) {
	lanes := a.panelLanes()
	n := len(w) / lanes * lanes
	if a.wide {
		avx512Adam(ptr(w), ptr(m), ptr(v), ptr(g), int64(n), unsafe.Pointer(&c))
	} else {
		avx2Adam(ptr(w), ptr(m), ptr(v), ptr(g), int64(n), unsafe.Pointer(&c))
	}
	goOps{}.adam(w[n:], m[n:], v[n:], g[n:], c)
}

//go:noinline
func (a *asm) momentum(w, buf, g []float32, c [9]float32) {
	if a.wide {
		avx512Momentum(ptr(w), ptr(buf), ptr(g), int64(len(w)), unsafe.Pointer(&c))
	} else {
		avx2Momentum(ptr(w), ptr(buf), ptr(g), int64(len(w)), unsafe.Pointer(&c))
	}
}
