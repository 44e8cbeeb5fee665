package gemm

import "github.com/heftai/heft/internal/kernels"

// Matrix is float32 numbers. Element (i, j) is V[i·Stride+j], or V[j·Stride+i] where the
// matrix is Turned: it then lies by columns.
type Matrix struct {
	V      []float32
	Stride int
	Turned bool
}

// Rows is a matrix that lies by rows of stride elements.
func Rows(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride} }

// Columns is a matrix that lies by columns of stride elements.
func Columns(v []float32, stride int) Matrix { return Matrix{V: v, Stride: stride, Turned: true} }

// at is the matrix from element (i, j) on.
func (m Matrix) at(i, j int) kernels.Floats {
	if m.Turned {
		i, j = j, i
	}
	return kernels.Floats{V: m.V[i*m.Stride+j:], Stride: m.Stride}
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

	left, right   []float32
	packs, panels []uint32
}

// New makes a multiplier whose work run shares among threads.
func New(set *kernels.Set, run Run) *Multiplier { return &Multiplier{set: set, run: run} }

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
	m.each(c, a, b, rows, cols, n, add, blockSum, 1, m.block)
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

// pack packs the rows of a, or the columns of b, of a unit.
func (m *Multiplier) pack(unit int) {
	p, lanes := &m.p, m.set.PanelLanes()
	if unit < p.packLeft {
		high := m.set.PanelRows()
		for i := unit * unitRows; i < min((unit+1)*unitRows, p.rows); i += high {
			m.panel(m.left[i/high*p.n*lanes:], p.a, true, p.row+i, min(high, p.rows-i))
		}
		return
	}
	from := (unit - p.packLeft) * unitCols
	for j := from; j < min(from+unitCols, p.cols); j += lanes {
		m.panel(m.right[j/lanes*p.n*lanes:], p.b, false, p.col+j, min(lanes, p.cols-j))
	}
}

// panel packs width rows of a left operand, or columns of a right one.
func (m *Multiplier) panel(dst []float32, x Matrix, left bool, first, width int) {
	dst = dst[:m.p.n*m.set.PanelLanes()]
	i, j := m.p.k, first
	if left {
		i, j = j, i
	}
	src := x.at(i, j)
	if left != x.Turned {
		m.set.PackColumns(dst, src, width, m.p.n)
	} else {
		m.set.PackLines(dst, src, width, m.p.n)
	}
	if m.round {
		for i, v := range dst {
			dst[i] = kernels.FromBFloat16(kernels.ToBFloat16(v))
		}
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
