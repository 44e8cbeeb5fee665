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
func (shifts) mulHalves(y Floats, w Weights, x, sums []float32, rows, tokens, n int, first, last bool) {
	if tokens == 1 && first && last {
		avx512HalvesOne(bytePtr(w.Data), int64(w.Stride), ptr(x), ptr(y.V), int64(n), int64(rows))
		return
	}
	var flags int64
	if first {
		flags |= 1
	}
	if last {
		flags |= 2
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
	kernel(bytePtr(w.Data), int64(w.Stride), ptr(x), ptr(sums), ptr(y.V), int64(4*y.Stride), int64(n), int64(rows), flags)
}
