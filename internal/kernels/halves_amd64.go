//go:build !purego

package kernels

// shifts is AVX-512.
type shifts struct{}

func (shifts) most() int { return 8 }

//go:noinline
func (shifts) split(dst []float32, step int, src []float32) {
	avx512Split(ptr(dst), int64(4*step), ptr(src), int64(len(src)))
}

//go:noinline
func (shifts) mulHalves(y Floats, w Weights, x, sums []float32, rows, tokens, n, k int, last bool) {
	if tokens == 1 && k == 0 && last {
		avx512HalvesOne(bytePtr(w.Data), int64(w.Stride), ptr(x), ptr(y.V), int64(n), int64(rows))
		return
	}
	counts := int64(4 * rows)
	if k == 0 {
		counts |= 1
	}
	if last {
		counts |= 2
	}
	kernel := avx512Halves1
	switch tokens {
	case 2:
		kernel = avx512Halves2
	case 4:
		kernel = avx512Halves4
	case 8:
		kernel = avx512Halves8
	}
	far, apart := ahead(tokens, rows, w.Stride, k)
	kernel(bytePtr(w.Data), int64(w.Stride), ptr(x), ptr(sums), ptr(y.V), int64(4*y.Stride), int64(n), counts, int64(far), int64(apart))
}

// ahead is where the kernels fetch the rows behind these, piece by piece of k: streams that lie
// apart, from far on. With 8 tokens each 32 columns of three rows take a line of three streams of
// six, by turns; with fewer each of four rows takes two lines of two.
func ahead(tokens, rows, stride, k int) (far, apart int) {
	far = rows*stride - 2*k
	if tokens < 8 {
		return far + rows/4*(k/HalvesBlock)*128, rows * stride / 2 &^ 63
	}
	const streams = 6
	apart = staggered(rows*stride/streams, streams)
	columns := rows / 3 * (k / HalvesBlock)
	far += 32 * columns
	if columns%2 == 1 { // the turn of the last three
		return far + 5*apart, -apart
	}
	return far, apart
}

// staggered is the distance next to apart at which six or eight streams do not come to new pages of
// memory together. The processor reads ahead by itself in a page when it has seen some ten lines of
// it asked for, and each of those holds one of few fill buffers for as long as memory takes.
func staggered(apart, streams int) int {
	const page, most = 4096, 4096 * 3 / 8
	least, in := page/streams&^63, apart%page&^63
	apart = apart &^ (page - 1)
	switch {
	case in <= page/2:
		return apart + min(max(in, least), most)
	default:
		return apart + max(min(in, page-least), page-most)
	}
}
