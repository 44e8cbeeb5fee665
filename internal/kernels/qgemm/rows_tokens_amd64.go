//go:build !purego

package qgemm

import (
	"unsafe"

	"github.com/heftai/heft/internal/kernels/asm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A tokensKernel multiplies two rows of w, ws bytes apart, by some tokens, xs bytes apart. Their sums
// are neighbours in y, and those of tokens ys bytes apart.
type tokensKernel func(w unsafe.Pointer, ws int64, x unsafe.Pointer, xs int64, y unsafe.Pointer, ys, blocks int64)

// tokensTile is a kernel with its number of tokens.
type tokensTile struct {
	tokens int
	kernel tokensKernel
}

// vnniTokens are the kernels for several tokens, in descending order of tokens. Other packings are
// multiplied by one token after the other.
var vnniTokens = [quant.Packings][]tokensTile{
	quant.Q4K:   {{4, avx512vnniTokensQ4Kx4}, {2, avx512vnniTokensQ4Kx2}},
	quant.Q5K:   {{4, avx512vnniTokensQ5Kx4}, {2, avx512vnniTokensQ5Kx2}},
	quant.Q6K:   {{4, avx512vnniTokensQ6Kx4}, {2, avx512vnniTokensQ6Kx2}},
	quant.Q2K:   {{4, avx512vnniTokensQ2Kx4}, {2, avx512vnniTokensQ2Kx2}},
	quant.Q3K:   {{4, avx512vnniTokensQ3Kx4}, {2, avx512vnniTokensQ3Kx2}},
	quant.IQ4XS: {{4, avx512vnniTokensIQ4XSx4}, {2, avx512vnniTokensIQ4XSx2}},
}

func (a *simdRows) mulTokens(p quant.Packing, y mat.Floats, w []byte, stride, blocks, rows int, x mat.Pairs, tokens int) (done int) {
	if a.tokens == nil {
		return 0
	}
	for _, tile := range a.tokens[p] {
		for ; tokens-done >= tile.tokens; done += tile.tokens {
			to, in := y.V[done*y.Stride:], x.V[done*x.Stride:]
			for i := 0; i+1 < rows; i += 2 {
				callTokens(tile.kernel, w[i*stride:], stride, in, x.Stride, to[i:], y.Stride, blocks)
			}
			for t := 0; t < tile.tokens && rows%2 == 1; t++ {
				a.mulRows(p, to[t*y.Stride+rows-1:][:1], w[(rows-1)*stride:], stride, blocks, in[t*x.Stride:])
			}
		}
	}
	return done
}

//go:noinline
func callTokens(k tokensKernel, w []byte, ws int, x []uint32, xs int, y []float32, ys, blocks int) {
	k(asm.Bytes(w), int64(ws), asm.Words(x), int64(4*xs), asm.Floats(y), int64(4*ys), int64(blocks))
}
