package gemm

import (
	"sync"

	"github.com/heftai/heft/internal/kernels"
)

// Matrix is numbers as they lie. Element (i, j) is number i·stride+j, or j·stride+i where
// the matrix is Turned: it then lies by columns.
type Matrix struct {
	V      []float32
	Stride int
	// Stored is used instead of V and Stride where it has Data: numbers of any format, the
	// stride in bytes.
	Stored kernels.Weights
	Turned bool
}

// Rows is a matrix that lies by rows of stride elements.
func Rows(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride} }

// Columns is a matrix that lies by columns of stride elements.
func Columns(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride, Turned: true} }

// read is rows lines of n numbers as they lie, from element (i, j) of the matrix on; those
// that are stored in another way are widened into buf.
func (m *Multiplier) read(x Matrix, i, j, lines, n int, buf *scratch) kernels.Floats {
	if x.Turned {
		i, j = j, i
	}
	if x.Stored.Data == nil {
		return kernels.Floats{V: x.V[i*x.Stride+j:], Stride: x.Stride}
	}
	w := x.Stored
	buf.wide = atLeast(buf.wide, lines*n)
	for l := range lines {
		m.set.Widen(buf.wide[l*n:(l+1)*n], w.Data[(i+l)*w.Stride+j*w.Format.Size():], w.Format)
	}
	return kernels.Floats{V: buf.wide, Stride: n}
}

// scratch is what one unit needs for itself.
type scratch struct {
	wide []float32
	tile []float32
}

// Run calls f for each unit, in any order and on any threads, and returns when all calls
// have.
type Run func(units int, f func(unit int))

// Serial runs units one after another.
func Serial(units int, f func(unit int)) {
	for i := range units {
		f(i)
	}
}

// Multiplier has the panels of one product at a time.
type Multiplier struct {
	set *kernels.Set
	run Run
	p   product
	// round makes panels of numbers rounded to bfloat16.
	round bool
	parts int // of numbers that are cut in parts

	left, right   []float32
	packs, panels []uint32  // of parts
	scratches     sync.Pool // of *scratch
}

// New makes a multiplier whose work run shares among threads.
func New(set *kernels.Set, run Run) *Multiplier {
	return &Multiplier{set: set, run: run, scratches: sync.Pool{New: func() any { return new(scratch) }}}
}

// The blocks of a product: rows and columns whose panels are held at a time, and how much
// of a sum.
const (
	blockRows = 2048
	blockCols = 2048
	blockSum  = 320
)

// The units of work: rows and columns computed, rows or columns packed.
const (
	unitRows = 168 // a multiple of 14 and of 6
	unitCols = 256
)

// product is one call, and the block of it that is being worked on.
type product struct {
	c    kernels.Floats
	a, b Matrix
	add  bool

	row, col, k      int // where the block begins
	rows, cols, n    int // and its size
	packLeft, packed int // units that pack a, and all that pack
	across           int // units of a row of units
}

// Mul sets c = a·b, or adds that to c where add is true: a is rows by n, b is n by cols. An
// empty sum is 0.
func (m *Multiplier) Mul(c kernels.Floats, a, b Matrix, rows, cols, n int, add bool) {
	if m.inParts(kernels.FloatParts, n) {
		m.mulParts(kernels.FloatParts, c, a, b, rows, cols, n, add)
		return
	}
	m.each(c, a, b, rows, cols, n, add, blockSum, 1, m.block)
}

// MulRounded is Mul of operands rounded to bfloat16. Sums and results are float32.
func (m *Multiplier) MulRounded(c kernels.Floats, a, b Matrix, rows, cols, n int, add bool) {
	if m.inParts(kernels.RoundedParts, n) {
		m.mulParts(kernels.RoundedParts, c, a, b, rows, cols, n, add)
		return
	}
	m.round = true
	m.each(c, a, b, rows, cols, n, add, blockSum, 1, m.block)
	m.round = false
}

// each calls block for each block of a product. Sums are cut evenly, at multiples of whole.
func (m *Multiplier) each(c kernels.Floats, a, b Matrix, rows, cols, n int, add bool, most, whole int, block func()) {
	if n <= 0 && !add {
		for i := range rows {
			clear(c.V[i*c.Stride:][:cols])
		}
	}
	if rows <= 0 || cols <= 0 || n <= 0 {
		return
	}
	m.p = product{c: c, a: a, b: b}
	p := &m.p
	parts := (n + most - 1) / most
	depth := roundUp((n+parts-1)/parts, whole)
	for p.k = 0; p.k < n; p.k += depth {
		p.n, p.add = min(depth, n-p.k), add || p.k > 0
		for p.col = 0; p.col < cols; p.col += blockCols {
			p.cols = min(blockCols, cols-p.col)
			for p.row = 0; p.row < rows; p.row += blockRows {
				p.rows = min(blockRows, rows-p.row)
				block()
			}
		}
	}
	m.p = product{}
}

// block packs a block's operands and multiplies them. Those of b stay over blocks of rows.
func (m *Multiplier) block() {
	p, lanes := &m.p, m.set.PanelLanes()
	left, right := units(p.rows, unitRows), units(p.cols, unitCols)
	size := p.n * lanes
	m.left = atLeast(m.left, (blockPanels(p.rows, m.set.PanelRows())+1)*size)
	m.right = atLeast(m.right, (blockPanels(p.cols, lanes)+1)*size)
	p.packLeft, p.packed, p.across = left, left, right
	if p.row == 0 {
		p.packed += right
	}
	m.run(p.packed, m.pack)
	m.run(left*right, m.multiply)
}

// packSum is how much of a sum is packed at a time for all panels of a unit, where the
// panels share lines of memory.
const packSum = 16

// pack packs the rows of a, or the columns of b, of a unit.
func (m *Multiplier) pack(unit int) {
	p := &m.p
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	x, dst, at, first, end, high := p.a, m.left, p.row, unit*unitRows, p.rows, m.set.PanelRows()
	left := unit < p.packLeft
	if left {
		end = min(end, first+unitRows)
	} else {
		first = (unit - p.packLeft) * unitCols
		x, dst, at, end, high = p.b, m.right, p.col, min(p.cols, first+unitCols), m.set.PanelLanes()
	}
	step := p.n
	if left == x.Turned {
		step = packSum
	}
	for k := 0; k < p.n; k += step {
		n := min(step, p.n-k)
		for i := first; i < end; i += high {
			to := dst[(i/high*p.n+k)*m.set.PanelLanes():]
			m.panel(to[:n*m.set.PanelLanes()], x, left, at+i, min(high, end-i), p.k+k, n, buf)
		}
	}
}

// panel packs width rows of a left operand, or columns of a right one, from first on: n
// terms of the sum from k on.
func (m *Multiplier) panel(dst []float32, x Matrix, left bool, first, width, k, n int, buf *scratch) {
	i, j := k, first
	if left {
		i, j = j, i
	}
	if left != x.Turned {
		m.set.PackColumns(dst, m.read(x, i, j, width, n, buf), width, n)
	} else {
		m.set.PackLines(dst, m.read(x, i, j, n, width, buf), width, n)
	}
	if m.round {
		m.set.RoundBFloat16(dst)
	}
}

// multiply computes a unit of the result.
func (m *Multiplier) multiply(unit int) {
	p, lanes := &m.p, m.set.PanelLanes()
	i, j := unit/p.across*unitRows, unit%p.across*unitCols
	rows := min(unitRows, p.rows-i)
	left := m.left[i/m.set.PanelRows()*p.n*lanes:]
	for end := min(j+unitCols, p.cols); j < end; j += 2 * lanes {
		c := kernels.Floats{V: p.c.V[(p.row+i)*p.c.Stride+p.col+j:], Stride: p.c.Stride}
		m.set.MulPanels(c, left, m.right[j/lanes*p.n*lanes:], rows, min(2*lanes, end-j), p.n, p.add)
	}
}

func units(n, each int) int { return (n + each - 1) / each }

func blockPanels(n, height int) int { return (n + height - 1) / height }

func roundUp(n, whole int) int { return (n + whole - 1) / whole * whole }

// atLeast is buf, or a longer one.
func atLeast[T any](buf []T, n int) []T {
	if len(buf) < n {
		return make([]T, n)
	}
	return buf
}
