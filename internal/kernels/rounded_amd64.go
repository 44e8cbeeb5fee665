//go:build !purego

package kernels

import "unsafe"

// bf16 is AVX-512 BF16, with the tiles of AMX where the processor has them.
type bf16 struct{ tiles bool }

func wordPtr(v []uint32) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(v)) }

var dots = []mulTile{{6, avx512bf16Dot6}, {4, avx512bf16Dot4}, {2, avx512bf16Dot2}, {1, avx512bf16Dot1}}

func (bf16) mulPairs(y Floats, w Weights, x Pairs, rows, tokens, n int) {
	tiles := dots
	for t := 0; t < tokens; {
		for tiles[0].tokens > tokens-t {
			tiles = tiles[1:]
		}
		callMul(tiles[0].kernel, bytePtr(w.Data), w.Stride, wordPtr(x.V[t*x.Stride:]), x.Stride, ptr(y.V[t*y.Stride:]), y.Stride, n, rows)
		t += tiles[0].tokens
	}
}

func (b bf16) tilesRows() bool { return b.tiles }

//go:noinline
func (bf16) narrow(dst []uint32, src []float32) {
	if len(src)%2 != 0 {
		dst[len(dst)-1] = 0
	}
	avx512bf16Narrow(wordPtr(dst), ptr(src), int64(len(src)))
}

//go:noinline
func (bf16) packTokens(dst []uint32, x Floats, tokens, n int) {
	avx512bf16PackTokens(wordPtr(dst), ptr(x.V), int64(4*x.Stride), int64(tokens), int64(n))
}

//go:noinline
func (bf16) packRows(dst []uint32, w Weights, rows, n int) {
	avx512bf16PackRows(wordPtr(dst), bytePtr(w.Data), int64(w.Stride), int64(rows), int64(n))
}

//go:noinline
func (b bf16) tile(c Floats, w []uint32, ws int, x []uint32, xs, blocks, couples int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	if b.tiles {
		amxTile(wordPtr(w), int64(4*ws), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
		return
	}
	const part = 8 // rows of a call
	for r := 0; r < 2*PackRows; r += part {
		// A row of a pack has 16 words of each block.
		at := r/PackRows*ws + r%PackRows*BlockK/2
		avx512bf16Tile(wordPtr(w[at:]), wordPtr(x), int64(4*xs), ptr(c.V[r*c.Stride:]), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
	}
}

func (bf16) tileRows(c Floats, w Weights, x []uint32, xs, panels, rows, blocks int, cached bool) {
	if !cached || panels != 2 {
		callLying(c, w, x, xs, panels, rows, blocks)
		return
	}
	both := rows &^ (2*PackRows - 1)
	callBoth(c, w, x, xs, both, blocks)
	if both < rows {
		c.V, w.Data = c.V[both*c.Stride:], w.Data[both*w.Stride:]
		callLying(c, w, x, xs, panels, rows-both, blocks)
	}
}

//go:noinline
func callBoth(c Floats, w Weights, x []uint32, xs, rows, blocks int) {
	amxBoth(bytePtr(w.Data), int64(w.Stride), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), int64(rows/(2*PackRows)))
}

// callLying reads 16 streams of neighbouring rows.
//
//go:noinline
func callLying(c Floats, w Weights, x []uint32, xs, panels, rows, blocks int) {
	n := rows / PackRows
	data, ws, in, words, out, cs := bytePtr(w.Data), int64(w.Stride), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride)
	apart, below := int64(n)*ws, int64(n)*cs
	switch panels {
	case 1:
		amxLying1(data, apart, ws, in, words, out, below, cs, int64(blocks), int64(n))
	case 2:
		amxLying2(data, apart, ws, in, words, out, below, cs, int64(blocks), int64(n))
	case 3:
		amxLying3(data, apart, ws, in, words, out, below, cs, int64(blocks), int64(n))
	case 4:
		amxLying4(data, apart, ws, in, words, out, below, cs, int64(blocks), int64(n))
	}
}

//go:noinline
func (bf16) tilePack(c Floats, w, x []uint32, xs, panels, blocks int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	if panels > 1 {
		amxRows2(wordPtr(w), BlockK*2, BlockK*2*PackRows, wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), 1, goOn)
		return
	}
	amxRows1(wordPtr(w), BlockK*2, BlockK*2*PackRows, wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), 1, goOn)
}

//go:noinline
func (bf16) tileOne(y []float32, w Weights, x []uint32, rows, blocks int) {
	amxOne(bytePtr(w.Data), int64(w.Stride), wordPtr(x), ptr(y), int64(blocks), int64(rows))
}

//go:noinline
func (bf16) turn(y, c Floats, bias []float32, rows, tokens int) {
	avx512bf16Turn(ptr(y.V), int64(4*y.Stride), ptr(c.V), int64(4*c.Stride), ptr(bias), int64(rows), int64(tokens))
}
