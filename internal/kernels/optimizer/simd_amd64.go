//go:build !purego

package optimizer

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
)

// adam leaves what is no whole vector to the Go variant, which computes the same.
//
//go:noinline
func (a *simd) adam(w, m, v, g []float32, c [9]float32) {
	lanes := 8
	if a.wide {
		lanes = 16
	}
	n := len(w) / lanes * lanes
	if a.wide {
		avx512Adam(asm.Floats(w), asm.Floats(m), asm.Floats(v), asm.Floats(g), int64(n), unsafe.Pointer(&c))
	} else {
		avx2Adam(asm.Floats(w), asm.Floats(m), asm.Floats(v), asm.Floats(g), int64(n), unsafe.Pointer(&c))
	}
	goOps{}.adam(w[n:], m[n:], v[n:], g[n:], c)
}

//go:noinline
func (a *simd) momentum(w, buf, g []float32, c [9]float32) {
	if a.wide {
		avx512Momentum(asm.Floats(w), asm.Floats(buf), asm.Floats(g), int64(len(w)), unsafe.Pointer(&c))
	} else {
		avx2Momentum(asm.Floats(w), asm.Floats(buf), asm.Floats(g), int64(len(w)), unsafe.Pointer(&c))
	}
}

// simd is a variant implemented in assembly.
type simd struct{ wide bool } // wide: AVX-512

func opsOf(v isa.Variant) ops {
	if v.Level == isa.Go {
		return goOps{}
	}
	return &simd{wide: v.Level == isa.AVX512}
}
