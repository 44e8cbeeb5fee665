package tune

import (
	"bytes"
	"slices"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/internal/kernels/roof"
)

// The shape of the matrix that kernels read. A call reads as many bytes as a thread of the
// backend gets at a time.
const (
	columns = 2048
	perCall = 128 << 10
	// one is the scale 1 of MXFP4, and part of an ordinary number in other formats. With scales
	// of zero, products would be subnormal, which takes ten times as long.
	one = 127
)

// readers returns one function for each role, which reads all of b once. It is nil if set has no
// such kernels. Each set of readers has its own scratch memory and belongs to one thread.
func readers(set *kernels.Set, b []byte) (reads [fetch.Roles]func()) {
	x := make([]float32, 8*columns)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	reads[fetch.Roof] = func() { roof.ReadMemory(b) }
	reads[fetch.Floats], reads[fetch.CodedFloats] = floatsReader(set, b, x, 1), codedFloatsReader(set, b, x)
	reads[fetch.Tokens] = floatsReader(set, b, x, 8)
	if set.BF16 && !set.AMX {
		reads[fetch.Pairs], reads[fetch.PairTokens] = pairsReader(set, b, x, 1), pairsReader(set, b, x, 8)
		reads[fetch.CodedPairs], reads[fetch.CodedTokens] = codedPairsReader(set, b, x, 1), codedPairsReader(set, b, x, 8)
	}
	if set.QGEMM.HasInt8() {
		reads[fetch.Q8], reads[fetch.Q4] = blocksReader(set, b, x, quant.Q8), blocksReader(set, b, x, quant.Q4)
	}
	reads[fetch.Codes], reads[fetch.MXFP4] = codesReader(set, b, x, quant.E4M3), codesReader(set, b, x, quant.MXFP4)
	reads[fetch.Packing] = packingReader(set, b)
	reads[fetch.Cache] = cacheReader(set, b, x)
	return reads
}

// gainReaders returns the readers of roles whose gains are measured. With AMX they include those
// of tiles, which have one pattern and no place in plans.
func gainReaders(set *kernels.Set, b []byte) [fetch.Roles]func() {
	reads := readers(set, b)
	if set.AMX && !set.SlowPairs {
		reads[fetch.Pairs], reads[fetch.PairTokens] = tilesReader(set, b, 0), tilesReader(set, b, 1)
		reads[fetch.CodedPairs], reads[fetch.CodedTokens] = codedTilesReader(set, b, 0), codedTilesReader(set, b, 1)
	}
	return reads
}

// eachCall calls f for n rows at a time of a matrix in b.
func eachCall(b []byte, stride, n int, f func(rows []byte, n int)) {
	for ; len(b) >= n*stride; b = b[n*stride:] {
		f(b[:n*stride], n)
	}
}

// floatsReader multiplies bfloat16 weights by tokens in float32. With several tokens, kernels
// prefetch the rows of the next call. Calls are short then, because bytes prefetched beyond the
// end of b are wasted.
func floatsReader(set *kernels.Set, b []byte, x []float32, tokens int) func() {
	columns, rows := columns, perCall/(2*columns)
	if tokens > 1 {
		columns, rows = 512, 12
	}
	stride := 2 * columns
	y, in := make([]float32, tokens*rows), mat.Floats{V: x, Stride: columns}
	if !set.GEMV.HasSplit() || set.GEMV.SplitGroup(tokens) != tokens {
		return func() {
			eachCall(b, stride, rows, func(w []byte, n int) {
				set.GEMV.Mul(&gemv.Product{Y: mat.Floats{V: y, Stride: n}, W: mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}, X: in, Rows: n, Tokens: tokens, N: columns})
			})
		}
	}
	split, sums := make([]float32, tokens*set.GEMV.SplitFloats(columns)), make([]float32, set.GEMV.SplitSums(rows, tokens))
	set.GEMV.SplitTokens(split, in, tokens, columns)
	return func() {
		eachCall(b, stride, rows, func(w []byte, n int) {
			set.GEMV.MulSplit(gemv.SplitProduct{Y: mat.Floats{V: y, Stride: n}, W: mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}, X: split, Sums: sums, Rows: n, Tokens: tokens, N: columns, K: 0, Last: true})
		})
	}
}

// pairsReader multiplies bfloat16 weights by tokens rounded to bfloat16.
func pairsReader(set *kernels.Set, b []byte, x []float32, tokens int) func() {
	const stride = 2 * columns
	y, in := make([]float32, tokens*perCall/stride), roundedTokens(set, x, tokens)
	return func() {
		eachCall(b, stride, perCall/stride, func(w []byte, n int) {
			set.GEMV.MulPairs(mat.Floats{V: y, Stride: n}, mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}, in, n, tokens, columns)
		})
	}
}

// roundedTokens returns tokens of x rounded to bfloat16.
func roundedTokens(set *kernels.Set, x []float32, tokens int) mat.Pairs {
	words := mat.SpreadPairs(columns)
	in := mat.Pairs{V: make([]uint32, tokens*words), Stride: words}
	for t := range tokens {
		set.Vector.RoundPairs(in.V[t*words:], x[t*columns:][:columns])
	}
	return in
}

// codedMatrix returns b as coded weights. No group is an exception, because filler does not mark
// one; trained weights hardly have any.
func codedMatrix(b []byte) *coded.Matrix {
	return &coded.Matrix{Data: b, Rows: len(b) / coded.RowBytes(columns), Cols: columns}
}

// codedRows calls f for as many rows of m at a time as a thread of the backend computes.
func codedRows(m *coded.Matrix, f func(row, n int)) {
	const most = perCall / (2 * columns)
	for row := 0; row < m.Rows; row += most {
		f(row, min(most, m.Rows-row))
	}
}

// codedPairsReader multiplies coded weights by tokens rounded to bfloat16.
func codedPairsReader(set *kernels.Set, b []byte, x []float32, tokens int) func() {
	if !set.Coded.HasPairs(columns) {
		return nil
	}
	const most = perCall / (2 * columns)
	in := roundedTokens(set, x, tokens)
	p := coded.TokensProduct{Y: mat.Floats{V: make([]float32, tokens*most), Stride: most}, W: codedMatrix(b), X: in, Tokens: tokens, Sums: make([]float32, coded.TokenSums(tokens))}
	return func() {
		codedRows(p.W, func(row, n int) {
			p.Row, p.Rows = row, n
			set.Coded.MulTokens(p)
		})
	}
}

// tilesReader multiplies bfloat16 weights by one token, or by a panel of tokens, with tiles.
func tilesReader(set *kernels.Set, b []byte, panels int) func() {
	const stride, rows, blocks = 2 * columns, perCall / (2 * columns), columns / gemm.BlockK
	y, x := make([]float32, rows*gemm.CoupleTokens), tileTokens(panels)
	return func() {
		eachCall(b, stride, rows, func(w []byte, n int) {
			weights := mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}
			if panels == 0 {
				set.GEMV.MulTile(y[:n], weights, x, n, blocks)
				return
			}
			next := w[len(w):cap(w)]
			set.GEMM.TileRows(gemm.RowTiles{C: y, W: weights, X: x, Panels: panels, Rows: n, Blocks: blocks, Fetch: gemm.Fetch{Next: next, Quarters: 4}})
		})
	}
}

// codedTilesReader multiplies coded weights by one token, or by a panel of tokens, with tiles.
func codedTilesReader(set *kernels.Set, b []byte, panels int) func() {
	if !set.Coded.HasTiles(columns) {
		return nil
	}
	p := coded.TilesProduct{C: make([]float32, perCall/(2*columns)*gemm.CoupleTokens), W: codedMatrix(b), X: tileTokens(panels), Panels: panels, Scratch: make([]float32, coded.TileScratch)}
	return func() {
		codedRows(p.W, func(row, n int) {
			p.Row, p.Rows = row, n
			set.Coded.MulTiles(p)
		})
	}
}

// tileTokens returns one token, or a panel of tokens, of ones in the layout of the tile kernels.
func tileTokens(panels int) []uint32 {
	words := columns / 2
	if panels > 0 {
		words = gemm.PanelWords(columns)
	}
	return slices.Repeat([]uint32{0x3f803f80}, words)
}

// codedFloatsReader multiplies coded weights by one token.
func codedFloatsReader(set *kernels.Set, b []byte, x []float32) func() {
	if !set.Coded.HasSplit(columns) || !set.GEMV.HasSplit() {
		return nil
	}
	m, y, in := codedMatrix(b), make([]float32, perCall/(2*columns)), make([]float32, set.GEMV.SplitFloats(columns))
	set.GEMV.SplitTokens(in, mat.Floats{V: x, Stride: columns}, 1, columns)
	return func() { codedRows(m, func(row, n int) { set.Coded.MulSplit(y[:n], m, row, in) }) }
}

// blocksReader multiplies interleaved weights of p by one token rounded to 8 bits.
func blocksReader(set *kernels.Set, b []byte, x []float32, p quant.Packing) func() {
	stride := columns / quant.BlockColumns * p.BlockBytes()
	rows := len(b) / stride / quant.InterleavedRows * quant.InterleavedRows
	w := &quant.Packed{Packing: p, Codes: b[:rows*stride], Width: columns, Height: rows, Rows: 1, Columns: quant.BlockColumns}
	words := set.QGEMM.Int8Words(p, columns)
	y, in := make([]float32, rows), mat.Pairs{V: make([]uint32, words), Stride: words}
	set.QGEMM.RoundInt8(p, in.V, x[:columns])
	const most = 8 * quant.InterleavedRows // the bytes per call
	return func() {
		for row := 0; row < rows; row += most {
			set.QGEMM.MulInt8(mat.Floats{V: y[row:], Stride: rows}, quant.View{Packed: w, Row: row, Step: 1, Rows: min(most, rows-row), Cols: columns}, in, 1, false)
		}
	}
}

// codes returns FP8 or MXFP4 weights in b with ordinary scales.
func codes(b []byte, p quant.Packing) *quant.Packed {
	w := &quant.Packed{Packing: p, Codes: b, Width: columns, ScaleFormat: mat.Float32, Rows: 1, Columns: columns}
	if p == quant.MXFP4 {
		w.Columns = quant.BlockColumns
	}
	w.Scales = bytes.Repeat([]byte{one}, 4*len(b)/w.RowBytes()*columns/w.Columns)
	return w
}

// codesReader multiplies FP8 or MXFP4 weights by one token.
func codesReader(set *kernels.Set, b []byte, x []float32, p quant.Packing) func() {
	w := codes(b, p)
	rows, most := len(b)/w.RowBytes(), perCall/w.RowBytes()
	if !set.QGEMM.HasMinifloat(w, 0, columns) {
		return nil
	}
	y, packed, scratch := make([]float32, most), make([]float32, set.QGEMM.MinifloatFloats(w, columns)), make([]float32, set.QGEMM.MinifloatScratch(w, most, 1, columns))
	set.QGEMM.PackMinifloat(packed, w, mat.Floats{V: x, Stride: columns}, 1, columns)
	return func() {
		for row := 0; row+most <= rows; row += most {
			set.QGEMM.MulMinifloat(mat.Floats{V: y, Stride: most}, quant.View{Packed: w, Row: row, Step: 1, Rows: most, Cols: columns}, packed, scratch, 1)
		}
	}
}

// packingReader packs bfloat16 weights as products of prompts do.
func packingReader(set *kernels.Set, b []byte) func() {
	const stride = 2 * columns
	if set.BF16 && !set.SlowPairs {
		pack := make([]uint32, gemm.PanelWords(columns))
		return func() {
			eachCall(b, stride, gemm.PackRows, func(w []byte, n int) {
				set.GEMM.PackWeights(pack, mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}, n, columns)
			})
		}
	}
	lanes := set.GEMM.PanelLanes()
	panel := make([]float32, lanes*columns)
	return func() {
		eachCall(b, stride, lanes, func(w []byte, n int) {
			set.GEMM.WidenColumns(panel, mat.Weights{Data: w, Stride: stride, Format: mat.BFloat16}, n, columns, lanes*stride)
		})
	}
}

// cacheReader multiplies queries of eight heads by cached bfloat16 keys.
func cacheReader(set *kernels.Set, b []byte, x []float32) func() {
	const dim, heads, queries = 128, 8, 2
	p := &attention.Paged{Data: b, Row: 2 * dim, Heads: heads, Format: mat.BFloat16}
	p.Head = attention.PagedTokens * p.Row
	p.Page = heads * p.Head
	if !set.Attention.HasPages() {
		return nil
	}
	var pages []int32
	for i := range len(b) / p.Page {
		pages = append(pages, int32(i))
	}
	keys := len(pages) * attention.PagedTokens
	y, q := make([]float32, heads*queries*keys), x[:dim*queries*heads]
	return func() { set.Attention.Scores(mat.Floats{V: y, Stride: keys}, q, queries, p, pages, dim) }
}
