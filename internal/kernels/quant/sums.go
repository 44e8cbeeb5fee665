package quant

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/kernels/mat"
)

// SumColumns is the number of columns that [Kernels.AddCodes] sums: those in a cache line of
// Int4Columns.
const SumColumns = 128

// sumRows is the number of rows dequantised at a time. Their values for 16 columns and their
// codes for 128 fit the first-level cache.
const sumRows = 128

// sumStep divides the number of rows. It is a multiple of the rows in a word of Int4Rows and of
// every variant's number of lanes.
const sumStep = 16

// mostSumGroups is the largest number of groups for rows in any order, because the scales of all
// groups are decoded first.
const mostSumGroups = 256

// SumScratch returns the length of the scratch of [Kernels.AddCodes].
func SumScratch(w *View) int { return w.sumTables()*2*SumColumns + SumColumns + 2*16*sumRows }

// codesOfWord returns the number of rows of a column in a word. It returns 0 if a word holds
// columns, or if p is not packed in words.
func (p Packing) codesOfWord() int {
	switch p {
	case Int4Rows:
		return 8
	case Int8Rows:
		return 4
	}
	return 0
}

// sumTables returns the number of groups whose scales are held at once.
func (w *View) sumTables() int {
	if w.Packing.codesOfWord() > 0 { // with or without an index
		return min(mat.CeilDiv(w.Row+w.Rows, w.Packed.Rows), mostSumGroups)
	}
	return 1
}

// TakesSums reports whether [Kernels.AddCodes] supports w, a view of whole columns of a matrix.
func (w *View) TakesSums() bool {
	p := w.Packed
	return (p.Packing.codesOfWord() > 0 || p.Packing == Int4Columns && p.Index == nil) && p.Columns == 1 && w.Step <= 1 &&
		w.Col%8 == 0 && (w.Row|w.Rows|p.Rows)%sumStep == 0
}

// AddCodes adds the partial sums of a dot product down each of w's SumColumns columns, for each
// token, with the bits of [Kernels.Unpack] followed by gemv's AddLanes: x[t][j] · w[j][c] is
// added to a lane, in ascending order of j. Each lane of a token has SumColumns elements in the
// order of [Packing.SumPlace]. The lanes of token t follow those of token t-1. It does nothing
// and returns false if the index of w has more groups than its rows would have without one, or
// more than 256.
func (s *Kernels) AddCodes(lanes []float32, x mat.Floats, tokens int, w *View, scratch []float32) bool {
	p, n := w.Packed, w.sumTables()
	tables, scratch := scratch[:n*2*SumColumns], scratch[n*2*SumColumns:]
	scales, values := scratch[:SumColumns], scratch[SumColumns:][:2*16*sumRows]
	x.Check(tokens, w.Rows)
	var index []byte
	if p.Index != nil {
		index = p.Index[4*w.Row:][:4*w.Rows]
		last := most(index)
		if last >= uint32(n) {
			return false
		}
		for g := range int(last) + 1 {
			s.sumTable(p, tables[g*2*SumColumns:][:2*SumColumns], scales, g, w.Col)
		}
	}
	shape := codeShape{lanes: 4 * len(lanes) / tokens, x: 4 * x.Stride, tokens: tokens, words: p.Width / 2, n: sumRows}
	codes := p.Packing.codesOfWord()
	if codes > 0 {
		shape.words = 4 * p.Width
	}
	group := -1
	for k := 0; k < w.Rows; k += shape.n {
		row := w.Row + k
		if shape.n = min(sumRows, w.Rows-k); index == nil {
			if g := row / p.Rows; g != group {
				group = g
				s.sumTable(p, tables[:2*SumColumns], scales, g, w.Col)
			}
			shape.n = min(shape.n, (group+1)*p.Rows-row)
		} else {
			shape.groups = index[4*k:][:4*shape.n]
		}
		begin, lines, line := row*shape.words+w.Col/2, shape.n, SumColumns/2
		if codes > 0 {
			begin, lines, line = row/codes*shape.words+4*w.Col, shape.n/codes, 4*SumColumns
		}
		shape.ahead = lines * shape.words
		s.ops.addCodes(p.Packing, lanes, x.V[k:], p.Codes[begin:][:shape.ahead-shape.words+line], tables, values, shape)
	}
	return true
}

// most returns the largest of an index's little-endian numbers. Negative numbers count as large.
func most(index []byte) (out uint32) {
	for ; len(index) > 0; index = index[4:] {
		out = max(out, binary.LittleEndian.Uint32(index))
	}
	return out
}

// codeShape holds the arguments of addCodes besides operands. Distances are in bytes.
type codeShape struct {
	lanes, x int // from one token's to the next one's
	tokens   int
	words    int // from one row of words to the next
	n        int // number of rows, a multiple of sumStep
	ahead    int // from the words to the ones that come next
	// groups holds the group of each row, which is an index into the table. It is nil if all rows
	// have one group.
	groups []byte
}

// SumPlace returns the place of column c in a lane of AddCodes.
func (p Packing) SumPlace(c int) int {
	if p == Int4Columns { // the nibbles i of all words are adjacent
		return interleave(c)/4*16 + c/8
	}
	return c
}

// sumTable sets table to the scales of SumColumns columns from col on, followed by their zeros
// and 2^bits more, in the order of SumPlace. Using DecodeGroup and a second loop for the order
// would make products 1.1 to 1.2 times slower.
func (s *Kernels) sumTable(p *Packed, table, scales []float32, group, col int) {
	first, size := group*p.Width+col, p.ScaleFormat.Size()
	to, zeros := table[:SumColumns], table[SumColumns:][:SumColumns]
	if p.Packing == Int4Columns {
		to = scales
	}
	s.vector.Widen(to, p.Scales[first*size:][:SumColumns*size], p.ScaleFormat)
	if p.Packing == Int8Rows {
		for w := 0; w < SumColumns; w += 4 {
			word := binary.LittleEndian.Uint32(p.Zeros[first+w:]) + p.ZeroWords[0]
			for i := range 4 {
				zeros[w+i] = float32(word>>(8*i)&255 + 256)
			}
		}
		return
	}
	words := p.Zeros[first/2:][:SumColumns/2]
	for w := range SumColumns / 8 {
		word := binary.LittleEndian.Uint32(words[4*w:]) + p.ZeroWords[0]
		if p.Packing == Int4Rows {
			for i := range 8 {
				zeros[8*w+i] = float32(word>>(4*i)&15 + 16)
			}
			continue
		}
		for i := range 8 { // nibble i is column nibbleColumns[i]
			zeros[16*i+w] = float32(word>>(4*i)&15 + 16)
			table[16*i+w] = scales[8*w+nibbleColumns[i]]
		}
	}
}

// nibbleColumns lists the columns of the nibbles in a word of Int4Columns, the lowest nibble
// first.
var nibbleColumns = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// addCodes rounds products before it adds them, as gemv's reference does.
func (goOps) addCodes(p Packing, lanes, x []float32, words []byte, table, _ []float32, s codeShape) {
	for t := range s.tokens {
		sums := lanes[t*s.lanes/4:][:mat.GoLanes*SumColumns]
		for k := range s.n {
			own := table
			if s.groups != nil {
				own = table[binary.LittleEndian.Uint32(s.groups[4*k:])*2*SumColumns:]
			}
			a, out := x[t*s.x/4+k], sums[k%mat.GoLanes*SumColumns:][:SumColumns]
			for c := range out {
				word, shift, bits := 4*(c%16)+k*s.words, c/16*4, 4
				if n := p.codesOfWord(); n > 0 {
					bits = 32 / n
					word, shift = 4*c+k/n*s.words, k%n*bits
				}
				code := float32(1<<bits + binary.LittleEndian.Uint32(words[word:])>>shift&(1<<bits-1))
				out[c] += float32(a * float32((code-own[SumColumns+c])*own[c]))
			}
		}
	}
}
