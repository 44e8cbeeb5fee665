//go:build !purego

package kernels

//go:noinline
func (a *asm) spread(dst []float32, step int, src []byte, n int, f Format) {
	a.spreads[f](ptr(dst), int64(4*step), bytePtr(src), int64(n))
}

//go:noinline
func (a *asm) groups(y Floats, w, x, next, sums []float32, rows, tokens, n int, first, last bool) {
	var flags int64
	if first {
		flags |= 1
	}
	if last {
		flags |= 2
	}
	a.multiply(ptr(w), ptr(x), ptr(next), ptr(sums), ptr(y.V), int64(4*y.Stride), int64(n), int64(rows), int64(tokens), flags)
}
