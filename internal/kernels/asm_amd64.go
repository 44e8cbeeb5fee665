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
	if fused && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasBMI2 {
		set := Set{Name: "avx512", Lanes: 16, GroupTokens: 8, ops: &avx512, grouper: &avx512, halver: shifts{}, coder: wideCodes{}, fewer: &avx512, integers: maddubs{}, pager: wideLanes{}}
		if x.HasAVX512VNNI { // which processors have that know no bfloat16, too
			set.integers = vnni{}
		}
		if x.HasAVX512BF16 {
			rounded := set
			if x.HasAMXTile && x.HasAMXBF16 && tilesAllowed() {
				rounded.Name, rounded.rounder = "amx", bf16{tiles: true}
				sets = append(sets, rounded)
			}
			// A processor with tiles has no fast unit for pairs beside them.
			rounded.Name, rounded.rounder, rounded.SlowPairs = "avx512bf16", bf16{}, x.HasAMXBF16
			sets = append(sets, rounded)
		}
		sets = append(sets, set)
	}
	if fused {
		sets = append(sets, Set{Name: "avx2", Lanes: 8, GroupTokens: 4, ops: &avx2, grouper: &avx2, halver: halvesAVX2{}, coder: narrowCodes{}, integers: maddubs{}, pager: narrowLanes{}})
	}
	return append(sets, goSet())
}

// The shapes of the generated functions that tables hold. Strides are in bytes.
type (
	mulKernel   func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, n, rows int64)
	mixKernel   func(y unsafe.Pointer, ys int64, p unsafe.Pointer, ps, step int64, v unsafe.Pointer, vs, keys, cols int64)
	lanesKernel func(lanes, x, v unsafe.Pointer, vs, keys, cols int64)
	widenKernel func(dst, src unsafe.Pointer, n int64)

	columnsKernel func(dst unsafe.Pointer, ds int64, w unsafe.Pointer, ws, rows, cols int64)

	spreadKernel func(dst unsafe.Pointer, step int64, src unsafe.Pointer, n int64)
	groupsKernel func(w, x, next, sums, y unsafe.Pointer, ys, n, rows, tokens, flags int64)
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
	muls   [formats][]mulTile
	mixes  [formats][]mixTile
	lanes  [formats]lanesKernel
	widens [formats]widenKernel
	turns  [formats]columnsKernel
	// of groups
	spreads  [formats]spreadKernel
	multiply groupsKernel
	// wide says AVX-512 to the methods that pass the address of a local variable:
	// through a table it would escape, one allocation a call.
	wide bool
}

var avx512 = asm{
	muls: [formats][]mulTile{
		BFloat16: {{8, avx512MulBF168}, {6, avx512MulBF166}, {4, avx512MulBF164}, {2, avx512MulBF162}, {1, avx512MulBF161}},
		Float16:  {{8, avx512MulF168}, {6, avx512MulF166}, {4, avx512MulF164}, {2, avx512MulF162}, {1, avx512MulF161}},
		Float32:  {{8, avx512MulF328}, {6, avx512MulF326}, {4, avx512MulF324}, {2, avx512MulF322}, {1, avx512MulF321}},
	},
	mixes: [formats][]mixTile{
		BFloat16: {{6, avx512MixBF166}, {4, avx512MixBF164}, {2, avx512MixBF162}, {1, avx512MixBF161}},
		Float16:  {{6, avx512MixF166}, {4, avx512MixF164}, {2, avx512MixF162}, {1, avx512MixF161}},
		Float32:  {{6, avx512MixF326}, {4, avx512MixF324}, {2, avx512MixF322}, {1, avx512MixF321}},
	},
	lanes:    [formats]lanesKernel{BFloat16: avx512AddLanesBF16, Float16: avx512AddLanesF16, Float32: avx512AddLanesF32},
	widens:   [formats]widenKernel{BFloat16: avx512WidenBF16, Float16: avx512WidenF16, Float32: avx512WidenF32},
	turns:    [formats]columnsKernel{BFloat16: avx512ColumnsBF16, Float16: avx512ColumnsF16, Float32: avx512ColumnsF32},
	spreads:  [formats]spreadKernel{BFloat16: avx512SpreadBF16, Float16: avx512SpreadF16, Float32: avx512SpreadF32},
	multiply: avx512Groups,
	wide:     true,
}

var avx2 = asm{
	muls: [formats][]mulTile{
		BFloat16: {{2, avx2MulBF162}, {1, avx2MulBF161}},
		Float16:  {{2, avx2MulF162}, {1, avx2MulF161}},
		Float32:  {{2, avx2MulF322}, {1, avx2MulF321}},
	},
	mixes: [formats][]mixTile{
		BFloat16: {{6, avx2MixBF166}, {4, avx2MixBF164}, {2, avx2MixBF162}, {1, avx2MixBF161}},
		Float16:  {{6, avx2MixF166}, {4, avx2MixF164}, {2, avx2MixF162}, {1, avx2MixF161}},
		Float32:  {{6, avx2MixF326}, {4, avx2MixF324}, {2, avx2MixF322}, {1, avx2MixF321}},
	},
	lanes:    [formats]lanesKernel{BFloat16: avx2AddLanesBF16, Float16: avx2AddLanesF16, Float32: avx2AddLanesF32},
	widens:   [formats]widenKernel{BFloat16: avx2WidenBF16, Float16: avx2WidenF16, Float32: avx2WidenF32},
	turns:    [formats]columnsKernel{BFloat16: avx2ColumnsBF16, Float16: avx2ColumnsF16, Float32: avx2ColumnsF32},
	spreads:  [formats]spreadKernel{BFloat16: avx2SpreadBF16, Float16: avx2SpreadF16, Float32: avx2SpreadF32},
	multiply: avx2Groups,
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

// lanePiece is how many bytes of weights one call of a lanes kernel gets.
const lanePiece = 128 << 10

func (a *asm) addLanes(lanes, x []float32, v Weights, cols int) {
	// Whole rounds of the lanes, so that each call begins with the first.
	keys := max(lanePiece/(16*cols*v.Format.Size()), 1) * 16
	for begin := 0; begin < len(x); begin += keys {
		n := min(keys, len(x)-begin)
		callLanes(a.lanes[v.Format], ptr(lanes), ptr(x[begin:]), bytePtr(v.Data[begin*v.Stride:]), v.Stride, n, cols)
	}
}

func (a *asm) widen(dst []float32, src []byte, f Format) { callWiden(a.widens[f], dst, src) }

func (a *asm) columns(dst Floats, w Weights, rows, cols int) {
	if a.wide {
		callColumns(a.turns[w.Format], dst, w, rows, cols)
		return
	}
	r, c := rows&^7, cols&^7 // whole blocks
	if r > 0 && c > 0 {
		callColumns(a.turns[w.Format], dst, w, r, c)
	}
	columnsGo(dst, w, 0, r, c, cols)
	columnsGo(dst, w, r, rows, 0, cols)
}

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
func callLanes(k lanesKernel, lanes, x, v unsafe.Pointer, vs, keys, cols int) {
	k(lanes, x, v, int64(vs), int64(keys), int64(cols))
}

//go:noinline
func callColumns(k columnsKernel, dst Floats, w Weights, rows, cols int) {
	k(ptr(dst.V), int64(4*dst.Stride), bytePtr(w.Data), int64(w.Stride), int64(rows), int64(cols))
}

//go:noinline
func callWiden(k widenKernel, dst []float32, src []byte) {
	k(ptr(dst), bytePtr(src), int64(len(dst)))
}

//go:noinline
func (a *asm) gate(dst, gate, up []float32, c1, c3 float32) {
	to, g, u, n := ptr(dst), ptr(gate), ptr(up), int64(len(dst))
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
func (a *asm) gelu(dst, x []float32) {
	if a.wide {
		avx512GELU(ptr(dst), ptr(x), int64(len(x)))
	} else {
		avx2GELU(ptr(dst), ptr(x), int64(len(x)))
	}
}

//go:noinline
func (a *asm) tanh(x []float32, inner, outer float32) {
	factors := [2]float32{inner, outer}
	if a.wide {
		avx512Tanh(ptr(x), int64(len(x)), unsafe.Pointer(&factors))
	} else {
		avx2Tanh(ptr(x), int64(len(x)), unsafe.Pointer(&factors))
	}
}

//go:noinline
func (a *asm) expSum(x []float32, shift float32) float32 {
	if a.wide {
		avx512ExpSum(ptr(x), int64(len(x)), unsafe.Pointer(&shift))
	} else {
		avx2ExpSum(ptr(x), int64(len(x)), unsafe.Pointer(&shift))
	}
	return shift
}

//go:noinline
func (a *asm) scaleMax(x []float32, scale float32) float32 {
	if a.wide {
		avx512ScaleMax(ptr(x), int64(len(x)), unsafe.Pointer(&scale))
	} else {
		avx2ScaleMax(ptr(x), int64(len(x)), unsafe.Pointer(&scale))
	}
	return scale
}

//go:noinline
func (a *asm) sumSquares(x []float32, shift float32) float32 {
	if a.wide {
		avx512SumSquares(ptr(x), int64(len(x)), unsafe.Pointer(&shift))
	} else {
		avx2SumSquares(ptr(x), int64(len(x)), unsafe.Pointer(&shift))
	}
	return shift
}
