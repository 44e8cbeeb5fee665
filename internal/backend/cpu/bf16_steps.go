package cpu

import (
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// A product in steps of k goes through its weights in pieces of two packs and one step, which are packed into the
// first-level cache just before all tokens are multiplied by them. The tokens of a step and the sums of a unit stay in the
// second-level cache. Panels are stored step by step, so that those of a step lie in one piece: panels of whole rows, whose
// distance is a power of two, would share few sets of a cache.
const (
	stepColumns   = gemm.StepBlocks * gemm.BlockK
	sumsBytes     = 512 << 10 // of a unit
	stepTokens    = 512       // at most, of a unit's sums
	stepPackWords = packRows * stepColumns / 2
)

// planSteps divides the tokens into groups that pass the packs together.
func (op *bf16Product) planSteps() {
	op.tileTokens = min(stepTokens, ceil(op.tokens, coupleRows)*coupleRows)
}

// planStepRows cuts the weight into units of at most each rows, and returns the scratch that one needs.
func (op *bf16Product) planStepRows(each int) int {
	rows := min(each, sumsBytes/(4*op.tileTokens))
	if op.w.isCoded() {
		rows = min(rows, packBytes/coded.Stride(op.w.cols))
	}
	op.unitRows = max(1, rows/packRows) * packRows
	return op.unitRows*op.tileTokens + stepPackWords + op.packScratch()
}

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
func (op *bf16Product) tileSteps(scratch []float32, r int) {
	rows := min(op.unitRows, op.w.rows-r)
	sums := scratch[:op.unitRows*op.tileTokens]
	packs, rest := words(scratch[len(sums):][:stepPackWords]), scratch[len(sums)+stepPackWords:]
	for t := 0; t < op.tokens; t += op.tileTokens {
		tokens := min(op.tileTokens, op.tokens-t)
		for k := 0; k < op.w.cols; k += stepColumns {
			cols := min(stepColumns, op.w.cols-k)
			step := gemm.StepTiles{W: packs, X: op.stepPanels(k, t, cols), Blocks: ceil(cols, gemm.BlockK), Panels: ceil(tokens, gemm.PanelTokens), Add: k > 0}
			for i := 0; i < rows; i += packRows {
				op.pack(packs, r+i, k, cols, rest)
				op.pack(packs[gemm.PanelWords(cols):], r+i+gemm.PackRows, k, cols, rest)
				step.C, step.Next = sums[i*op.tileTokens:], op.packedNext(r, rows, i+packRows, k)
				op.set.GEMM.TileSteps(step)
			}
		}
		op.transposeSteps(sums, r, rows, t, tokens)
	}
}

// packedNext returns the weights that are packed after those before row i of a unit of rows from r on, in the step from k on.
// It has no data for weights that are not rows of bfloat16.
func (op *bf16Product) packedNext(r, rows, i, k int) mat.Weights {
	if i >= rows {
		i, k = 0, k+stepColumns
	}
	if k >= op.w.cols || op.w.isPacked() || op.w.transposed {
		return mat.Weights{}
	}
	w := op.at(r + i)
	w.Data = w.Data[2*k:]
	return w
}

// transposeSteps stores the sums of rows from r on for tokens from t on: all rows of some tokens after each other, since
// results of one token lie in one piece of memory.
func (op *bf16Product) transposeSteps(sums []float32, r, rows, t, tokens int) {
	for n := 0; n < tokens; n += gemm.PanelTokens {
		for i := 0; i < rows; i += packRows {
			c := mat.Floats{V: sums[i*op.tileTokens+n*packRows:][:packRows*gemm.PanelTokens], Stride: gemm.PanelTokens}
			op.transpose(c, r+i, min(packRows, rows-i), t+n, min(gemm.PanelTokens, tokens-n))
		}
	}
}
