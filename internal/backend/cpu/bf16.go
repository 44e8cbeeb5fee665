package cpu

import (
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/coded"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/gemv"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/tensor"
)

// The size of a unit of a rounded Linear for prompts: packed weights and the panels of their
// tokens fit the second-level cache, and a step of k the first-level cache.
const (
	packBytes   = 1 << 20
	panelBytes  = 128 << 10
	panelTokens = 256 // at most
	stepBlocks  = 64  // blocks of k
	stepK       = stepBlocks * gemm.BlockK
	packRows    = 2 * gemm.PackRows
	turnedStep  = 512 // of k, of weights that are stored turned
	coupleRows  = gemm.CoupleTokens
)

// The size of a unit of a rounded Linear for generated tokens that prefetches the next one. Both units and the tokens fit the
// second-level cache.
const (
	aheadBytes  = 272 << 10
	aheadTokens = 24 // at least
)

// bf16Product is a Linear of bfloat16 weights and activations rounded to bfloat16.
type bf16Product struct {
	linear
	pairs      mat.Pairs // tokens for dot products
	panels     []uint32  // tokens for tiles
	words      int       // of a panel, or a pack
	tileTokens int       // tokens that pass the packs together
	packs      int       // of a piece that passes them, of a product in steps
}

// LinearRounded rounds the input if the weights are bfloat16 and the processor is fastest with
// bfloat16, or if the weights are blocks of integers; see the table of rules. Other products are
// not rounded: those of prompts use panels, and those of generated tokens dot products.
func (b *Backend) LinearRounded(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, role backend.Role) {
	b.single(backend.Product{Dst: dst, X: x, W: w, Bias: bias, Rounded: true, Role: role})
}

func (op *bf16Product) prepare(threads int) needs {
	packs := op.planInput()
	scratch := op.planRows(threads)
	return needs{input: packs * op.words, packs: packs, units: ceil(op.w.rows, op.unitRows), scratch: scratch}
}

func (op *bf16Product) take(input []float32) {
	in := words(input)
	op.pairs, op.panels = mat.Pairs{V: in, Stride: op.words}, in
}

// words returns scratch memory as words.
func words(v []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// planInput returns the number of units in which the input is rounded.
func (op *bf16Product) planInput() int {
	if !op.inTiles() {
		op.words = mat.PairWords(op.w.cols)
		if op.tokens > 1 {
			op.words = mat.SpreadPairs(op.w.cols)
		}
		return op.tokens
	}
	op.words = gemm.PanelWords(op.w.cols)
	switch op.kernel {
	case amxSteps, bf16Tiles:
		return op.panelCount()
	}
	return ceil(op.tokens, gemm.PanelTokens)
}

// panelCount returns the number of panels, rounded up to whole pairs.
func (op *bf16Product) panelCount() int { return 2 * ceil(op.tokens, coupleRows) }

// planRows divides the weight into units and returns the scratch per unit.
func (op *bf16Product) planRows(threads int) int {
	each := ceil(op.w.rows, 4*threads) // several units a thread
	if !op.inTiles() {
		fit := min(unitBytes/max(2*op.w.cols, 1), each)
		if op.kernel == amxOneToken {
			op.unitRows = op.oneTokenRows(fit)
			return 0
		}
		if op.readsAhead() {
			fit = min(aheadBytes/max(2*op.w.cols, 1), each)
		} else if op.w.isCoded() {
			op.unitRows = codedUnitRows(fit, op.w.rows)
			return coded.TokenSums(op.tokens)
		}
		if step := op.set.GEMV.PairRows(op.tokens, op.w.cols); fit > step {
			fit -= fit % step
		}
		op.unitRows = min(max(fit, 4), op.w.rows)
		return 0
	}
	if op.kernel == amxInPlace {
		op.unitRows = min(max(1, each/gemm.PackRows)*gemm.PackRows, op.callRows())
		sums := gemm.RowSums(op.tokensInPlace() / gemm.PanelTokens)
		if op.w.isCoded() {
			sums = coded.RowSums(coded.MostPanels)
		}
		return op.words + op.callRows()*sums
	}
	if op.kernel == amxSteps {
		return op.planStepRows(each)
	}
	pack := 4 * op.words
	op.unitRows = max(1, min(packBytes/pack*gemm.PackRows, each)/packRows) * packRows
	if op.kernel == bf16FewTokens {
		op.tileTokens = op.tokens
		return op.packedRows()/gemm.PackRows*op.words + op.packScratch()
	}
	op.tileTokens = max(1, min(panelTokens, panelBytes/pack*gemm.PanelTokens, op.tokens+coupleRows-1)/coupleRows) * coupleRows
	return op.packedRows()/gemm.PackRows*op.words + packRows*op.tileTokens + op.packScratch()
}

func (op *bf16Product) run(w *worker, unit int) {
	switch {
	case op.packed && op.kernel == amxInPlace:
		w.record(amxInPlace)
		op.tilesInPlace(w.scratch.v, unit*op.unitRows, w.next)
	case op.packed && op.kernel == bf16FewTokens:
		w.record(bf16FewTokens)
		op.tilesOfFew(w.scratch.v, unit*op.unitRows, w.next)
	case op.packed && op.kernel == amxSteps:
		w.record(amxSteps)
		op.tileSteps(w, unit*op.unitRows)
	case op.packed && op.inTiles():
		w.record(bf16Tiles)
		op.tiles(w.scratch.v, unit*op.unitRows, w.next)
	case op.packed:
		op.dots(w, unit*op.unitRows)
	case !op.inTiles():
		op.set.Vector.RoundPairs(op.pairs.V[unit*op.words:], row(op.x, unit, op.w.cols))
	case op.kernel == amxSteps:
		op.stepPanel(unit)
	default:
		op.panel(unit)
	}
}

// panel rounds 16 tokens, or fewer at the end, where a panel may be empty.
func (op *bf16Product) panel(unit int) {
	t := unit * gemm.PanelTokens
	var x mat.Floats
	n := max(0, min(gemm.PanelTokens, op.tokens-t))
	if n > 0 {
		x = from(op.x, t, 0)
	}
	op.set.GEMM.PackTokens(op.panels[unit*op.words:], x, n, op.w.cols)
}

// dots computes a unit for generated tokens, which are few, or with tiles for one token.
func (op *bf16Product) dots(w *worker, r int) {
	rows := min(op.unitRows, op.w.rows-r)
	next := w.next
	for t := 0; t < op.tokens; t += unitTokens {
		n := min(unitTokens, op.tokens-t)
		x, y := mat.Pairs{V: op.pairs.V[t*op.words:], Stride: op.words}, from(op.y, t, r)
		if op.kernel == amxOneToken {
			w.record(amxOneToken)
			op.set.GEMV.MulTile(y.V, op.at(r), x.V, rows, op.w.cols/gemm.BlockK)
			continue
		}
		w.record(pairDots)
		op.set.GEMV.MulPairsAhead(gemv.PairProduct{Y: y, W: op.at(r), X: x, Rows: rows, Tokens: n, N: op.w.cols, Next: next})
		next = nil
	}
	op.addBias(0, op.tokens, r, rows)
}

// readsAhead reports whether a unit of generated tokens prefetches the next one. So many tokens multiply the rows of a unit
// several times. If the first time waited for memory, memory would wait the other times. Coded rows are decoded once for all
// tokens then.
func (op *bf16Product) readsAhead() bool { return op.tokens >= aheadTokens }

// inTiles reports whether the kernel takes panels of tokens; other kernels take rows.
func (op *bf16Product) inTiles() bool {
	return op.kernel == amxInPlace || op.kernel == amxSteps || op.kernel == bf16Tiles || op.kernel == bf16FewTokens
}
