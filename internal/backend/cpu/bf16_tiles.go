package cpu

import (
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/qgemm"
	"github.com/heftai/heft/internal/kernels/quant"
)

// tiles computes a unit for many tokens from packed rows. next is the weights of the next unit.
func (op *bf16Product) tiles(scratch []float32, r int, next []byte) {
	rows := min(op.unitRows, op.w.rows-r)
	packs := words(scratch[:op.packedRows()/gemm.PackRows*op.words])
	c := mat.Floats{V: scratch[len(packs):][:packRows*op.tileTokens], Stride: op.tileTokens}
	rest := scratch[len(packs)+len(c.V):]
	for t := 0; t < op.tokens; t += op.tileTokens {
		tokens := min(op.tileTokens, op.tokens-t)
		for i := 0; i < rows; i += packRows {
			var ahead []byte
			two := op.pair(packs, i)
			if t == 0 {
				op.packUnit(packs, r, i, rows, rest)
				ahead = op.following(r+i+packRows, r+rows, next)
			}
			for k := 0; k < op.w.cols; k += stepK {
				op.tile(c, two[k/2*gemm.PackRows:], ahead[min(len(ahead), 2*packRows*k):], t, tokens, k)
			}
			op.transpose(c, r+i, min(packRows, rows-i), t, tokens)
		}
	}
}

// tilesOfFew computes a unit for few tokens. next is the weights of the next unit.
func (op *bf16Product) tilesOfFew(scratch []float32, r int, next []byte) {
	rows := min(op.unitRows, op.w.rows-r)
	packs := words(scratch[:op.packedRows()/gemm.PackRows*op.words])
	blocks, rest := ceil(op.w.cols, gemm.BlockK), scratch[len(packs):]
	for i := 0; i < rows; i += packRows {
		two, n := op.pair(packs, i), min(packRows, rows-i)
		if !op.transposeRows(two, r+i, n) {
			op.packUnit(packs, r, i, rows, rest)
			op.set.GEMM.TransposePack(two, blocks)
			op.set.GEMM.TransposePack(two[op.words:], blocks)
		}
		f := gemm.FewTiles{W: two, WStride: op.words, Blocks: blocks, Rows: n, Next: op.following(r+i+packRows, r+rows, next)}
		for t := 0; t < op.tokens; t += gemm.PanelTokens {
			f.Y, f.X, f.Tokens = from(op.y, t, r+i), op.panels[t/gemm.PanelTokens*op.words:], min(gemm.PanelTokens, op.tokens-t)
			op.set.GEMM.TileFew(f)
			f.Next = nil
		}
	}
	op.addBias(0, op.tokens, r, rows)
}

// following returns the weights to prefetch while others are multiplied: those from row on if the
// unit has them, which ends before end, or else next. It returns nil if kernels do not read whole
// rows; they were not measured otherwise.
func (op *bf16Product) following(row, end int, next []byte) []byte {
	switch {
	case !fetch.InWholeRows(fetch.Packing):
		return nil
	case row < end:
		return op.stored(row)
	}
	return next
}

// stored returns the weights from row r on, or nil if they are not rows of bfloat16, coded or not.
func (op *bf16Product) stored(r int) []byte {
	switch {
	case op.w.transposed || op.w.isPacked():
		return nil
	case op.w.isCoded():
		return op.w.coded.Data[(op.w.row+r)*coded.RowBytes(op.w.cols):]
	}
	return op.at(r).Data
}

// storedUnit returns the weights of the unit of rows from r on. The last row of a view may end before its stride does.
func (op *bf16Product) storedUnit(r int) []byte {
	each := op.w.Stride
	if op.w.isCoded() {
		each = coded.RowBytes(op.w.cols)
	}
	data := op.stored(r)
	return data[:min(len(data), each*op.unitRows)]
}

// keepsUnit reports whether all rows of a unit are packed before it ends: because several groups
// of tokens read them, or because the rows of a transposed weight share cache lines.
func (op *bf16Product) keepsUnit() bool { return op.w.transposed || op.tokens > op.tileTokens }

// packedRows returns the number of packed rows in scratch memory.
func (op *bf16Product) packedRows() int {
	if op.keepsUnit() {
		return op.unitRows
	}
	return packRows
}

// pair returns the two packs of rows from i on of a unit.
func (op *bf16Product) pair(packs []uint32, i int) []uint32 {
	if op.keepsUnit() {
		return packs[i/gemm.PackRows*op.words:]
	}
	return packs
}

// packUnit packs the rows from i on of a unit of rows from r on, two packs of them: all at once
// from a transposed weight, whose lines the second-level cache keeps for the packs that share them.
func (op *bf16Product) packUnit(packs []uint32, r, i, rows int, scratch []float32) {
	two := op.pair(packs, i)
	switch {
	case op.w.isCoded():
		op.set.Coded.PackPiece(two, coded.Piece{W: &op.w.coded, Row: op.w.row + r + i, Rows: min(packRows, rows-i), Cols: op.w.cols})
	case !op.w.transposed:
		op.pack(two, r+i, 0, op.w.cols, scratch)
		op.pack(two[op.words:], r+i+gemm.PackRows, 0, op.w.cols, scratch)
	case i == 0:
		for k := 0; k < op.w.cols; k += turnedStep {
			for i := 0; i < ceil(rows, packRows)*packRows; i += gemm.PackRows {
				op.pack(packs[i/gemm.PackRows*op.words+k/2*gemm.PackRows:], r+i, k, min(turnedStep, op.w.cols-k), scratch)
			}
		}
	}
}

// transposeRows packs and transposes n rows from r on, if they are 32 rows of whole blocks. It
// reads 16 rows at once, so it returns false unless they have been prefetched.
func (op *bf16Product) transposeRows(two []uint32, r, n int) bool {
	if n < packRows || op.w.cols%gemm.BlockK != 0 || op.w.transposed || op.w.isPacked() || op.w.isCoded() || !fetch.InWholeRows(fetch.Packing) {
		return false
	}
	op.set.GEMM.TransposeRows(two, op.at(r), op.w.cols/gemm.BlockK)
	op.set.GEMM.TransposeRows(two[op.words:], op.at(r+gemm.PackRows), op.w.cols/gemm.BlockK)
	return true
}

// pack packs n elements, from k on, of up to 16 rows from r on. It rounds the values of a
// quantised weight to bfloat16, for which it needs scratch.
func (op *bf16Product) pack(dst []uint32, r, k, n int, scratch []float32) {
	rows := max(0, min(gemm.PackRows, op.w.rows-r))
	if op.w.transposed {
		op.set.QGEMM.PackTransposed(dst, quant.View{Packed: &op.w.packed, Row: op.w.row + k, Col: op.w.col + r*op.w.step, Step: op.w.step, Rows: rows, Cols: n}, scratch)
		return
	}
	if op.w.isPacked() {
		op.set.QGEMM.Pack(dst, quant.View{Packed: &op.w.packed, Row: op.w.row + r*op.w.step, Step: op.w.step, Col: op.w.col + k, Rows: rows, Cols: n}, scratch)
		return
	}
	var w mat.Weights
	if rows > 0 {
		w = op.at(r)
		w.Data = w.Data[2*k:]
	}
	op.set.GEMM.PackWeights(dst, w, rows, n)
}

// packScratch is the scratch of pack.
func (op *bf16Product) packScratch() int {
	if op.w.transposed {
		return qgemm.TransposeScratch(op.w.step)
	}
	return op.w.unpackScratch()
}

// tile adds a step from k on of two packs of rows for tokens from t on. It prefetches next.
func (op *bf16Product) tile(c mat.Floats, packs []uint32, next []byte, t, tokens, k int) {
	panels := op.panels[t/gemm.PanelTokens*op.words+k/2*gemm.PanelTokens:]
	blocks := ceil(min(stepK, op.w.cols-k), gemm.BlockK)
	op.set.GEMM.Tile(gemm.Tiles{C: c, W: packs, WStride: op.words, X: panels, XStride: op.words, Blocks: blocks, Count: ceil(tokens, coupleRows), Add: k > 0, Next: next})
}

// transpose stores rows from r on for tokens from t on.
func (op *bf16Product) transpose(c mat.Floats, r, rows, t, tokens int) {
	for i := 0; i < rows; i += gemm.PackRows {
		n := min(gemm.PackRows, rows-i)
		var bias []float32
		if op.bias != nil {
			bias = op.bias[r+i:][:n]
		}
		op.set.GEMM.Transpose(from(op.y, t, r+i), from(c, i, 0), bias, n, tokens)
	}
}
