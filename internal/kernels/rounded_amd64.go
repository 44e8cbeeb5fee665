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

func (bf16) tileRows(c []float32, w Weights, x []uint32, xs, panels, rows, blocks int, f Fetch) {
	from, apart := f.streams(rows * w.Stride)
	both := 0
	if panels > 1 && f.Quarters <= 2 {
		if both = rows / CoupleTokens; both > 0 {
			callBoth(c, w, x, xs, both, blocks, from, apart, f.Quarters)
		}
	}
	if left := rows - both*CoupleTokens; left > 0 {
		c, w.Data = c[both*CoupleTokens*CoupleTokens:], w.Data[both*CoupleTokens*w.Stride:]
		callTileRows(c, w, x, xs, panels, left/PackRows, blocks, from, apart, f.Quarters/2)
	}
}

// streams is where a kernel with so many bytes of weights asks for more: 8 streams of neighbouring
// lines, which come to their pages one after another, as the first lines of each take their time.
func (f *Fetch) streams(bytes int) (from unsafe.Pointer, apart int) {
	const streams, page = 8, 4096
	each := bytes / streams
	if apart = each; each >= page {
		apart = (each+page/2)/page*page + page/streams
	}
	if len(f.Next) == 0 {
		f.Quarters = 0
		return nil, 0
	}
	return unsafe.Add(bytePtr(f.Next), each/4*f.Done), apart
}

//go:noinline
func callBoth(c []float32, w Weights, x []uint32, xs, groups, blocks int, from unsafe.Pointer, apart, lines int) {
	amxBoth(bytePtr(w.Data), int64(w.Stride), wordPtr(x), int64(4*xs), ptr(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
}

//go:noinline
func callTileRows(c []float32, w Weights, x []uint32, xs, panels, groups, blocks int, from unsafe.Pointer, apart, lines int) {
	if panels > 1 {
		amxRows2(bytePtr(w.Data), int64(w.Stride), wordPtr(x), int64(4*xs), ptr(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
		return
	}
	amxRows1(bytePtr(w.Data), int64(w.Stride), wordPtr(x), int64(4*xs), ptr(c), int64(blocks), int64(groups), from, int64(apart), int64(lines))
}

//go:noinline
func (bf16) tilePack(c Floats, w, x []uint32, xs, panels, blocks int, add bool) {
	var goOn int64
	if add {
		goOn = 1
	}
	if panels > 1 {
		amxPack2(wordPtr(w), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), goOn)
		return
	}
	amxPack1(wordPtr(w), wordPtr(x), int64(4*xs), ptr(c.V), int64(4*c.Stride), int64(blocks), goOn)
}

//go:noinline
func (bf16) tileOne(y []float32, w Weights, x []uint32, rows, blocks int) {
	amxOne(bytePtr(w.Data), int64(w.Stride), wordPtr(x), ptr(y), int64(blocks), int64(rows))
}

//go:noinline
func (bf16) turn(y, c Floats, bias []float32, rows, tokens int) {
	avx512bf16Turn(ptr(y.V), int64(4*y.Stride), ptr(c.V), int64(4*c.Stride), ptr(bias), int64(rows), int64(tokens))
}
