package cpu

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/matmul"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A kernel is a way to multiply a weight by tokens, or to compute attention.
type kernel uint8

const (
	noKernel kernel = iota
	dotRows
	dotWidened
	dotTransposed
	dotBlocks
	codeDots
	dotGroups
	columnSums
	columnSumsUnpacked
	codeSums
	splitDots
	pairDots
	amxOneToken
	amxInPlace
	amxSteps
	bf16Tiles
	bf16FewTokens
	smallBatches
	panelSums
	interleavedFloats
	interleavedInt8
	rowsInt8
	minifloatCodes
	packedMatrices // and the two after it: those of matmul's table
	packedRoundedParts
	packedFloatParts
	attentionTiles
	attentionRounded
	attentionPages
	allKernels
)

// kernelNames are the names that serve devices prints: the kernel's package and function, and how
// it reads weights if that varies.
var kernelNames = [allKernels]string{
	dotRows:            "gemv.Mul",
	dotWidened:         "gemv.Mul, weights widened",
	dotTransposed:      "gemv.Mul, weights transposed",
	dotBlocks:          "quant.DotBlocks",
	codeDots:           "quant.DotRows",
	dotGroups:          "gemm.MulGroups",
	columnSums:         "gemv.AddLanes",
	columnSumsUnpacked: "gemv.AddLanes, weights unpacked",
	codeSums:           "quant.AddCodes",
	splitDots:          "gemv.MulSplit",
	pairDots:           "gemv.MulPairs",
	amxOneToken:        "gemv.MulTile",
	amxInPlace:         "gemm.TileRows",
	amxSteps:           "gemm.TileSteps",
	bf16Tiles:          "gemm.Tile",
	bf16FewTokens:      "gemm.TileFew",
	smallBatches:       "gemm.MulSmallBatch",
	panelSums:          "gemm.SumPanels",
	interleavedFloats:  "qgemm.MulInterleaved",
	interleavedInt8:    "qgemm.MulInt8",
	rowsInt8:           "qgemm.MulRows",
	minifloatCodes:     "qgemm.MulMinifloat",
	packedMatrices:     matmul.Panels.String(),
	packedRoundedParts: matmul.RoundedParts.String(),
	packedFloatParts:   matmul.FloatParts.String(),
	attentionTiles:     "gemv.Mix",
	attentionRounded:   "gemm.Couple",
	attentionPages:     "attention.Scores",
}

// String returns the name that serve devices prints.
func (k kernel) String() string { return kernelNames[k] }

// A layout is the order of a weight, or of cached keys and values, in memory.
type layout uint8

const (
	byRows        layout = 1 << iota // rows one after another
	byColumns                        // transposed
	apart                            // transposed, only every few columns used
	interleaved16                    // rows of blocks, 16 interleaved
	paged                            // pages of keys and values
	transposed    = byColumns | apart
	anyLayout     = byRows | transposed | interleaved16 // of weights
)

// A mode determines whether activations may be rounded.
type mode uint8

const (
	exact   mode = 1 << iota // Linear, --precision high
	rounded                  // LinearRounded, --precision auto
	anyMode = exact | rounded
)

// The roles of training: products for which a backward pass follows, and the gradients of their
// inputs.
const (
	trainingRole = backend.Prompt + 1 + iota
	gradientRole
)

// Sets of roles.
const (
	generated = 1 << backend.Generated
	prompt    = 1 << backend.Prompt
	anyRole   = generated | prompt // of serving
	training  = 1 << trainingRole
	gradients = 1 << gradientRole
)

// formats is a set of stored formats. Bit f is dense format f, and bit 8+p is packing p.
type formats uint64

const (
	bfloat16   formats = 1 << mat.BFloat16
	float32s   formats = 1 << mat.Float32
	dense              = bfloat16 | float32s | 1<<mat.Float16
	q8                 = 1 << (8 + quant.Q8)
	blocks             = q8 | 1<<(8+quant.Q4)
	minifloats         = 1<<(8+quant.E4M3) | 1<<(8+quant.MXFP4)
	powers             = 1<<(8+quant.E4M3Powers) | 1<<(8+quant.E2M1Powers)
	int4s              = 1<<(8+quant.Int4Rows) | 1<<(8+quant.Int4Columns)
	quantised          = 1<<(8+quant.Packings) - 1<<(8+1) // every packing: these kernels unpack the weight first
	anyFormat          = dense | quantised
)

// A choice holds everything that determines the kernel of an operation.
type choice struct {
	set    *kernels.Set
	w      *matrix // of products
	k, v   *pages  // of attention
	tokens int     // tokens in the pass; for attention, of one sequence
	mode   mode
	role   backend.Role
}

// A rule assigns a kernel to the operations that meet all its conditions. Roles is a set of bits.
// from and to are numbers of tokens, 0 for no limit. needs and when are nil if there is no
// further condition.
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

// rules is the table of kernels. The first rule that an operation meets determines its kernel.
// Nothing else does.
var rules = []rule{
	{kernel: packedMatrices, formats: dense, layout: byRows | byColumns, mode: anyMode, roles: gradients},
	{kernel: packedMatrices, formats: dense, layout: byRows | byColumns, mode: rounded, roles: training},
	{kernel: packedMatrices, formats: dense, layout: byRows | byColumns, mode: exact, roles: training, when: worthPacking},
	{kernel: attentionRounded, formats: bfloat16 | q8, layout: paged, mode: rounded, roles: prompt, needs: bf16},
	{kernel: attentionPages, formats: bfloat16 | float32s | q8, layout: paged, mode: anyMode, roles: anyRole, to: 1, needs: pageKernels, when: wholePages},
	{kernel: attentionTiles, formats: dense | q8, layout: paged, mode: anyMode, roles: anyRole},
	{kernel: interleavedFloats, formats: blocks, layout: interleaved16, mode: exact, roles: anyRole, when: func(c *choice) bool { return c.wholeBlocks() && c.tokens <= c.set.QGEMM.InterleavedTokens() }},
	{kernel: panelSums, formats: blocks, layout: interleaved16, mode: exact, roles: anyRole, when: hasColumns},
	{kernel: panelSums, formats: blocks, layout: byRows, mode: exact, roles: anyRole, when: ascending},
	{kernel: minifloatCodes, formats: minifloats, layout: byRows, mode: exact, roles: anyRole, when: wholeCodes},
	{kernel: minifloatCodes, formats: minifloats | powers, layout: byRows, mode: rounded, roles: generated, when: wholeCodes},
	// Tiles of integers would have to be scaled block by block, which takes longer than widening
	// weights to bfloat16 once for all tokens. Prompts therefore use bfloat16 tiles with AMX.
	{kernel: interleavedInt8, formats: blocks, layout: byRows | interleaved16, mode: rounded, roles: generated, needs: integers, when: (*choice).wholeBlocks},
	{kernel: interleavedInt8, formats: blocks, layout: byRows | interleaved16, mode: rounded, roles: prompt, needs: integersWithoutAMX, when: (*choice).wholeBlocks},
	{kernel: rowsInt8, formats: quantised, layout: byRows, mode: rounded, roles: generated, when: wholeRowBlocks},
	{kernel: amxOneToken, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, to: 1, needs: amx, when: wholeSteps},
	{kernel: amxInPlace, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, needs: amx, when: fewPasses},
	{kernel: amxSteps, formats: bfloat16, layout: byRows, mode: rounded, roles: anyRole, needs: amx},
	{kernel: amxSteps, formats: quantised, layout: byRows | interleaved16, mode: rounded, roles: prompt, needs: amx},
	{kernel: amxSteps, formats: int4s, layout: transposed, mode: rounded, roles: prompt, needs: amx, when: neighbouringGroups},
	{kernel: bf16FewTokens, formats: bfloat16, layout: byRows, mode: rounded, roles: prompt, to: gemm.FewTokens, needs: bf16WithoutAMX},
	{kernel: bf16Tiles, formats: bfloat16, layout: byRows, mode: rounded, roles: prompt, needs: bf16WithoutAMX},
	{kernel: bf16FewTokens, formats: quantised, layout: byRows | interleaved16, mode: rounded, roles: prompt, to: gemm.FewTokens, needs: bf16WithoutAMX},
	{kernel: bf16Tiles, formats: quantised, layout: byRows | interleaved16, mode: rounded, roles: prompt, needs: bf16WithoutAMX},
	{kernel: bf16FewTokens, formats: int4s, layout: transposed, mode: rounded, roles: prompt, to: gemm.FewTokens, needs: bf16WithoutAMX, when: neighbouringGroups},
	{kernel: bf16Tiles, formats: int4s, layout: transposed, mode: rounded, roles: prompt, needs: bf16WithoutAMX, when: neighbouringGroups},
	{kernel: pairDots, formats: bfloat16, layout: byRows, mode: rounded, roles: generated, needs: bf16},
	{kernel: smallBatches, formats: bfloat16, layout: byRows, mode: rounded, roles: prompt, to: gemm.SmallBatchTokens, needs: smallBatchKernels, when: wholeTiles},
	{kernel: panelSums, formats: anyFormat, layout: anyLayout, mode: rounded, roles: prompt, when: hasColumns},
	{kernel: splitDots, formats: bfloat16, layout: byRows, mode: rounded, roles: generated, needs: splits, when: hasColumns},
	{kernel: dotBlocks, formats: blocks, layout: byRows, mode: anyMode, roles: anyRole, to: 1, needs: blockDots, when: wholeRows},
	{kernel: codeDots, formats: quantised, layout: byRows, mode: anyMode, roles: anyRole, to: codeTokens, when: takesDots},
	{kernel: codeSums, formats: int4s | 1<<(8+quant.Int8Rows), layout: byColumns, mode: anyMode, roles: anyRole, to: codeTokens, when: wholeSums},
	{kernel: columnSumsUnpacked, formats: quantised, layout: byColumns, mode: anyMode, roles: anyRole, to: packedTokens},
	{kernel: columnSums, formats: dense, layout: byColumns, mode: anyMode, roles: anyRole, to: columnTokens},
	{kernel: dotGroups, formats: anyFormat, layout: anyLayout, mode: anyMode, roles: anyRole, needs: groups, when: manyGroups},
	{kernel: dotTransposed, formats: anyFormat, layout: transposed, mode: anyMode, roles: anyRole},
	{kernel: dotWidened, formats: quantised, layout: byRows | interleaved16, mode: anyMode, roles: anyRole},
	{kernel: dotWidened, formats: dense &^ float32s, layout: byRows, mode: anyMode, roles: anyRole, when: func(c *choice) bool { return c.set.GEMV.WidenAt > 0 && c.tokens >= c.set.GEMV.WidenAt }},
	{kernel: dotRows, formats: dense, layout: byRows, mode: anyMode, roles: anyRole},
}

// Conditions on the processor.
func integers(s *kernels.Set) bool           { return s.QGEMM.HasInt8() }
func integersWithoutAMX(s *kernels.Set) bool { return s.QGEMM.HasInt8() && !s.AMX }
func bf16(s *kernels.Set) bool               { return s.BF16 && !s.SlowPairs }
func bf16WithoutAMX(s *kernels.Set) bool     { return bf16(s) && !s.AMX }
func amx(s *kernels.Set) bool                { return s.AMX && !s.SlowPairs }
func smallBatchKernels(s *kernels.Set) bool  { return s.GEMM.HasSmallBatch() }
func splits(s *kernels.Set) bool             { return s.GEMV.HasSplit() }
func groups(s *kernels.Set) bool             { return s.GEMM.HasGroups() }
func blockDots(s *kernels.Set) bool          { return s.Quant.HasDots(quant.Q8) && s.Quant.HasDots(quant.Q4) }
func pageKernels(s *kernels.Set) bool        { return s.Attention.HasPages() }

// Conditions on the shape.

func hasColumns(c *choice) bool { return c.w.cols > 0 }

// ascending reports whether the weight was converted, so that its columns are added in ascending
// order.
func ascending(c *choice) bool { return c.w.ascending && c.w.cols > 0 }

// wholeBlocks reports whether the view begins and ends at blocks of q8_0 or q4_0.
func (c *choice) wholeBlocks() bool {
	return c.w.cols > 0 && (c.w.col|c.w.cols)%quant.BlockColumns == 0
}

// wholeCodes reports whether kernels support the blocks that share a scale.
func wholeCodes(c *choice) bool { return c.set.QGEMM.HasMinifloat(&c.w.packed, c.w.col, c.w.cols) }

// wholeRowBlocks reports whether there are kernels for rows of such blocks and the view has whole
// blocks from the first column on.
func wholeRowBlocks(c *choice) bool { return c.set.QGEMM.HasRows(&c.w.packed, c.w.col, c.w.cols) }

// wholeSteps reports whether rows are whole steps of a tile.
func wholeSteps(c *choice) bool { return c.w.cols > 0 && c.w.cols%gemm.BlockK == 0 }

// wholeTiles reports whether rows and columns fill the blocks that are transposed in registers.
func wholeTiles(c *choice) bool {
	return c.w.rows >= gemm.SmallBatchRows && c.w.cols > 0 && c.w.cols%gemm.SmallBatchColumns == 0
}

// fewPasses reports whether few groups of tokens read the weights, and all tokens stay in the
// second-level cache beside them, so that packing the weights takes longer than it saves.
func fewPasses(c *choice) bool {
	bytes := 2 * c.tokens * c.w.cols
	return c.tokens <= coupleRows || bytes <= smallBytes || c.tokens <= smallTokens && bytes <= mostBytes
}

// wholeSums reports whether there are kernels for columns of the view and its rows are whole
// units of them.
func wholeSums(c *choice) bool {
	return c.w.rows%quant.SumColumns == 0 && c.w.columns(0).TakesSums()
}

// takesDots reports whether there are kernels for rows of the view.
func takesDots(c *choice) bool {
	w := c.w.view(0, c.w.rows)
	return c.set.Quant.TakesDots(&w)
}

// neighbouringGroups reports whether rows with the same scale are adjacent.
func neighbouringGroups(c *choice) bool { return c.w.packed.Index == nil }

// wholeRows reports whether the view begins at the first column of q8_0 or q4_0 and ends at a
// block.
func wholeRows(c *choice) bool { return c.w.col == 0 && c.wholeBlocks() }

// worthPacking reports whether there are enough multiplications to make packing both operands
// worthwhile.
func worthPacking(c *choice) bool { return c.tokens*c.w.rows*c.w.cols >= fewProducts }

// wholePages reports whether pages have the size that the kernels support.
func wholePages(c *choice) bool {
	return c.k.tokens == attention.PagedTokens && c.v.tokens == attention.PagedTokens
}

// manyGroups reports whether there are enough tokens to make packing worthwhile.
func manyGroups(c *choice) bool {
	return c.w.cols > 0 && c.tokens >= groupFrom*c.set.GEMM.GroupTokens
}

// kernel returns the kernel of the first rule that c meets. Training products without a rule of
// their own use the rules for prompts.
func (c *choice) kernel() kernel {
	k := c.first(c.role)
	if k == noKernel && c.role == trainingRole {
		k = c.first(backend.Prompt)
	}
	return k
}

// first returns the kernel of the first rule that c meets in a role.
func (c *choice) first(role backend.Role) kernel {
	var f formats
	var l layout
	if c.w != nil {
		f, l = c.w.formats(), c.w.layout()
	} else {
		f, l = c.k.formats()|c.v.formats(), paged
	}
	for i := range rules {
		if r := &rules[i]; f&^r.formats == 0 && r.layout&l != 0 && r.mode&c.mode != 0 && r.roles&(1<<role) != 0 && c.meets(r) {
			return r.kernel
		}
	}
	return noKernel
}

func (c *choice) meets(r *rule) bool {
	return c.tokens >= r.from && (r.to == 0 || c.tokens <= r.to) && (r.needs == nil || r.needs(c.set)) && (r.when == nil || r.when(c))
}

// formats returns the set of m's format.
func (m *matrix) formats() formats {
	if m.isPacked() {
		return 1 << (8 + m.packed.Packing)
	}
	return 1 << m.Format
}

// formats returns the set of p's format.
func (p *pages) formats() formats {
	if p.blocks > 0 {
		return q8
	}
	return 1 << p.format
}

func (m *matrix) layout() layout {
	switch {
	case m.transposed && m.step != 1:
		return apart
	case m.transposed:
		return byColumns
	case m.packed.Height > 0:
		return interleaved16
	}
	return byRows
}

// record notes that a kernel computes some of w's units. Every call of a kernel is recorded, and a
// test compares the records with the table.
func (w *worker) record(k kernel) { w.ran |= 1 << k }

// modeOf returns whether p's activations may be rounded.
func modeOf(p *backend.Product) mode {
	if p.Rounded {
		return rounded
	}
	return exact
}
