//go:build !purego

package kernels

import "unsafe"

// The functions below are not inlined, as those of asm_amd64.go.

//go:noinline
func (bf16) softmax(p []uint32, c Floats, keys, base int, by float32, o *Online, whole bool) {
	var all int64
	if whole {
		all = 1
	}
	bf16Softmax(ptr(c.V), int64(4*c.Stride), wordPtr(p), unsafe.Pointer(o), int64(keys), int64(base), bits(by), all)
}

//go:noinline
func (bf16) scaleLanes(x Floats, rows int, by *[PanelTokens]float32) {
	bf16ScaleLanes(ptr(x.V), int64(4*x.Stride), int64(rows), unsafe.Pointer(by))
}

//go:noinline
func (bf16) packTurned(dst []uint32, apart int, w, next Weights, cols int) bool {
	var bad uint32
	bf16PackTurned(wordPtr(dst), int64(4*apart), bytePtr(w.Data), int64(w.Stride), bytePtr(next.Data), int64(next.Stride), int64(cols), unsafe.Pointer(&bad))
	return bad == 0
}

//go:noinline
func (bf16) narrowRows(dst []byte, apart int, w []byte, stride, rows, blocks int) {
	bf16NarrowRowsQ8(bytePtr(dst), int64(apart), bytePtr(w), int64(stride), int64(rows), int64(blocks))
}

//go:noinline
func (a *asm) unpackRows(dst Floats, w []byte, stride, rows, blocks int) {
	if a.wide {
		avx512UnpackRowsQ8(ptr(dst.V), int64(4*dst.Stride), bytePtr(w), int64(stride), int64(rows), int64(blocks))
	} else {
		avx2UnpackRowsQ8(ptr(dst.V), int64(4*dst.Stride), bytePtr(w), int64(stride), int64(rows), int64(blocks))
	}
}

func (b bf16) couple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	if b.tiles {
		callCouple(c, w, ws, x, xs, blocks, groups, add)
		return
	}
	for i := range groups {
		b.tile(Floats{V: c.V[i*2*PackRows*c.Stride:], Stride: c.Stride}, w[2*i*ws:], ws, x, xs, blocks, 1, add)
	}
}

//go:noinline
func callCouple(c Floats, w []uint32, ws int, x []uint32, xs, blocks, groups int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	amxCouple(wordPtr(w), int64(4*ws), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), int64(groups), goOn)
}
