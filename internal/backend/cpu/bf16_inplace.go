package cpu

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// The size of a product with tiles and weights in place.
const (
	callBytes  = 128 << 10                             // of weights in a call, while as many are fetched
	callTokens = gemm.MostRowPanels * gemm.PanelTokens // of more tokens than that; otherwise half as many
	// Weights are read in place for tokens of one pass, for tokens of at most smallBytes, and for at most smallTokens of
	// at most mostBytes.
	smallBytes  = 512 << 10
	smallTokens = 6 * coupleRows
	mostBytes   = 1088 << 10
)

// callRows returns the number of weight rows per call of a kernel that reads them in place. Stored rows are a multiple of 16,
// because longer calls of long rows, with the rows that they prefetch, leave too little of the second-level cache to the tokens.
// Coded rows are a multiple of 32.
func (op *bf16Product) callRows() int {
	step := gemm.PackRows
	if op.w.isCoded() {
		step = coupleRows
	}
	return max(1, callBytes/max(2*op.w.cols, 1)/step) * step
}

// weights returns the weight from a unit on if kernels prefetch it beside products, or nil.
func (op *bf16Product) weights(unit int) []byte {
	switch {
	case !op.packed:
		return nil
	case op.kernel == pairDots && op.readsAhead():
		return op.storedUnit(unit * op.unitRows)
	case op.kernel == amxInPlace || op.kernel == bf16Tiles || op.kernel == bf16FewTokens:
		return op.stored(unit * op.unitRows)
	}
	return nil
}

// tilesInPlace computes a unit for a small batch, with weights in place except at the edges. While it
// multiplies some rows it prefetches the following ones into the second-level cache; after the last
// row of the unit, those of next.
func (op *bf16Product) tilesInPlace(scratch []float32, r int, next []byte) {
	for end := min(r+op.unitRows, op.w.rows); r < end; {
		rows := min(op.callRows(), (end-r)&^(gemm.PackRows-1))
		blocks := op.w.cols / gemm.BlockK
		if rows == 0 { // fewer than 16 at the end
			rows, blocks = end-r, 0
		}
		f := gemm.Fetch{Next: next}
		if r+rows < end {
			f.Next = op.at(r + rows).Data
		}
		each := op.tokensInPlace()
		for t := 0; t < op.tokens; t += each {
			f.Quarters = op.quarters(f.Done)
			op.rowsInPlace(scratch, r, rows, blocks, t, min(each, op.tokens-t), f)
			f.Done += f.Quarters
		}
		r += rows
	}
}

// quarters returns how much of the following rows to prefetch beside a group of tokens: half beside each of the first two, since
// kernels prefetch halves, or all beside a single one.
func (op *bf16Product) quarters(done int) int {
	if op.tokens <= coupleRows {
		return 4 - done
	}
	return min(2, 4-done)
}

// tokensInPlace returns how many tokens pass the weights together. With more of them weights are
// read less often. With two passes at least, kernels prefetch half of the next weights in each.
func (op *bf16Product) tokensInPlace() int {
	if op.tokens > callTokens {
		return callTokens
	}
	return coupleRows
}

// rowsInPlace computes rows from r on for some tokens from t on: whole blocks of k from the weights in place,
// the rest packed.
func (op *bf16Product) rowsInPlace(scratch []float32, r, rows, blocks, t, tokens int, f gemm.Fetch) {
	panels, x := ceil(tokens, gemm.PanelTokens), op.panels[t/gemm.PanelTokens*op.words:]
	pack, c := words(scratch[:op.words]), mat.Floats{V: scratch[op.words:], Stride: gemm.RowSums(panels)}
	if blocks > 0 {
		op.set.GEMM.TileRows(gemm.RowTiles{C: c.V, W: op.at(r), X: x, XStride: op.words, Panels: panels, Rows: rows, Blocks: blocks, Fetch: f})
	}
	k := blocks * gemm.BlockK
	if n := op.w.cols - k; n > 0 {
		for i := 0; i < rows; i += gemm.PackRows {
			op.pack(pack, r+i, k, n, nil)
			for p := 0; p < panels; p += 2 {
				op.set.GEMM.TilePack(gemm.Tiles{C: from(c, i, p*gemm.PanelTokens), W: pack, X: x[p*op.words+k/2*gemm.PanelTokens:], XStride: op.words, Count: min(2, panels-p), Blocks: ceil(n, gemm.BlockK), Add: k > 0})
			}
		}
	}
	op.transpose(c, r, rows, t, tokens)
}
