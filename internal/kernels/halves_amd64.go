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
	// The kernels fetch the rows behind these from the second level on, as this many streams of
	// neighbours; each piece of k goes on with them.
	kernel, high, streams := avx512Halves1, 4, 2
	switch tokens {
	case 2:
		kernel = avx512Halves2
	case 4:
		kernel = avx512Halves4
	case 8:
		kernel, high, streams = avx512Halves8, 3, 3
	}
	apart := rows * w.Stride / streams &^ 63
	far := rows*w.Stride - 2*k + rows/high*(high/streams)*2*k
	kernel(bytePtr(w.Data), int64(w.Stride), ptr(x), ptr(sums), ptr(y.V), int64(4*y.Stride), int64(n), counts, int64(far), int64(apart))
}
