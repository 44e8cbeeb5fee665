package gemm

import "github.com/heftai/heft/internal/kernels"

// Where the processor has tiles, or fast products of bfloat16 alone, operands are cut in parts of bfloat16: one part where they
// are rounded; with tiles three where they are not, of which the six products that matter
// are summed: that is as right as products of floats and takes half their time.

// The blocks and units of products of parts: how much of a sum of n parts is held at a
// time, and the rows and columns computed or packed.
const (
	partsSum  = 768
	partsRows = 160 // a multiple of 32
	partsCols = 256
	// partsLines is packSum: a multiple of a block.
	partsLines = 32
	// leastParts is the length of sums that are worth it.
	leastParts = 48
)

// inParts reports whether sums of n products are those of parts. It depends on n alone.
func (m *Multiplier) inParts(parts, n int) bool { return n >= leastParts && m.set.HasParts(parts) }

func (m *Multiplier) mulParts(parts int, c kernels.Floats, a, b Matrix, rows, cols, n int, add bool) {
	most := partsSum / (parts + parts/2) // 768 or 192
	m.parts = parts
	m.each(c, a, b, rows, cols, n, add, most, kernels.BlockK, m.partsBlock)
}

// partsBlock is block for parts.
func (m *Multiplier) partsBlock() {
	p := &m.p
	size := m.parts * kernels.PanelWords(p.n)
	left, right := units(p.rows, partsRows), units(p.cols, partsCols)
	m.packs = atLeast(m.packs, units(p.rows, 2*kernels.PackRows)*2*size)
	m.panels = atLeast(m.panels, units(p.cols, 2*kernels.PanelTokens)*2*size)
	p.packLeft, p.packed, p.across = left, left, right
	if p.row == 0 {
		p.packed += right
	}
	m.run(p.packed, m.packParts)
	m.run(left*right, m.multiplyParts)
}

// packParts is pack for parts.
func (m *Multiplier) packParts(unit int) {
	p := &m.p
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	x, dst, at, first, end, size := p.a, m.packs, p.row, unit*partsRows, p.rows, partsRows
	left := unit < p.packLeft
	if !left {
		first = (unit - p.packLeft) * partsCols
		x, dst, at, end, size = p.b, m.panels, p.col, p.cols, partsCols
	}
	end = min(first+size, end)
	lines, step := left == x.Turned, p.n
	if lines {
		step = partsLines
	}
	part := kernels.PanelWords(p.n)
	last := first + roundUp(end-first, 2*kernels.PackRows)
	for k := 0; k < p.n; k += step {
		n := min(step, p.n-k)
		for i := first; i < last; i += kernels.PackRows {
			width := min(kernels.PackRows, end-i)
			row, col := p.k+k, at+i
			if left {
				row, col = col, row
			}
			var from kernels.Floats
			switch {
			case width <= 0:
			case lines:
				from = m.read(x, row, col, n, width, buf)
			default:
				from = m.read(x, row, col, width, n, buf)
			}
			to := dst[i/kernels.PackRows*m.parts*part+kernels.PanelWords(k):]
			m.set.PackParts(to, part, from, !left, lines, m.parts, width, n)
		}
	}
}

// multiplyParts is multiply for parts. What is no whole tile goes through scratch.
func (m *Multiplier) multiplyParts(unit int) {
	p := &m.p
	size := m.parts * kernels.PanelWords(p.n)
	blocks := units(p.n, kernels.BlockK)
	i, j := unit/p.across*partsRows, unit%p.across*partsCols
	cols := min(partsCols, p.cols-j)
	whole := cols / (2 * kernels.PanelTokens)
	right := m.panels[j/kernels.PanelTokens*size:]
	for end := min(i+partsRows, p.rows); i < end; i += 2 * kernels.PackRows {
		rows := min(2*kernels.PackRows, end-i)
		left := m.packs[i/kernels.PackRows*size:]
		c := kernels.Floats{V: p.c.V[(p.row+i)*p.c.Stride+p.col+j:], Stride: p.c.Stride}
		done := 0
		if rows == 2*kernels.PackRows && whole > 0 {
			m.set.MulParts(c, left, right, m.parts, blocks, whole, p.add)
			done = whole * 2 * kernels.PanelTokens
		}
		if done < cols {
			c.V = c.V[done:]
			m.edge(c, left, right[done/kernels.PanelTokens*size:], rows, cols-done, blocks)
		}
	}
}

// edge computes a part of the result that is no whole number of tiles.
func (m *Multiplier) edge(c kernels.Floats, left, right []uint32, rows, cols, blocks int) {
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	couples := units(cols, 2*kernels.PanelTokens)
	stride := couples * 2 * kernels.PanelTokens
	buf.tile = atLeast(buf.tile, 2*kernels.PackRows*stride)
	if m.p.add {
		for r := range rows {
			copy(buf.tile[r*stride:][:cols], c.V[r*c.Stride:])
		}
	}
	m.set.MulParts(kernels.Floats{V: buf.tile, Stride: stride}, left, right, m.parts, blocks, couples, m.p.add)
	for r := range rows {
		copy(c.V[r*c.Stride:][:cols], buf.tile[r*stride:])
	}
}
