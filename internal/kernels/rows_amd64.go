//go:build !purego

package kernels

// The kernels below take whole vectors of eight; what is left is Go's. They are not inlined, as
// those of asm_amd64.go.

const rowLanes = 8

//go:noinline
func (a *asm) turnInterleaved(x, cos, sin []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2TurnInterleaved(ptr(x), ptr(cos), ptr(sin), int64(n))
	goOps{}.turnInterleaved(x[n:], cos[n/2:], sin[n/2:])
}

//go:noinline
func (a *asm) atMost(dst, x []float32, limit float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2AtMost(ptr(dst), ptr(x), int64(n), bits(limit))
	goOps{}.atMost(dst[n:], x[n:], limit)
}

//go:noinline
func (a *asm) timesClamped(dst, g, up []float32, limit float32) {
	n := len(g) &^ (rowLanes - 1)
	avx2TimesClamped(ptr(dst), ptr(g), ptr(up), int64(n), bits(limit))
	goOps{}.timesClamped(dst[n:], g[n:], up[n:], limit)
}

//go:noinline
func (a *asm) times(dst, x []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2Times(ptr(dst), ptr(x), int64(n))
	goOps{}.times(dst[n:], x[n:])
}

//go:noinline
func (a *asm) relu(dst, x []float32) {
	n := len(x) &^ (rowLanes - 1)
	avx2ReLU(ptr(dst), ptr(x), int64(n))
	goOps{}.relu(dst[n:], x[n:])
}
