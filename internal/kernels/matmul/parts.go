package matmul

import (
	"github.com/heftai/heft/internal/kernels/gemm"
	"github.com/heftai/heft/internal/kernels/mat"
)

// If the processor has tiles or fast bfloat16 products, operands are split into bfloat16 parts.
// Operands that are bfloat16 or are to be rounded have one part. With tiles, other operands have
// three parts, and the six significant products (three if one operand has one part) are summed.
// This is as accurate as float32 products and takes half the time.

// The units of products of parts: rows and columns to compute or to pack.
const (
	partsRows = 160 // a multiple of 32
	partsCols = 256
	// partsLines replaces packSum for parts. It is a multiple of a block.
	partsLines = 32
	// tallParts is the largest number of times partsRows in a unit.
	tallParts = 3
)

var (
	floatSums   = sums{most: 192, whole: gemm.BlockK, held: 768}
	roundedSums = sums{most: 768, whole: gemm.BlockK, held: 1536}
)

// tallest returns the number of rows in a unit of a product of rows rows and across units per
// row. The taller units are, the less often their columns are read from farther caches. There are
// at least four units for each thread, if possible, so that threads end at about the same time.
func tallest(rows, across, threads int) int {
	for tall := tallParts * partsRows; threads > 0 && tall > partsRows; tall -= partsRows {
		if units(rows, tall)*across >= 4*threads {
			return tall
		}
	}
	return partsRows
}

// partsBlock is block for parts.
func (m *Multiplier) partsBlock() {
	p := &m.p
	words := gemm.PanelWords(p.n)
	m.packs = atLeast(m.packs, units(p.rows, 2*gemm.PackRows)*2*p.parts[0]*words)
	if p.row == 0 {
		m.takePanels(units(p.cols, 2*gemm.PanelTokens) * 2 * p.parts[1] * words)
	}
	m.run(p.packed, m.packParts)
	m.run(units(p.rows, p.tall)*p.across, m.multiplyParts)
}

// packParts is pack for parts.
func (m *Multiplier) packParts(unit int) {
	p := &m.p
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	x, dst, at, first, end, size, parts := p.a, m.packs, p.row, unit*partsRows, p.rows, partsRows, p.parts[0]
	left := unit < p.packLeft
	if !left {
		first = (unit - p.packLeft) * partsCols
		x, dst, at, end, size, parts = p.b, p.panels, p.col, p.cols, partsCols, p.parts[1]
	}
	end = min(first+size, end)
	lines, step := left == x.Turned, p.n
	if lines {
		step = partsLines
	}
	words := gemm.PanelWords(p.n)
	last := first + roundUp(end-first, 2*gemm.PackRows)
	for k := 0; k < p.n; k += step {
		n := min(step, p.n-k)
		for i := first; i < last; i += gemm.PackRows {
			row, col := p.k+k, at+i
			if left {
				row, col = col, row
			}
			to := dst[i/gemm.PackRows*parts*words+gemm.PanelWords(k):]
			m.packPart(to, words, x, row, col, gemm.PartsLayout{Panel: !left, Lines: lines, Parts: parts, Width: min(gemm.PackRows, end-i), N: n}, buf)
		}
	}
}

// packPart packs rows of a left operand or columns of a right one, from element (i, j) of x on.
// It stores zeros if the layout has none.
func (m *Multiplier) packPart(dst []uint32, apart int, x Matrix, i, j int, l gemm.PartsLayout, buf *scratch) {
	high, wide := l.Width, l.N
	if l.Lines {
		high, wide = l.N, l.Width
	}
	switch {
	case l.Width <= 0:
		m.set.GEMM.PackParts(dst, apart, mat.Floats{}, l)
	case l.Parts == gemm.RoundedParts && x.halves():
		if x.Turned {
			i, j = j, i
		}
		w := x.Stored
		w.Data = w.Data[i*w.Stride+2*j:]
		m.set.GEMM.PackBFloat16(dst, w, l.Panel, l.Lines, l.Width, l.N)
	default:
		m.set.GEMM.PackParts(dst, apart, m.read(x, i, j, high, wide, buf), l)
	}
}

// multiplyParts is multiply for parts. It computes partial tiles in scratch memory.
func (m *Multiplier) multiplyParts(unit int) {
	p := &m.p
	words := gemm.PanelWords(p.n)
	a, b := gemm.Packs{V: m.packs, Parts: p.parts[0], Words: words}, gemm.Packs{V: p.panels, Parts: p.parts[1], Words: words}
	first, j := unit/p.across*p.tall, unit%p.across*partsCols
	cols := min(partsCols, p.cols-j)
	whole := cols / (2 * gemm.PanelTokens)
	done := whole * 2 * gemm.PanelTokens
	for k := 0; k < p.n; k += p.depth {
		block, blocks, add := k/gemm.BlockK, units(min(p.depth, p.n-k), gemm.BlockK), p.add || k > 0
		right := b.From(j/gemm.PanelTokens, block)
		for i, end := first, min(first+p.tall, p.rows); i < end; i += 2 * gemm.PackRows {
			rows := min(2*gemm.PackRows, end-i)
			left := a.From(i/gemm.PackRows, block)
			c := mat.Floats{V: p.c.V[(p.row+i)*p.c.Stride+p.col+j:], Stride: p.c.Stride}
			if rows < 2*gemm.PackRows {
				m.edge(c, left, right, rows, cols, blocks, add)
				continue
			}
			m.set.GEMM.MulParts(c, left, right, blocks, whole, add)
			if done < cols {
				c.V = c.V[done:]
				m.edge(c, left, right.From(done/gemm.PanelTokens, 0), rows, cols-done, blocks, add)
			}
		}
	}
}

// edge computes the part of the result that is smaller than a tile.
func (m *Multiplier) edge(c mat.Floats, left, right gemm.Packs, rows, cols, blocks int, add bool) {
	buf := m.scratches.Get().(*scratch)
	defer m.scratches.Put(buf)
	couples := units(cols, 2*gemm.PanelTokens)
	stride := couples * 2 * gemm.PanelTokens
	buf.tile = atLeast(buf.tile, 2*gemm.PackRows*stride)
	if add {
		for r := range rows {
			copy(buf.tile[r*stride:][:cols], c.V[r*c.Stride:])
		}
	}
	m.set.GEMM.MulParts(mat.Floats{V: buf.tile, Stride: stride}, left, right, blocks, couples, add)
	for r := range rows {
		copy(c.V[r*c.Stride:][:cols], buf.tile[r*stride:])
	}
}
