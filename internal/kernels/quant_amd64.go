//go:build !purego

package kernels

func (a *asm) e4m3(dst []float32, src []byte, scale float32) { goOps{}.e4m3(dst, src, scale) }

func (a *asm) mxfp4(dst []float32, src, scales []byte) { mxfp4Go(dst, src, scales) }

func (a *asm) nibbles(dst []float32, words []byte, shift int, scale, zero []float32) {
	goOps{}.nibbles(dst, words, shift, scale, zero)
}

func (a *asm) interleaved(dst []float32, words []byte, scale, zero []float32) {
	goOps{}.interleaved(dst, words, scale, zero)
}
