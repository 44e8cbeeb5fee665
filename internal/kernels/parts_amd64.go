//go:build !purego

package kernels

var _ parter = bf16{}

//go:noinline
func (bf16) packParts(dst []uint32, apart int, x Floats, columns, turn bool, parts, width, n int) {
	to, step, from, stride, w, terms := wordPtr(dst), int64(4*apart), ptr(x.V), int64(4*x.Stride), int64(width), int64(n)
	switch {
	case columns && parts == RoundedParts:
		avx512ColumnParts1(to, step, from, stride, w, terms)
	case columns:
		avx512ColumnParts3(to, step, from, stride, w, terms)
	case parts == RoundedParts:
		avx512LineParts1(to, step, from, stride, w, terms)
	default:
		avx512LineParts3(to, step, from, stride, w, terms)
	}
	for part := 0; turn && part < parts; part++ {
		avx512TurnParts(wordPtr(dst[part*apart:]), int64(ceil(n, BlockK)))
	}
}

//go:noinline
func (bf16) packHalves(dst []uint32, w Weights, columns, turn bool, width, n int) {
	if columns {
		avx512HalfColumns(wordPtr(dst), bytePtr(w.Data), int64(w.Stride), int64(width), int64(n))
	} else {
		avx512HalfLines(wordPtr(dst), bytePtr(w.Data), int64(w.Stride), int64(width), int64(n))
	}
	if turn {
		avx512TurnParts(wordPtr(dst), int64(ceil(n, BlockK)))
	}
}

//go:noinline
func (t bf16) mulParts(c Floats, a, b Packs, blocks, couples int, add bool) {
	if !t.tiles { // of one part
		t.tile(c, a.V, a.Words, b.V, b.Words, blocks, couples, add)
		return
	}
	kernel, goOn := amxRounded, int64(0)
	switch {
	case b.Parts == FloatParts:
		kernel = amxFloats
	case a.Parts == FloatParts:
		kernel = amxMixed
	}
	if add {
		goOn = 1
	}
	kernel(wordPtr(a.V), int64(4*a.Size()), wordPtr(b.V), int64(4*b.Size()), int64(4*a.Words), ptr(c.V), int64(4*c.Stride), int64(blocks), int64(couples), goOn)
}
