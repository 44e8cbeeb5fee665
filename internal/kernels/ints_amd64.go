//go:build !purego

package kernels

import "unsafe"

// vnni is AVX-512 VNNI, maddubs the multiplication of words of AVX2.
type (
	vnni    struct{}
	maddubs struct{}
)

func (vnni) words(Packing) int { return 10 }

func (maddubs) words(p Packing) int {
	if p == Q8 {
		return 18 // its codes are words
	}
	return 10
}

//go:noinline
func (vnni) narrow(p Packing, dst []uint32, src []float32) {
	avx512vnniNarrow(wordPtr(dst), ptr(src), int64(len(src)/BlockColumns), int64(p.zero()))
}

//go:noinline
func (maddubs) narrow(p Packing, dst []uint32, src []float32) {
	if p == Q8 {
		avx2intsNarrowQ8(wordPtr(dst), ptr(src), int64(len(src)/BlockColumns))
	} else {
		avx2intsNarrowQ4(wordPtr(dst), ptr(src), int64(len(src)/BlockColumns))
	}
}

// A pairKernel computes two bands, a bandKernel one, for a number of tokens.
type (
	pairKernel func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, blocks, add int64)
	bandKernel func(w, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, blocks, add int64)
	pairTile   struct {
		tokens int
		kernel pairKernel
	}
	bandTile struct {
		tokens int
		kernel bandKernel
	}
)

// Tiles stand in falling order of tokens; the last has one.
var (
	pairsQ8 = []pairTile{{6, avx512vnniMulQ86}, {4, avx512vnniMulQ84}, {2, avx512vnniMulQ82}, {1, avx512vnniMulQ81}}
	pairsQ4 = []pairTile{{6, avx512vnniMulQ46}, {4, avx512vnniMulQ44}, {2, avx512vnniMulQ42}, {1, avx512vnniMulQ41}}
	bandsQ8 = []bandTile{{2, avx2intsMulQ82}, {1, avx2intsMulQ81}}
	bandsQ4 = []bandTile{{2, avx2intsMulQ42}, {1, avx2intsMulQ41}}
)

func (v vnni) mul(p Packing, y Floats, w []byte, apart, bands int, x Pairs, tokens, blocks int, add bool) {
	all := pairsQ8
	if p == Q4 {
		all = pairsQ4
	}
	for b := 0; b+2 <= bands; b += 2 {
		tiles, band := all, bytePtr(w[b*apart:])
		for t := 0; t < tokens; t += tiles[0].tokens {
			for tiles[0].tokens > tokens-t {
				tiles = tiles[1:]
			}
			callPair(tiles[0].kernel, band, apart, wordPtr(x.V[t*x.Stride:]), x.Stride, ptr(y.V[t*y.Stride+b*BandRows:]), y.Stride, blocks, add)
		}
	}
	if bands%2 == 0 {
		return
	}
	last := w[(bands-1)*apart:]
	for t := range tokens {
		to := y.V[t*y.Stride+(bands-1)*BandRows:][:BandRows]
		v.edge(p, to, last, BandRows, 0, 1, x.V[t*x.Stride:], blocks, add)
	}
}

func (maddubs) mul(p Packing, y Floats, w []byte, apart, bands int, x Pairs, tokens, blocks int, add bool) {
	all := bandsQ8
	if p == Q4 {
		all = bandsQ4
	}
	for b := range bands {
		tiles, band := all, bytePtr(w[b*apart:])
		for t := 0; t < tokens; t += tiles[0].tokens {
			for tiles[0].tokens > tokens-t {
				tiles = tiles[1:]
			}
			callBand(tiles[0].kernel, band, wordPtr(x.V[t*x.Stride:]), x.Stride, ptr(y.V[t*y.Stride+b*BandRows:]), y.Stride, blocks, add)
		}
	}
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

//go:noinline
func callPair(k pairKernel, w unsafe.Pointer, ws int, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, blocks int, add bool) {
	k(w, int64(ws), x, int64(4*xs), y, int64(4*ys), int64(blocks), flag(add))
}

//go:noinline
func callBand(k bandKernel, w, x unsafe.Pointer, xs int, y unsafe.Pointer, ys, blocks int, add bool) {
	k(w, x, int64(4*xs), y, int64(4*ys), int64(blocks), flag(add))
}

// lanes are the sums of a band's rows, of which y has some.
type lanes [BandRows]float32

func (l *lanes) take(y []float32, lane, step int) {
	for i, v := range y {
		l[lane+i*step] = v
	}
}

func (l *lanes) give(y []float32, lane, step int) {
	for i := range y {
		y[i] = l[lane+i*step]
	}
}

//go:noinline
func (vnni) edge(p Packing, y []float32, w []byte, rows, lane, step int, x []uint32, blocks int, add bool) {
	var sums lanes
	if add {
		sums.take(y, lane, step)
	}
	if p == Q8 {
		avx512vnniEdgeQ8(bytePtr(w), int64(rows), wordPtr(x), unsafe.Pointer(&sums), int64(blocks))
	} else {
		avx512vnniEdgeQ4(bytePtr(w), int64(rows), wordPtr(x), unsafe.Pointer(&sums), int64(blocks))
	}
	sums.give(y, lane, step)
}

//go:noinline
func (maddubs) edge(p Packing, y []float32, w []byte, rows, lane, step int, x []uint32, blocks int, add bool) {
	var sums lanes
	if add {
		sums.take(y, lane, step)
	}
	for first := 0; first < rows; first += 8 {
		from, codes, to := bytePtr(w[2*first:]), int64(2*rows+2*first), unsafe.Pointer(&sums[first])
		take := int64(min(8, rows-first))
		if p == Q8 {
			avx2intsEdgeQ8(from, codes, int64(rows), take, wordPtr(x), to, int64(blocks))
		} else {
			avx2intsEdgeQ4(from, codes, int64(rows), take, wordPtr(x), to, int64(blocks))
		}
	}
	sums.give(y, lane, step)
}
