package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A kernel is one way to multiply a weight by tokens.
type kernel uint8

// The kernels. Those of one line have the same order of summation.
const (
	noKernel kernel = iota
	dotRows
	dotWidened
	dotTransposed
	dotQuantised
	dotGroups
	columnSums
	columnSumsUnpacked
	splitDots
	pairDots
	amxOneToken
	amxInPlace
	bf16Tiles
	smallBatches
	panelSums
	interleavedFloats
	interleavedInt8
	minifloatCodes
	allKernels
)

// kernelNames are those that serve devices prints: the function of package kernels, and how it gets at
// weights where that differs.
var kernelNames = [allKernels]string{
	dotRows:            "gemv.Mul",
	dotWidened:         "gemv.Mul, weights widened",
	dotTransposed:      "gemv.Mul, weights transposed",
	dotQuantised:       "quant.DotPacked",
	dotGroups:          "gemm.MulGroups",
	columnSums:         "gemv.AddLanes",
	columnSumsUnpacked: "gemv.AddLanes, weights unpacked",
	splitDots:          "gemv.MulSplit",
	pairDots:           "gemv.MulPairs",
	amxOneToken:        "gemv.MulTile",
	amxInPlace:         "gemm.TileRows",
	bf16Tiles:          "gemm.Tile",
	smallBatches:       "gemm.MulSmallBatch",
	panelSums:          "gemm.SumPanels",
	interleavedFloats:  "qgemm.MulInterleaved",
	interleavedInt8:    "qgemm.MulInt8",
	minifloatCodes:     "qgemm.MulMinifloat",
}

// String is the name that serve devices prints.
func (k kernel) String() string { return kernelNames[k] }

// A layout is how a weight lies in memory.
type layout uint8

const (
	byRows        layout = 1 << iota // rows one after another
	byColumns                        // transposed
	inInterleaved                    // rows of blocks, 16 interleaved
	anyLayout     = byRows | byColumns | inInterleaved
)

// A mode says whether activations may be rounded.
type mode uint8

const (
	exact   mode = 1 << iota // Linear, --precision high
	rounded                  // LinearRounded, --precision auto
	anyMode = exact | rounded
)

// Roles as a set.
const (
	generated = 1 << backend.Generated
	prompt    = 1 << backend.Prompt
	anyRole   = generated | prompt
)

// formats is a set of stored formats: bit f is dense format f, bit 8+p is packing p.
type formats uint32

const (
	bfloat16   formats = 1 << mat.BFloat16
	float32s   formats = 1 << mat.Float32
	dense              = bfloat16 | float32s | 1<<mat.Float16
	blocks             = 1<<(8+quant.Q8) | 1<<(8+quant.Q4)
	minifloats         = 1<<(8+quant.E4M3) | 1<<(8+quant.MXFP4)
	int4s              = 1<<(8+quant.Int4Rows) | 1<<(8+quant.Int4Columns)
	quantised          = blocks | minifloats | int4s
	anyFormat          = dense | quantised
)

// A choice is what a kernel is chosen by.
type choice struct {
	set    *kernels.Set
	w      *matrix
	tokens int
	mode   mode
	role   backend.Role
}

// A rule gives a kernel to the products that meet all its conditions. Roles is a set of bits, from and
// to are numbers of tokens, 0 for no limit; needs and when are nil where there is nothing more to ask.
type rule struct {
	kernel   kernel
	formats  formats
	layout   layout
	mode     mode
	roles    uint8
	from, to int
	needs    func(*kernels.Set) bool // of the processor
	when     func(*choice) bool      // of the shape, and of numbers of tokens that depend on it
}

// rules is the table: the first rule that a product meets chooses its kernel. Nothing else does.
var rules = []rule{
	{kernel: interleavedFloats, formats: blocks, layout: inInterleaved, mode: exact, roles: anyRole, when: func(c *choice) bool { return c.wholeBlocks() && c.tokens <= c.set.QGEMM.InterleavedTokens() }},
	{kernel: panelSums, formats: blocks, layout: inInterleaved, mode: exact, roles: anyRole, when: hasColumns},
	{kernel: minifloatCodes, formats: minifloats, layout: byRows, mode: exact, roles: anyRole, when: wholeCodes},
	{kernel: minifloatCodes, formats: minifloats, layout: byRows, mode: rounded, roles: generated, when: wholeCodes},
	// Tiles of integers would have to be scaled block by block, which takes longer than widening weights to
	// bfloat16 once for all tokens: so prompts use those with AMX.
	{kernel: interleavedInt8, formats: blocks, layout: byRows | inInterleaved, mode: rounded, roles: generated, needs: integers, when: (*choice).wholeBlocks},
	{kernel: interleavedInt8, formats: blocks, layout: byRows | inInterleaved, mode: rounded, roles: prompt, needs: integersWithoutAMX, when: (*choice).wholeBlocks},
	{kernel: amxOneToken, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, to: 1, needs: amx, when: wholeSteps},
	{kernel: amxInPlace, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, needs: amx, when: fitsCache},
	{kernel: bf16Tiles, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, needs: amx},
	{kernel: bf16Tiles, formats: bfloat16, layout: byRows, mode: rounded, roles: prompt, needs: bf16},
	{kernel: bf16Tiles, formats: quantised, layout: byRows | inInterleaved, mode: rounded, roles: prompt, needs: bf16},
	{kernel: bf16Tiles, formats: int4s, layout: byColumns, mode: rounded, roles: prompt, needs: bf16, when: neighbouringGroups},
	{kernel: pairDots, formats: bfloat16, layout: byRows, mode: rounded, roles: generated, needs: bf16},
	{kernel: smallBatches, formats: bfloat16, layout: byRows, mode: rounded, roles: prompt, to: gemm.SmallBatchTokens, needs: smallBatchKernels, when: wholeTiles},
	{kernel: panelSums, formats: anyFormat, layout: anyLayout, mode: rounded, roles: prompt, when: hasColumns},
	{kernel: splitDots, formats: bfloat16, layout: byRows, mode: rounded, roles: generated, needs: splits, when: hasColumns},
	{kernel: dotQuantised, formats: quantised, layout: byRows | inInterleaved, mode: anyMode, roles: anyRole, to: 1, when: wholeRows},
	{kernel: columnSumsUnpacked, formats: quantised, layout: byColumns, mode: anyMode, roles: anyRole, to: packedTokens, when: everyColumn},
	{kernel: columnSums, formats: dense, layout: byColumns, mode: anyMode, roles: anyRole, to: columnTokens, when: everyColumn},
	{kernel: dotGroups, formats: anyFormat, layout: anyLayout, mode: anyMode, roles: anyRole, needs: groups, when: manyGroups},
	{kernel: dotTransposed, formats: anyFormat, layout: byColumns, mode: anyMode, roles: anyRole},
	{kernel: dotWidened, formats: quantised, layout: byRows | inInterleaved, mode: anyMode, roles: anyRole},
	{kernel: dotWidened, formats: dense &^ float32s, layout: byRows, mode: anyMode, roles: anyRole, when: func(c *choice) bool { return c.set.GEMV.WidenAt > 0 && c.tokens >= c.set.GEMV.WidenAt }},
	{kernel: dotRows, formats: dense, layout: byRows, mode: anyMode, roles: anyRole},
}

// What rules ask of the processor.
func integers(s *kernels.Set) bool           { return s.QGEMM.HasInt8() }
func integersWithoutAMX(s *kernels.Set) bool { return s.QGEMM.HasInt8() && !s.AMX }
func bf16(s *kernels.Set) bool               { return s.BF16 && !s.SlowPairs }
func amx(s *kernels.Set) bool                { return s.AMX && !s.SlowPairs }
func smallBatchKernels(s *kernels.Set) bool  { return s.GEMM.HasSmallBatch() }
func splits(s *kernels.Set) bool             { return s.GEMV.HasSplit() }
func groups(s *kernels.Set) bool             { return s.GEMM.HasGroups() }

// What rules ask of the shape.

func hasColumns(c *choice) bool { return c.w.cols > 0 }

// wholeBlocks: the view begins and ends with blocks of q8_0 or q4_0.
func (c *choice) wholeBlocks() bool {
	return c.w.cols > 0 && (c.w.col|c.w.cols)%quant.BlockColumns == 0
}

// wholeCodes: kernels take the blocks that share a scale.
func wholeCodes(c *choice) bool { return c.set.QGEMM.HasMinifloat(&c.w.packed, c.w.col, c.w.cols) }

// wholeSteps: rows are whole steps of a tile.
func wholeSteps(c *choice) bool { return c.w.cols > 0 && c.w.cols%gemm.BlockK == 0 }

// wholeTiles: rows and columns fill the blocks that are transposed in registers.
func wholeTiles(c *choice) bool {
	return c.w.rows >= gemm.SmallBatchRows && c.w.cols > 0 && c.w.cols%gemm.SmallBatchColumns == 0
}

// fitsCache: the tokens stay in the second-level cache, so that weights are not worth packing.
func fitsCache(c *choice) bool { return c.tokens <= smallTokens || 2*c.tokens*c.w.cols <= smallBytes }

// neighbouringGroups: rows with the same scale are neighbours.
func neighbouringGroups(c *choice) bool { return c.w.packed.Index == nil }

// wholeRows: there is a kernel for whole rows of a quantised weight.
func wholeRows(c *choice) bool { return c.w.dots(c.set) }

// everyColumn: the columns that are used are neighbours.
func everyColumn(c *choice) bool { return c.w.step == 1 }

// manyGroups: there are enough tokens to be worth packing.
func manyGroups(c *choice) bool {
	return c.w.cols > 0 && c.tokens >= groupFrom*c.set.GEMM.GroupTokens
}

// kernel is the kernel of the first rule that c meets.
func (c *choice) kernel() kernel {
	f, l := c.w.formats(), c.w.layout()
	for i := range rules {
		if r := &rules[i]; r.formats&f != 0 && r.layout&l != 0 && r.mode&c.mode != 0 && r.roles&(1<<c.role) != 0 && c.meets(r) {
			return r.kernel
		}
	}
	return noKernel
}

func (c *choice) meets(r *rule) bool {
	return c.tokens >= r.from && (r.to == 0 || c.tokens <= r.to) && (r.needs == nil || r.needs(c.set)) && (r.when == nil || r.when(c))
}

// formats is the set of m's format.
func (m *matrix) formats() formats {
	if m.isPacked() {
		return 1 << (8 + m.packed.Packing)
	}
	return 1 << m.Format
}

func (m *matrix) layout() layout {
	switch {
	case m.transposed:
		return byColumns
	case m.packed.Height > 0:
		return inInterleaved
	}
	return byRows
}

// did notes that a kernel computes some of w's units, beside each call of one: a test compares that with the
// table.
func (w *worker) did(k kernel) { w.ran |= 1 << k }

// modeOf says whether p's activations may be rounded.
func modeOf(p *backend.Product) mode {
	if p.Rounded {
		return rounded
	}
	return exact
}
