package cpu

import (
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
)

// Sizes of a unit of a rounded Linear for prompts: packed weights and the panels of the
// tokens that pass them share the second-level cache, and a step of k the first.
const (
	packBytes   = 256 << 10
	panelBytes  = 512 << 10
	panelTokens = 256 // at most
	stepBlocks  = 8   // blocks of k
	packRows    = 2 * kernels.PackRows
	coupleRows  = 2 * kernels.PanelTokens
)

// rounded is a Linear of bfloat16 weights and activations rounded to bfloat16.
type rounded struct {
	linear
	role   backend.Role
	pairs  kernels.Pairs // of generated tokens
	panels []uint32      // of a prompt's tokens
	words  int           // of a panel, or a pack
	few    int           // tokens that pass the packs together
	packed bool          // x is in pairs or panels: the units are rows of the weight
}

// LinearRounded rounds the input where the weights are bfloat16 and the variant has
// instructions for products of bfloat16. Transposed weights are used as Linear uses them.
func (b *Backend) LinearRounded(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, role backend.Role) {
	if !b.set.Rounds() || w.Quant != nil || w.Transposed {
		b.Linear(dst, x, w, bias)
		return
	}
	op, ok := b.linearOf(dst, x, w, bias)
	if !ok {
		return
	}
	if op.w.Format != kernels.BFloat16 {
		b.Linear(dst, x, w, bias)
		return
	}
	b.rounded = rounded{linear: op, role: role}
	r := &b.rounded
	units, work := r.planInput()
	if err := b.input.grow(b.ledger, units*r.words); err != nil {
		b.fail("linear: %w", err)
		return
	}
	in := words(b.input.v[:units*r.words])
	r.pairs, r.panels = kernels.Pairs{V: in, Stride: r.words}, in
	b.run(r, units, work)

	r.packed = true
	if !b.reserve(r.planRows(len(b.pool.workers))) {
		return
	}
	b.run(r, ceil(op.w.rows, r.unitRows), op.w.rows*op.w.cols*op.tokens)
}

// words is scratch memory as words.
func words(v []float32) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// planInput says in how many units the input is rounded and what work that is.
func (op *rounded) planInput() (units, work int) {
	work = op.tokens * op.w.cols
	if op.role == backend.Generated {
		op.words = kernels.PairWords(op.w.cols)
		return op.tokens, work
	}
	op.words = kernels.PanelWords(op.w.cols)
	return 2 * ceil(op.tokens, coupleRows), work
}

// planRows cuts the weight into units and returns the scratch that one needs.
func (op *rounded) planRows(threads int) int {
	each := ceil(op.w.rows, 4*threads) // several units a thread
	if op.role == backend.Generated {
		fit := min(unitBytes/max(2*op.w.cols, 1), each)
		if fit > 4 {
			fit &^= 3
		}
		op.unitRows = min(max(fit, 4), op.w.rows)
		return 0
	}
	pack := 4 * op.words
	op.unitRows = max(1, min(packBytes/pack*kernels.PackRows, each)/packRows) * packRows
	op.few = max(1, min(panelTokens, panelBytes/pack*kernels.PanelTokens, op.tokens+coupleRows-1)/coupleRows) * coupleRows
	return op.unitRows/kernels.PackRows*op.words + packRows*op.few
}

func (op *rounded) run(w *worker, unit int) {
	switch {
	case op.packed && op.role == backend.Prompt:
		op.tiles(w.scratch.v, unit*op.unitRows)
	case op.packed:
		op.dots(unit * op.unitRows)
	case op.role == backend.Generated:
		op.set.Narrow(op.pairs.V[unit*op.words:], row(op.x, unit, op.w.cols))
	default:
		op.panel(unit)
	}
}

// panel rounds 16 tokens, or fewer at the end, where a panel may have none.
func (op *rounded) panel(unit int) {
	t := unit * kernels.PanelTokens
	var x kernels.Floats
	n := max(0, min(kernels.PanelTokens, op.tokens-t))
	if n > 0 {
		x = from(op.x, t, 0)
	}
	op.set.PackTokens(op.panels[unit*op.words:], x, n, op.w.cols)
}

// dots computes a unit for generated tokens, which are few.
func (op *rounded) dots(r int) {
	rows := min(op.unitRows, op.w.rows-r)
	for t := 0; t < op.tokens; t += unitTokens {
		n := min(unitTokens, op.tokens-t)
		x := kernels.Pairs{V: op.pairs.V[t*op.words:], Stride: op.words}
		op.set.MulPairs(from(op.y, t, r), op.at(r), x, rows, n, op.w.cols)
	}
	if op.bias == nil {
		return
	}
	for t := range op.tokens {
		axpy(from(op.y, t, r).V[:rows], op.bias[r:][:rows], 1)
	}
}

// tiles computes a unit for a prompt: some packs of rows, which the tokens pass.
func (op *rounded) tiles(scratch []float32, r int) {
	rows := min(op.unitRows, op.w.rows-r)
	packs := words(scratch[:op.unitRows/kernels.PackRows*op.words])
	c := kernels.Floats{V: scratch[len(packs):], Stride: op.few}
	for i := 0; i < ceil(rows, packRows)*packRows; i += kernels.PackRows {
		n := min(kernels.PackRows, rows-i)
		if n <= 0 {
			op.set.PackWeights(packs[i/kernels.PackRows*op.words:], kernels.Weights{}, 0, op.w.cols)
			continue
		}
		op.set.PackWeights(packs[i/kernels.PackRows*op.words:], op.at(r+i), n, op.w.cols)
	}
	for t := 0; t < op.tokens; t += op.few {
		tokens := min(op.few, op.tokens-t)
		for i := 0; i < rows; i += packRows {
			op.tile(c, packs[i/kernels.PackRows*op.words:], t, tokens)
			for j := i; j < min(i+packRows, rows); j += kernels.PackRows {
				n := min(kernels.PackRows, rows-j)
				var bias []float32
				if op.bias != nil {
					bias = op.bias[r+j:][:n]
				}
				op.set.Turn(from(op.y, t, r+j), from(c, j-i, 0), bias, n, tokens)
			}
		}
	}
}

// tile computes two packs of rows for tokens from t on.
func (op *rounded) tile(c kernels.Floats, packs []uint32, t, tokens int) {
	blocks := ceil(op.w.cols, kernels.BlockK)
	panels := op.panels[t/kernels.PanelTokens*op.words:]
	for k := 0; k < blocks; k += stepBlocks {
		at := k * kernels.BlockK / 2 * kernels.PanelTokens
		op.set.Tile(c, packs[at:], op.words, panels[at:], op.words, min(stepBlocks, blocks-k), ceil(tokens, coupleRows), k > 0)
	}
}
