//go:build !purego

package kernels

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// available lists what this processor can run, best first.
func available() []Set {
	var sets []Set
	x := &cpu.X86
	fused := x.HasAVX2 && x.HasFMA && x.HasF16C
	if fused && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		sets = append(sets, Set{Name: "avx512", Lanes: 16, ops: &avx512})
	}
	if fused {
		sets = append(sets, Set{Name: "avx2", Lanes: 8, ops: &avx2})
	}
	return append(sets, goSet())
}

// The shapes of the generated functions. Strides are in bytes. ns is nil or the other
// operand; io holds factors and takes the result.
type (
	mulKernel   func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, n, rows int64)
	mixKernel   func(y unsafe.Pointer, ys int64, p unsafe.Pointer, ps, step int64, v unsafe.Pointer, vs, keys, cols int64)
	widenKernel func(dst, src unsafe.Pointer, n int64)
)

// Functions around those that also take an address of factors: through a variable of
// function type it would escape, one allocation a call.
type (
	gateKernel func(dst, g, up []float32, c [2]float32)
	foldKernel func(x []float32, io float32) float32
)

// A mulTile handles a number of tokens at a time, and so does a mixTile.
type (
	mulTile struct {
		tokens int
		kernel mulKernel
	}
	mixTile struct {
		tokens int
		kernel mixKernel
	}
)

// asm is a variant in assembly. Tiles stand in falling order of tokens; the last has one.
type asm struct {
	muls                             [formats][]mulTile
	mixes                            [formats][]mixTile
	gates                            [2][2]gateKernel // [cubic][alone]
	expSums, scaleMaxes, squaresSums foldKernel
	widens                           [formats]widenKernel
}

var avx512 = asm{
	muls: [formats][]mulTile{
		BFloat16: {{6, avx512MulBF166}, {4, avx512MulBF164}, {2, avx512MulBF162}, {1, avx512MulBF161}},
		Float16:  {{6, avx512MulF166}, {4, avx512MulF164}, {2, avx512MulF162}, {1, avx512MulF161}},
		Float32:  {{6, avx512MulF326}, {4, avx512MulF324}, {2, avx512MulF322}, {1, avx512MulF321}},
	},
	mixes: [formats][]mixTile{
		BFloat16: {{6, avx512MixBF166}, {4, avx512MixBF164}, {2, avx512MixBF162}, {1, avx512MixBF161}},
		Float16:  {{6, avx512MixF166}, {4, avx512MixF164}, {2, avx512MixF162}, {1, avx512MixF161}},
		Float32:  {{6, avx512MixF326}, {4, avx512MixF324}, {2, avx512MixF322}, {1, avx512MixF321}},
	},
	gates:       [2][2]gateKernel{{avx512Gates, avx512GatesAlone}, {avx512GatesCubic, avx512GatesCubicAlone}},
	expSums:     avx512FoldExpSum,
	scaleMaxes:  avx512FoldScaleMax,
	squaresSums: avx512FoldSumSquares,
	widens:      [formats]widenKernel{BFloat16: avx512WidenBF16, Float16: avx512WidenF16, Float32: avx512WidenF32},
}

var avx2 = asm{
	muls: [formats][]mulTile{
		BFloat16: {{2, avx2MulBF162}, {1, avx2MulBF161}},
		Float16:  {{2, avx2MulF162}, {1, avx2MulF161}},
		Float32:  {{2, avx2MulF322}, {1, avx2MulF321}},
	},
	mixes: [formats][]mixTile{
		BFloat16: {{2, avx2MixBF162}, {1, avx2MixBF161}},
		Float16:  {{2, avx2MixF162}, {1, avx2MixF161}},
		Float32:  {{2, avx2MixF322}, {1, avx2MixF321}},
	},
	gates:       [2][2]gateKernel{{avx2Gates, avx2GatesAlone}, {avx2GatesCubic, avx2GatesCubicAlone}},
	expSums:     avx2FoldExpSum,
	scaleMaxes:  avx2FoldScaleMax,
	squaresSums: avx2FoldSumSquares,
	widens:      [formats]widenKernel{BFloat16: avx2WidenBF16, Float16: avx2WidenF16, Float32: avx2WidenF32},
}

func ptr(v []float32) unsafe.Pointer  { return unsafe.Pointer(unsafe.SliceData(v)) }
func bytePtr(v []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

func (a *asm) mul(y Floats, w Weights, x Floats, rows, tokens, n int) {
	tiles := a.muls[w.Format]
	for t := 0; t < tokens; {
		for tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		callMul(tiles[0].kernel, bytePtr(w.Data), w.Stride, ptr(x.V[t*x.Stride:]), x.Stride, ptr(y.V[t*y.Stride:]), y.Stride, n, rows)
		t += tiles[0].tokens
	}
}

func (a *asm) mix(y, p Floats, step int, v Weights, keys, tokens, cols int) {
	tiles := a.mixes[v.Format]
	for t := 0; t < tokens; {
		for tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		callMix(tiles[0].kernel, ptr(y.V[t*y.Stride:]), y.Stride, ptr(p.V[t*p.Stride:]), p.Stride, step, bytePtr(v.Data), v.Stride, keys, cols)
		t += tiles[0].tokens
	}
}

func (a *asm) gate(dst, gate, up []float32, c1, c3 float32) {
	cubic, alone := 0, 0
	if c3 != 0 {
		cubic = 1
	}
	if up == nil {
		alone = 1
	}
	a.gates[cubic][alone](dst, gate, up, [2]float32{c1, c3})
}

func (a *asm) expSum(x []float32, shift float32) float32 { return a.expSums(x, shift) }

func (a *asm) scaleMax(x []float32, scale float32) float32 { return a.scaleMaxes(x, scale) }

func (a *asm) sumSquares(x []float32, shift float32) float32 {
	return a.squaresSums(x, shift)
}

func (a *asm) widen(dst []float32, src []byte, f Format) { callWiden(a.widens[f], dst, src) }

// The functions below are not inlined: their prologue is where the scheduler can stop a
// loop of kernels, since it cannot inside one.

//go:noinline
func callMul(k mulKernel, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, n, rows int) {
	k(w, int64(ws), x, int64(4*xs), y, int64(4*ys), int64(n), int64(rows))
}

//go:noinline
func callMix(k mixKernel, y unsafe.Pointer, ys int, p unsafe.Pointer, ps, step int, v unsafe.Pointer, vs, keys, cols int) {
	k(y, int64(4*ys), p, int64(4*ps), int64(4*step), v, int64(vs), int64(keys), int64(cols))
}

//go:noinline
func callWiden(k widenKernel, dst []float32, src []byte) {
	k(ptr(dst), bytePtr(src), int64(len(dst)))
}

//go:noinline
func avx512Gates(dst, g, up []float32, c [2]float32) {
	avx512Gate(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx512GatesAlone(dst, g, up []float32, c [2]float32) {
	avx512GateAlone(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx512GatesCubic(dst, g, up []float32, c [2]float32) {
	avx512GateCubic(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx512GatesCubicAlone(dst, g, up []float32, c [2]float32) {
	avx512GateCubicAlone(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx512FoldExpSum(x []float32, io float32) float32 {
	avx512ExpSum(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}

//go:noinline
func avx512FoldScaleMax(x []float32, io float32) float32 {
	avx512ScaleMax(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}

//go:noinline
func avx512FoldSumSquares(x []float32, io float32) float32 {
	avx512SumSquares(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}

//go:noinline
func avx2Gates(dst, g, up []float32, c [2]float32) {
	avx2Gate(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx2GatesAlone(dst, g, up []float32, c [2]float32) {
	avx2GateAlone(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx2GatesCubic(dst, g, up []float32, c [2]float32) {
	avx2GateCubic(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx2GatesCubicAlone(dst, g, up []float32, c [2]float32) {
	avx2GateCubicAlone(ptr(dst), ptr(g), ptr(up), int64(len(dst)), unsafe.Pointer(&c))
}

//go:noinline
func avx2FoldExpSum(x []float32, io float32) float32 {
	avx2ExpSum(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}

//go:noinline
func avx2FoldScaleMax(x []float32, io float32) float32 {
	avx2ScaleMax(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}

//go:noinline
func avx2FoldSumSquares(x []float32, io float32) float32 {
	avx2SumSquares(ptr(x), int64(len(x)), unsafe.Pointer(&io))
	return io
}
