package matmul

import (
	"sync"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// Matrix is a view of numbers in memory. Element (i, j) is number i·Stride+j or, if the matrix is
// Turned, which means stored by columns, number j·Stride+i.
type Matrix struct {
	V      []float32
	Stride int
	// Stored replaces V and Stride if its Data is not nil. It holds numbers of any format, with a
	// stride in bytes.
	Stored mat.Weights
	Turned bool
}

// Rows returns a matrix stored by rows of stride elements.
func Rows(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride} }

// Columns returns a matrix stored by columns of stride elements.
func Columns(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride, Turned: true} }

// read returns rows lines of n numbers in the stored order, from element (i, j) of the matrix on.
// It widens numbers that are not float32 into buf.
func (m *Multiplier) read(x Matrix, i, j, lines, n int, buf *scratch) mat.Floats {
	if x.Turned {
		i, j = j, i
	}
	if x.Stored.Data == nil {
		return mat.Floats{V: x.V[i*x.Stride+j:], Stride: x.Stride}
	}
	w := x.Stored
	buf.wide = atLeast(buf.wide, lines*n)
	for l := range lines {
		m.set.Vector.Widen(buf.wide[l*n:(l+1)*n], w.Data[(i+l)*w.Stride+j*w.Format.Size():], w.Format)
	}
	return mat.Floats{V: buf.wide, Stride: n}
}

// halves reports whether the numbers are stored as bfloat16.
func (x Matrix) halves() bool { return x.Stored.Data != nil && x.Stored.Format == mat.BFloat16 }

// A Product holds the operands of [Multiplier.Mul]: c = a·b or c += a·b.
type Product struct {
	C    mat.Floats // Rows × Cols
	A, B Matrix     // Rows × N and N × Cols
	// Rows and Cols are those of C; N is the number of terms in each sum. An empty sum is 0.
	Rows, Cols, N int
	Add           bool // add to C instead of replacing it
	Rounded       bool // round the operands to bfloat16; sums and results stay float32
}

// scratch is the memory of one unit.
type scratch struct {
	wide []float32
	tile []float32
}

// Run calls f for each unit, in any order and on any threads. It returns when all calls have
// returned.
type Run func(units int, f func(unit int))

// Multiplier holds the panels of one product at a time. It is not safe for concurrent use.
type Multiplier struct {
	// Threads is the number of threads that the Run function uses, 0 if unknown. It determines
	// the size of units but does not change results.
	Threads int

	set *kernels.Set
	run Run
	p   product

	kept          kept
	left, right   []float32
	packs, panels []uint32  // of parts
	scratches     sync.Pool // of *scratch
}

// New returns a multiplier whose work run distributes among threads.
func New(set *kernels.Set, run Run) *Multiplier {
	return &Multiplier{set: set, run: run, scratches: sync.Pool{New: func() any { return new(scratch) }}}
}

// The blocks of a product: the rows and columns whose panels are held at a time, and the number
// of terms that are summed before the next block. Panels of several blocks are held, so that
// threads rarely synchronise and a unit's results stay in its cache.
const (
	blockRows = 2048
	blockCols = 2048
	blockSum  = 320
	heldSum   = 960
)

// The units of work: rows and columns to compute, rows or columns to pack.
const (
	unitRows = 168 // a multiple of 14 and of 6
	unitCols = 256
)

// product is one call, with its current block.
type product struct {
	c    mat.Floats
	a, b Matrix
	add  bool

	row, col, k      int // where the block begins
	rows, cols, n    int // the size of the block
	depth            int // the terms of n that are summed before the rest
	packLeft, packed int // units that pack a, and all units that pack
	across           int // units in a row of units
	tall             int // rows in a unit of products of parts
	parts            [2]int
	round            bool     // makes panels of numbers rounded to bfloat16
	panels           []uint32 // of parts of b
}

// sums describes how a sum is divided: evenly, at multiples of whole, in blocks of at most most
// terms. held terms are computed at a time.
type sums struct{ most, whole, held int }

// Mul computes p.
func (m *Multiplier) Mul(p Product) {
	m.p = product{c: p.C, a: p.A, b: p.B, add: p.Add}
	switch m.Kernel(p.Rounded, p.N) {
	case RoundedParts:
		m.p.parts = [2]int{gemm.RoundedParts, gemm.RoundedParts}
		m.each(p.Rows, p.Cols, p.N, roundedSums, m.partsBlock)
	case FloatParts:
		m.p.parts = [2]int{gemm.FloatParts, gemm.FloatParts}
		if p.B.halves() {
			m.p.parts[1] = gemm.RoundedParts
		}
		m.each(p.Rows, p.Cols, p.N, floatSums, m.partsBlock)
	default:
		m.p.round = p.Rounded
		m.each(p.Rows, p.Cols, p.N, panelSums, m.block)
	}
}

var panelSums = sums{most: blockSum, whole: 1, held: heldSum}

// each calls block for each block of a product.
func (m *Multiplier) each(rows, cols, n int, cut sums, block func()) {
	p := &m.p
	if n <= 0 && !p.add {
		for i := range rows {
			clear(p.c.V[i*p.c.Stride:][:cols])
		}
	}
	if rows > 0 && cols > 0 && n > 0 {
		blocks, add := units(n, cut.most), p.add
		p.depth = roundUp(units(n, blocks), cut.whole)
		held := max(cut.held/p.depth, 1) * p.depth
		for p.k = 0; p.k < n; p.k += held {
			p.n, p.add = min(held, n-p.k), add || p.k > 0
			for p.col = 0; p.col < cols; p.col += blockCols {
				p.cols = min(blockCols, cols-p.col)
				for p.row = 0; p.row < rows; p.row += blockRows {
					p.rows = min(blockRows, rows-p.row)
					p.plan(rows, m.Threads)
					block()
				}
			}
		}
	}
	m.p = product{}
}

// plan counts the units that pack. Panels are kept over blocks that need them again.
func (p *product) plan(rows, threads int) {
	high, wide := unitRows, unitCols
	if p.parts[0] > 0 {
		high, wide = partsRows, partsCols
	}
	p.packLeft, p.across = units(p.rows, high), units(p.cols, wide)
	p.tall = tallest(p.rows, p.across, threads)
	if p.col > 0 && rows <= blockRows {
		p.packLeft = 0
	}
	if p.packed = p.packLeft; p.row == 0 {
		p.packed += p.across
	}
}

// block packs a block's operands and multiplies them.
func (m *Multiplier) block() {
	p, lanes := &m.p, m.set.GEMM.PanelLanes()
	size := p.n * lanes
	m.left = atLeast(m.left, (blockPanels(p.rows, m.set.GEMM.PanelRows())+1)*size)
	m.right = atLeast(m.right, (blockPanels(p.cols, lanes)+1)*size)
	m.run(p.packed, m.pack)
	m.run(units(p.rows, unitRows)*p.across, m.multiply)
}

// packSum is the number of terms packed at a time for all panels of a unit, whose panels share
// cache lines.
const packSum = 64

// pack packs the rows of a, or the columns of b, that belong to a unit.
func (m *Multiplier) pack(unit int) {
	p, lanes := &m.p, m.set.GEMM.PanelLanes()
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	x, dst, at, first, end, high := p.a, m.left, p.row, unit*unitRows, p.rows, m.set.GEMM.PanelRows()
	left := unit < p.packLeft
	if left {
		end = min(end, first+unitRows)
	} else {
		first = (unit - p.packLeft) * unitCols
		x, dst, at, end, high = p.b, m.right, p.col, min(p.cols, first+unitCols), lanes
	}
	to, width := mat.Floats{V: dst[first/high*p.n*lanes:], Stride: p.n * lanes}, end-first
	if left == x.Turned {
		m.packLines(to, x, left, at+first, width, high, buf)
	} else {
		m.packColumns(to, x, left, at+first, width, high, buf)
	}
	for i := 0; m.p.round && i < width; i += high {
		m.set.Vector.RoundBFloat16(to.V[i/high*to.Stride:][:to.Stride])
	}
}

// packLines packs width rows of a left operand, or columns of a right one, from first on, into
// panels of high. Their terms are not adjacent in memory.
func (m *Multiplier) packLines(to mat.Floats, x Matrix, left bool, first, width, high int, buf *scratch) {
	p, lanes := &m.p, m.set.GEMM.PanelLanes()
	for k := 0; k < p.n; k += packSum {
		n := min(packSum, p.n-k)
		i, j := across(left, p.k+k, first)
		m.set.GEMM.PackLines(mat.Floats{V: to.V[k*lanes:], Stride: to.Stride}, m.read(x, i, j, n, width, buf), width, high, n)
	}
}

// packColumns is packLines for terms that are adjacent in memory.
func (m *Multiplier) packColumns(to mat.Floats, x Matrix, left bool, first, width, high int, buf *scratch) {
	p, lanes := &m.p, m.set.GEMM.PanelLanes()
	for c := 0; c < width; c += high {
		i, j := across(left, p.k, first+c)
		n := min(high, width-c)
		m.set.GEMM.PackColumns(to.V[c/high*to.Stride:][:p.n*lanes], m.read(x, i, j, n, p.n, buf), n, p.n)
	}
}

// across returns the place of term k of row or column i.
func across(left bool, k, i int) (row, col int) {
	if left {
		return i, k
	}
	return k, i
}

// multiply computes a unit of the result, one block of terms after another.
func (m *Multiplier) multiply(unit int) {
	p, lanes := &m.p, m.set.GEMM.PanelLanes()
	i, first := unit/p.across*unitRows, unit%p.across*unitCols
	rows, end, size := min(unitRows, p.rows-i), min(first+unitCols, p.cols), p.n*lanes
	left := m.left[i/m.set.GEMM.PanelRows()*size:]
	for k := 0; k < p.n; k += p.depth {
		n, add := min(p.depth, p.n-k), p.add || k > 0
		a := mat.Floats{V: left[k*lanes:], Stride: size}
		for j := first; j < end; j += 2 * lanes {
			c := mat.Floats{V: p.c.V[(p.row+i)*p.c.Stride+p.col+j:], Stride: p.c.Stride}
			b := mat.Floats{V: m.right[j/lanes*size+k*lanes:], Stride: size}
			m.set.GEMM.MulPanels(gemm.Panels{C: c, A: a, B: b, Rows: rows, Cols: min(2*lanes, end-j), N: n, Add: add})
		}
	}
}

func units(n, each int) int { return (n + each - 1) / each }

func blockPanels(n, height int) int { return (n + height - 1) / height }

func roundUp(n, whole int) int { return (n + whole - 1) / whole * whole }

// atLeast returns buf if it is long enough, or else a longer slice.
func atLeast[T any](buf []T, n int) []T {
	if len(buf) < n {
		return make([]T, n)
	}
	return buf
}
