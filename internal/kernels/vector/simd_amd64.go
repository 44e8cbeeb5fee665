//go:build !purego

package vector

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

func (a *simd) widen(dst []float32, src []byte, f mat.Format) { callWiden(a.widens[f], dst, src) }

func (a *simd) columns(dst mat.Floats, w mat.Weights, rows, cols int) {
	if a.wide {
		callColumns(a.turns[w.Format], dst, w, rows, cols)
		return
	}
	r, c := rows&^7, cols&^7 // whole blocks
	if r > 0 && c > 0 {
		callColumns(a.turns[w.Format], dst, w, r, c)
	}
	mat.Transpose(dst, w, 0, r, c, cols)
	mat.Transpose(dst, w, r, rows, 0, cols)
}

//go:noinline
func callColumns(k columnsKernel, dst mat.Floats, w mat.Weights, rows, cols int) {
	k(asm.Floats(dst.V), int64(4*dst.Stride), asm.Bytes(w.Data), int64(w.Stride), int64(rows), int64(cols))
}

//go:noinline
func callWiden(k widenKernel, dst []float32, src []byte) {
	k(asm.Floats(dst), asm.Bytes(src), int64(len(dst)))
}

//go:noinline
func (a *simd) gate(dst, gate, up []float32, c1, c3 float32) {
	to, g, u, n := asm.Floats(dst), asm.Floats(gate), asm.Floats(up), int64(len(dst))
	factors := [2]float32{c1, c3}
	c := unsafe.Pointer(&factors)
	cubic, alone := c3 != 0, up == nil
	switch {
	case a.wide && cubic && alone:
		avx512GateCubicAlone(to, g, u, n, c)
	case a.wide && cubic:
		avx512GateCubic(to, g, u, n, c)
	case a.wide && alone:
		avx512GateAlone(to, g, u, n, c)
	case a.wide:
		avx512Gate(to, g, u, n, c)
	case cubic && alone:
		avx2GateCubicAlone(to, g, u, n, c)
	case cubic:
		avx2GateCubic(to, g, u, n, c)
	case alone:
		avx2GateAlone(to, g, u, n, c)
	default:
		avx2Gate(to, g, u, n, c)
	}
}

//go:noinline
func (a *simd) gelu(dst, x []float32) {
	if a.wide {
		avx512GELU(asm.Floats(dst), asm.Floats(x), int64(len(x)))
	} else {
		avx2GELU(asm.Floats(dst), asm.Floats(x), int64(len(x)))
	}
}

//go:noinline
func (a *simd) tanh(x []float32, inner, outer float32) {
	factors := [2]float32{inner, outer}
	if a.wide {
		avx512Tanh(asm.Floats(x), int64(len(x)), unsafe.Pointer(&factors))
	} else {
		avx2Tanh(asm.Floats(x), int64(len(x)), unsafe.Pointer(&factors))
	}
}

//go:noinline
func (a *simd) expSum(x []float32, shift float32) float32 {
	if a.wide {
		avx512ExpSum(asm.Floats(x), int64(len(x)), unsafe.Pointer(&shift))
	} else {
		avx2ExpSum(asm.Floats(x), int64(len(x)), unsafe.Pointer(&shift))
	}
	return shift
}

//go:noinline
func (a *simd) scaleMax(x []float32, scale float32) float32 {
	if a.wide {
		avx512ScaleMax(asm.Floats(x), int64(len(x)), unsafe.Pointer(&scale))
	} else {
		avx2ScaleMax(asm.Floats(x), int64(len(x)), unsafe.Pointer(&scale))
	}
	return scale
}

//go:noinline
func (a *simd) sumSquares(x []float32, shift float32) float32 {
	if a.wide {
		avx512SumSquares(asm.Floats(x), int64(len(x)), unsafe.Pointer(&shift))
	} else {
		avx2SumSquares(asm.Floats(x), int64(len(x)), unsafe.Pointer(&shift))
	}
	return shift
}

// The signatures of the generated functions in tables. Strides are in bytes.
type (
	widenKernel   func(dst, src unsafe.Pointer, n int64)
	columnsKernel func(dst unsafe.Pointer, ds int64, w unsafe.Pointer, ws, rows, cols int64)
)

// simd is a variant implemented in assembly.
type simd struct {
	widens [mat.Formats]widenKernel
	turns  [mat.Formats]columnsKernel
	// wide selects AVX-512 in the methods that pass the address of a local variable. Through a
	// table the variable would escape, which costs one allocation per call.
	wide bool
}

var avx512 = simd{
	widens: [mat.Formats]widenKernel{mat.BFloat16: avx512WidenBF16, mat.Float16: avx512WidenF16, mat.Float32: avx512WidenF32},
	turns:  [mat.Formats]columnsKernel{mat.BFloat16: avx512ColumnsBF16, mat.Float16: avx512ColumnsF16, mat.Float32: avx512ColumnsF32},
	wide:   true,
}

var avx2 = simd{
	widens: [mat.Formats]widenKernel{mat.BFloat16: avx2WidenBF16, mat.Float16: avx2WidenF16, mat.Float32: avx2WidenF32},
	turns:  [mat.Formats]columnsKernel{mat.BFloat16: avx2ColumnsBF16, mat.Float16: avx2ColumnsF16, mat.Float32: avx2ColumnsF32},
}

func opsOf(v isa.Variant) ops {
	switch v.Level {
	case isa.AVX512:
		return &avx512
	case isa.AVX2:
		return &avx2
	}
	return goOps{}
}

// bf16 is the AVX-512 BF16 variant.
type bf16 struct{}

func pairsOf(v isa.Variant) pairer {
	if v.BF16 {
		return bf16{}
	}
	return nil
}
