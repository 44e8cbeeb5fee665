package cpu

import (
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// A product in steps of k goes through its weights in pieces of some packs and one step, which are packed into the
// first-level cache just before all tokens are multiplied by them. The tokens of a step and the sums of a unit stay in the
// second-level cache. Panels are stored step by step, so that those of a step lie in one piece: panels of whole rows, whose
// distance is a power of two, would share few sets of a cache.
const (
	stepColumns = gemm.StepBlocks * gemm.BlockK // for all products, which may share panels
	sumsBytes   = 512 << 10                     // of a unit
	stepTokens  = 512                           // at most, of a unit's sums
	stepPacks   = 4                             // of a piece; half as many where units have no more rows
	resultBytes = 2 << 20                       // of results that do not stay in the second-level cache
)

// planStepRows divides the tokens into groups that pass the packs together, and the weights into units of at most each rows
// and their pieces. It returns the scratch that a unit needs.
func (op *bf16Product) planStepRows(each int) int {
	op.tileTokens = min(stepTokens, ceil(op.tokens, coupleRows)*coupleRows)
	rows := min(each, sumsBytes/(4*op.tileTokens))
	if op.w.isCoded() && !packsCoded(&op.linear) {
		rows = min(rows, packBytes/coded.Stride(op.w.cols))
	}
	op.packs = stepPacks
	if rows < stepPacks*gemm.PackRows {
		op.packs = stepPacks / 2
	}
	op.unitRows = max(1, rows/op.stepRows()) * op.stepRows()
	return op.unitRows*op.tileTokens + op.pieceWords() + op.packScratch()
}

// stepRows and pieceWords are the size of a piece.
func (op *bf16Product) stepRows() int   { return op.packs * gemm.PackRows }
func (op *bf16Product) pieceWords() int { return op.stepRows() * stepColumns / 2 }

// stepPanel rounds 16 tokens, or fewer at the end, where a panel may have none.
func (op *bf16Product) stepPanel(unit int) {
	t := unit * gemm.PanelTokens
	n := max(0, min(gemm.PanelTokens, op.tokens-t))
	for k := 0; k < op.w.cols; k += stepColumns {
		cols := min(stepColumns, op.w.cols-k)
		var x mat.Floats
		if n > 0 {
			x = from(op.x, t, k)
		}
		op.set.GEMM.PackTokens(op.stepPanels(k, t, cols), x, n, cols)
	}
}

// stepPanels returns the panels of a step of cols from k on, from token t on.
func (op *bf16Product) stepPanels(k, t, cols int) []uint32 {
	return op.panels[op.panelCount()*gemm.PanelWords(k)+t/gemm.PanelTokens*gemm.PanelWords(cols):]
}

// tileSteps computes a unit of rows from r on.
func (op *bf16Product) tileSteps(w *worker, r int) {
	scratch, step := w.scratch.v, &w.tiles
	rows := min(op.unitRows, op.w.rows-r)
	sums := scratch[:op.unitRows*op.tileTokens]
	packs, rest := words(scratch[len(sums):][:op.pieceWords()]), scratch[len(sums)+op.pieceWords():]
	for t := 0; t < op.tokens; t += op.tileTokens {
		tokens := min(op.tileTokens, op.tokens-t)
		for k := 0; k < op.w.cols; k += stepColumns {
			cols := min(stepColumns, op.w.cols-k)
			*step = gemm.StepTiles{W: packs, X: op.stepPanels(k, t, cols), Packs: op.packs, Blocks: ceil(cols, gemm.BlockK), Panels: ceil(tokens, gemm.PanelTokens), Add: k > 0}
			for i := 0; i < rows; i += op.stepRows() {
				op.packPiece(packs, r+i, k, cols, rest)
				step.C, step.Next = sums[i*op.tileTokens:], op.packedNext(r, rows, i+op.stepRows(), k)
				op.set.GEMM.TileSteps(step)
			}
		}
		op.storeSteps(&w.sums, sums, r, rows, t, tokens)
	}
}

// packPiece packs the rows of a piece from r on, cols elements from k on.
func (op *bf16Product) packPiece(packs []uint32, r, k, cols int, scratch []float32) {
	if op.w.isPacked() || op.w.transposed {
		for p := range op.packs {
			op.pack(packs[p*gemm.PanelWords(cols):], r+p*gemm.PackRows, k, cols, scratch)
		}
		return
	}
	rows := min(op.stepRows(), op.w.rows-r)
	if op.w.isCoded() {
		op.set.Coded.PackPiece(packs, coded.Piece{W: &op.w.coded, Row: op.w.row + r, Rows: rows, Col: k, Cols: cols})
		return
	}
	w := op.at(r)
	w.Data = w.Data[2*k:]
	op.set.GEMM.PackPiece(packs, w, rows, cols, op.packs)
}

// packedNext returns the weights that are packed after those before row i of a unit of rows from r on, in the step from
// column k on: in the end those of the next unit, which decoded weights do not have. It has no data for weights that are not
// rows of bfloat16, coded or not.
func (op *bf16Product) packedNext(r, rows, i, k int) mat.Weights {
	if i >= rows {
		i, k = 0, k+stepColumns
	}
	if k >= op.w.cols {
		r, k = r+op.unitRows, 0
	}
	if r >= op.w.rows || op.w.isPacked() || op.w.transposed {
		return mat.Weights{}
	}
	if m := &op.w.coded; op.w.isCoded() {
		each := coded.RowBytes(op.w.cols)
		return mat.Weights{Data: m.Data[(op.w.row+r+i)*each+coded.Ahead(op.w.cols, k):], Stride: each}
	}
	w := op.at(r + i)
	w.Data = w.Data[2*k:]
	return w
}

// storeSteps stores the sums of rows from r on for tokens from t on: all rows of some tokens after each other, since results
// of one token lie in one piece of memory. Results that are larger than a second-level cache are stored past it.
func (op *bf16Product) storeSteps(steps *gemm.StepSums, sums []float32, r, rows, t, tokens int) {
	*steps = gemm.StepSums{Stride: op.stepRows() * op.tileTokens, Packs: op.packs, Rows: rows, Past: 4*op.tokens*op.w.rows >= resultBytes}
	if op.bias != nil {
		steps.Bias = op.bias[r:]
	}
	for n := 0; n < tokens; n += gemm.PanelTokens {
		steps.Y, steps.C, steps.Tokens = from(op.y, t+n, r), sums[n*op.stepRows():], min(gemm.PanelTokens, tokens-n)
		op.set.GEMM.StoreSteps(steps)
	}
}
