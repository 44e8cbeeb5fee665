//go:build cuda

package cuda

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// storedWeight mirrors the struct Weight of weights.h.
type storedWeight struct {
	at, format, stride, row, col, step, transposed         uint64
	scales, scaleFormat, scaleStride, blockRows, blockCols uint64
}

// productPart and products mirror the structs Part and Products of products.h.
type productPart struct {
	w                          storedWeight
	y, ys                      uint64
	bias, biasStep, biasFormat uint64
	rows                       uint64
}

type products struct {
	part                [3]productPart
	x, xs, tokens, cols uint64
	gated, gatedStride  uint64
	activation, limit   uint64
	rounded             uint64
}

const (
	productThreads = 256
	fewTokens      = 64 // of a block, at most
)

// hasFast reports whether the kernels of products.h support w.
func (w *weight) hasFast() bool {
	return w.transposed == 0 && w.format != formatF16 && w.format != formatF32 && w.rows > 0 && w.cols > 0
}

func (w *weight) stored() storedWeight {
	blockCols := w.blockCols
	if blockCols == 0 {
		blockCols = 8
	}
	return storedWeight{w.at, w.format, w.stride, w.row, w.col, w.step, w.transposed, w.scales, w.scaleFormat, w.scaleStride, w.blockRows, blockCols}
}

// LinearRounded uses tensor cores if Options.Fast is set and a kernel supports w. Otherwise it does
// not round.
func (b *Backend) LinearRounded(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, role backend.Role) {
	one := [1]backend.Product{{Dst: dst, X: x, W: w, Bias: bias, Rounded: true, Role: role}}
	b.Products(one[:])
}

// Products fuses products: up to three of the same input, or several of single tokens.
func (b *Backend) Products(ps []backend.Product) {
	for len(ps) > 0 && b.err == nil {
		n := 1
		if !b.options.Fast || !ps[0].Rounded {
			b.Linear(ps[0].Dst, ps[0].X, ps[0].W, ps[0].Bias)
		} else {
			if n = b.aloneProducts(ps); n == 0 {
				n = b.fastProducts(ps)
			}
		}
		ps = ps[n:]
	}
}

// fastProducts computes the leading products of ps together, and returns their number.
func (b *Backend) fastProducts(ps []backend.Product) (n int) {
	o := &b.products
	*o = products{}
	var first weight
	for n < len(ps) && n < len(o.part) {
		p := &ps[n]
		w, ok := b.weight("linear", p.W)
		if !ok {
			return 1
		}
		if !w.hasFast() || n > 0 && (w.format != first.format || w.cols != first.cols || !p.Rounded || p.Role != ps[0].Role || !sameTensor(p.X, ps[0].X)) {
			break
		}
		if n == 0 {
			first = w
		}
		tokens := p.X.Rows()
		out, v := b.matrix("linear", "result", p.Dst, tokens, w.rows), b.vector("linear", "bias", p.Bias, w.rows, w.rows)
		o.part[n] = productPart{w.stored(), out.at, out.stride, v.at, v.step, v.format, uint64(w.rows)}
		n++
	}
	if n == 0 { // the format has no kernel
		b.Linear(ps[0].Dst, ps[0].X, ps[0].W, ps[0].Bias)
		return 1
	}
	tokens := ps[0].X.Rows()
	in := b.matrix("linear", "input", ps[0].X, tokens, first.cols)
	o.x, o.xs, o.cols = in.at, in.stride, uint64(first.cols)
	coded := first.format != formatBF16
	if b.err != nil || tokens == 0 {
		return n
	}
	if ps[0].Role == backend.Prompt {
		b.launchMany(tokens, coded)
	} else {
		b.launchFew(tokens, coded)
	}
	return n
}

func sameTensor(a, b tensor.Tensor) bool {
	return a.Address == b.Address && a.Data == nil && b.Data == nil && a.Rank == b.Rank && a.Dims == b.Dims && a.RowStride() == b.RowStride()
}

// blocksOf returns the number of blocks for all parts, if a block computes the given number of
// rows.
func (o *products) blocksOf(rows int) (n int) {
	for i := range o.part {
		n += ceil(int(o.part[i].rows), rows)
	}
	return n
}

// roundTokens rounds the inputs of n tokens into the scratch memory, padded to whole blocks.
func (b *Backend) roundTokens(o *products, n int) {
	width := ceil(int(o.cols), 8) * 8
	o.rounded, o.tokens = b.reserve(roundedBytes(n, int(o.cols))), uint64(n)
	b.launch(kernelRoundRows, ceil(width, threads), n, threads, o.rounded, o.x, o.xs, o.cols)
}

// roundedBytes returns the size of the rounded inputs of n tokens.
func roundedBytes(n, cols int) int64 {
	return 2 * int64(ceil(n, fewTokens)*fewTokens) * int64(ceil(cols, 8)*8)
}

// skip advances o by n tokens.
func (o *products) skip(n int) {
	o.x += 4 * o.xs * uint64(n)
	for i := range o.part {
		o.part[i].y += 4 * o.part[i].ys * uint64(n)
	}
}

// Maximum numbers of tokens per launch. The tokens of a wide launch share each weight row in the L2
// cache.
const roundedTokens, wideTokens = 8192, 2048

// launchFew launches a kernel for generated tokens. The kernel itself rounds the inputs of up to
// eight tokens.
func (b *Backend) launchFew(tokens int, coded bool) {
	o := &b.products
	rows := 16 // of a block
	if tokens <= 8 {
		k := kernelFew8
		if coded {
			k = kernelFewCodes8
		}
		o.tokens = uint64(tokens)
		launchStruct(b, k, o.blocksOf(rows), 1, productThreads, o)
		return
	}
	k, each := kernelFew64, fewTokens
	switch {
	case coded:
		k = kernelFewCodes64
	case tokens > 32:
		rows = 32
	case tokens <= 16:
		k, each = kernelFew16, 16
	case tokens <= 32:
		k, each = kernelFew32, 32
	}
	for first := 0; first < tokens && b.err == nil; first += roundedTokens {
		n := min(roundedTokens, tokens-first)
		b.roundTokens(o, n)
		launchStruct(b, k, o.blocksOf(rows), ceil(n, each), productThreads, o)
		o.skip(n)
	}
}

// launchMany launches a kernel for prompt tokens. The kind of kernel depends only on the weights.
// All tile sizes of one kind sum in the same order.
func (b *Backend) launchMany(tokens int, coded bool) {
	o := &b.products
	wide := b.capability9 && !coded && o.inChunks()
	most := roundedTokens
	if wide {
		most = wideTokens
	}
	for first := 0; first < tokens && b.err == nil; first += most {
		n := min(most, tokens-first)
		b.roundTokens(o, n)
		if wide {
			b.launchWide(n)
			o.skip(n)
			continue
		}
		k, side := kernelMany128, 128
		if n <= 64 || o.blocksOf(128)*ceil(n, 128) < b.multiprocessors {
			k, side = kernelMany64, 64
		}
		if coded {
			k += kernelManyCodes128 - kernelMany128
		}
		launchStruct(b, k, o.blocksOf(side), ceil(n, side), productThreads, o)
		o.skip(n)
	}
}

// inChunks reports whether the rows of all weights consist of 16-byte chunks at 16-byte boundaries.
func (o *products) inChunks() bool {
	bits := 2 * o.cols
	for i := range o.part {
		w := &o.part[i].w
		bits |= w.at | w.stride | 2*w.col
	}
	return bits%16 == 0
}

// launchWide chooses the largest tiles that still occupy all of the GPU's multiprocessors.
func (b *Backend) launchWide(tokens int) {
	o := &b.products
	k, rows, each := kernelWide64, 64, 64
	switch tiles := ceil(tokens, 128); {
	case tokens > 64 && tiles*o.blocksOf(256) >= 2*b.multiprocessors:
		k, rows, each = kernelWide256, 256, 128
	case tokens > 64 && tiles*o.blocksOf(128) >= b.multiprocessors*3/4:
		k, rows, each = kernelWide128, 128, 128
	}
	launchStruct(b, k, ceil(tokens, each), o.blocksOf(rows), productThreads, o)
}
