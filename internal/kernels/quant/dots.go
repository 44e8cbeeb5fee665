package quant

import (
	"encoding/binary"
	"math"

	"github.com/heftai/heft/internal/floats"
	"github.com/heftai/heft/internal/kernels/mat"
)

// A dotKind is the way in which kernels widen the codes of rows whose scales are stored
// separately.
type dotKind uint8

const (
	tableCodes    dotKind = iota // entry of a table of 16, minus the zero, times the scale of its group
	byteScales                   // entry of a table of 16, times the scale of 16 or 32 columns, which a byte encodes
	signedCodes                  // signed byte, minus the zero, times the scale of its group
	scaledTwice                  // signed byte, times the scale of its group and then another scale
	unsignedCodes                // unsigned byte, minus the zero, times the scale of its group
	dotKinds
	noDots = dotKinds
)

// dotKind returns the way in which kernels widen the codes of p.
func (p Packing) dotKind() dotKind {
	switch p {
	case Int4Packed, NF4, FP4:
		return tableCodes
	case NVFP4, NVFP4Times, E2M1Powers:
		return byteScales
	case Int8:
		return signedCodes
	case BnbInt8:
		return scaledTwice
	case Int8Packed:
		return unsignedCodes
	}
	return noDots
}

const (
	// dotStep divides the number of columns.
	dotStep = 32
	// dotPiece is the number of columns of several tokens that are multiplied by all rows before
	// the next ones, so that the tokens' columns stay in the first-level cache.
	dotPiece = 512
	// dotTokens and dotLanes are the largest numbers of tokens and of lanes that kernels compute
	// at once.
	dotTokens, dotLanes = 8, 16
	// dotSecond is the place in the kernels' table of the distance in bytes, in 64 bits, between
	// the scales of both halves of 32 columns. Before it are 16 values and the scales of all
	// bytes, and after it is room for a shape.
	dotSecond = 16 + 256
	dotTable  = dotSecond + 2 + 24
)

// TakesDots reports whether the variant implements [Kernels.DotRows] for w, a view of rows.
func (s *Kernels) TakesDots(w *View) bool {
	p := w.Packed
	kind, whole := p.Packing.dotKind(), p.Columns%dotStep == 0 && w.Col%p.Columns == 0
	switch {
	case kind == noDots || !s.ops.dots() || (w.Col|w.Cols)%dotStep != 0 || w.Cols == 0:
		return false
	case kind == byteScales:
		return p.Rows == 1 && (p.Columns == 16 || p.Columns == 32)
	case tables[p.Packing].high: // groups continue across the end of a row
		return whole && p.Width%p.Columns == 0
	}
	return (whole || p.Columns >= p.Width) && (p.Index == nil || p.Packing != Int4Packed && p.Packing != Int8Packed)
}

// dotGroups returns the number of scales and zeros of a row that are widened before it is
// multiplied.
func (w *View) dotGroups() int {
	if w.Packing.dotKind() == byteScales {
		return 0
	}
	return mat.CeilDiv(w.Cols, w.Columns)
}

// DotScratch returns the length of the scratch of [Kernels.DotRows].
func DotScratch(w *View, tokens int) int {
	return dotTable + w.Rows*(2*w.dotGroups()+min(tokens, dotTokens)*dotLanes)
}

// dotShape holds the arguments of dot-product kernels besides operands. Distances are in bytes.
type dotShape struct {
	codes, scales int // from one row to the next
	x             int // from one token to the next
	columns       int // the number that share a scale, a multiple of dotStep
	n             int // columns, a multiple of dotStep
	rows          int
	zeros         int // from a group's scale to its zero
	high          int // 4 if even columns are in the high half of a byte
	round         mat.Format
}

// DotRows sets y[t][r] to the dot product of token t and row r of w. [Kernels.TakesDots] must be
// true for w. It has the bits of [Kernels.Unpack] followed by gemv's Mul. It widens codes in
// registers.
func (s *Kernels) DotRows(y mat.Floats, w *View, x mat.Floats, tokens int, scratch []float32) {
	if w.Rows <= 0 || tokens <= 0 {
		return
	}
	y.Check(tokens, w.Rows)
	x.Check(tokens, w.Cols)
	p, kind, groups := w.Packed, w.Packing.dotKind(), w.dotGroups()
	table, scratch := scratch[:dotTable], scratch[dotTable:]
	scales, sums := scratch[:2*w.Rows*groups], scratch[2*w.Rows*groups:]
	p.setDotTable(table)
	shape := dotShape{codes: w.Step * p.RowBytes(), scales: 4 * groups, x: 4 * x.Stride, columns: p.Columns, rows: w.Rows, zeros: 2 * len(scales), round: mat.Float32}
	bytes := []byte(nil)
	if kind == byteScales {
		shape.columns = w.Cols // kernels read the bytes
		shape.scales = w.Step * mat.CeilDiv(p.Width, p.Columns)
		bytes = p.Scales[w.Row*p.Width/p.Columns:][:(w.Rows-1)*shape.scales+mat.CeilDiv(p.Width, p.Columns)]
	} else {
		s.dotScales(scales[:w.Rows*groups], scales[w.Rows*groups:], table[16:dotSecond], w, groups)
	}
	if tables[p.Packing].high {
		shape.high, shape.round = 4, p.Round
	}
	for t, n := 0, 0; t < tokens; t += n {
		n = s.ops.dotTokens(tokens - t)
		piece := w.Cols
		if n > 1 {
			piece = max(dotPiece/p.Columns*p.Columns, min(dotPiece, p.Columns))
		}
		own := sums[:w.Rows*n*dotLanes]
		clear(own)
		for k := 0; k < w.Cols; k += shape.n {
			shape.n = min(piece, w.Cols-k)
			if piece < p.Columns { // a piece is in one group
				shape.n = min(shape.n, p.Columns-k%p.Columns)
			}
			from, of := scales, bytes
			if kind == byteScales {
				of = bytes[(w.Col+k)/p.Columns:]
			} else {
				from = scales[k/p.Columns:]
			}
			s.ops.dotCodes(kind, own, w.dotCodes(k, shape.n), x.V[t*x.Stride+k:], from, of, table, shape, n)
		}
		s.ops.foldDots(y.V[t*y.Stride:], y.Stride, own, w.Rows, n)
	}
}

// dotCodes returns the codes of all rows from column k of w on, up to the last of n columns of
// the last row.
func (w *View) dotCodes(k, n int) []byte {
	at, last := w.Row*w.Width+w.Col+k, (w.Rows-1)*w.Step*w.Width+n
	if w.RowBytes() < w.Width {
		at, last = at/2, last/2
	}
	return w.Codes[at:][:last]
}

// setDotTable fills the kernels' table: values of codes, or the second scale, and scales of
// bytes.
func (p *Packed) setDotTable(table []float32) {
	values, scales := table[:16], table[16:][:256]
	switch p.Packing {
	case BnbInt8:
		values[0] = bnbScale
		return
	case Int8, Int8Packed:
		return
	}
	copy(values, tables[p.Packing].values[:])
	switch p.Packing {
	case Int4Packed:
		if p.Zeros == nil {
			for i := range values {
				values[i] -= float32(p.packedZero(0, 0, 0))
			}
		}
	case NVFP4:
		for i, v := range e4m3Values {
			scales[i] = v / p.Global
		}
	case NVFP4Times:
		for i, v := range e4m3Values {
			scales[i] = v * p.Global
		}
	case E2M1Powers:
		for i := range scales {
			scales[i] = floats.FromE8M0(byte(i))
		}
	}
	second := uint32(0)
	if p.Columns < dotStep {
		second = 1
	}
	table[dotSecond], table[dotSecond+1] = math.Float32frombits(second), 0
}

// dotScales sets the scales and the zeros of the given number of groups of each row of w. Zeros
// that the table already includes are set to 0. numbers is room for 256 scales of scales.
func (s *Kernels) dotScales(scales, zeros, numbers []float32, w *View, groups int) {
	p, size, all := w.Packed, w.ScaleFormat.Size(), mat.CeilDiv(w.Width, w.Columns)
	clear(zeros)
	if p.Packing == Int8Packed && p.Zeros == nil {
		for i := range zeros {
			zeros[i] = packedMiddle
		}
	}
	if p.nested() {
		s.vector.Widen(numbers, p.Index[:4*len(numbers)], mat.Float32)
	}
	first := p.firstGroup(w.Row, w.Col)
	if together := p.Rows == 1 && w.Step == 1 && groups == all; together && p.Zeros == nil { // the scales of rows are contiguous
		s.vector.Widen(scales, p.Scales[first*size:][:w.Rows*groups*size], p.ScaleFormat)
		return
	}
	for r := range w.Rows {
		row := w.Row + r*w.Step
		first, to, zero := p.firstGroup(row, w.Col), scales[r*groups:][:groups], zeros[r*groups:][:groups]
		if p.nested() {
			p.widenNested(to, numbers, first)
			continue
		}
		s.vector.Widen(to, p.Scales[first*size:][:groups*size], p.ScaleFormat)
		switch {
		case p.Zeros == nil:
		case p.Packing == Int8:
			for i, v := range p.Zeros[first:][:groups] {
				zero[i] = float32(int8(v))
			}
		case p.Packing == Int8Packed:
			for i := range zero {
				zero[i] = float32(p.packedZero(row, first%all+i, all))
			}
		case p.Packing == Int4Packed:
			shift, words := row%8*4, p.Zeros[4*(row/8*all+first%all):][:4*groups]
			for i := range zero {
				zero[i] = float32(binary.LittleEndian.Uint32(words[4*i:]) >> shift & 15)
			}
		}
	}
}

// firstGroup returns the group of an element.
func (p *Packed) firstGroup(row, col int) int {
	g := p.groupsOf(row, col)
	return g.first + g.at/p.Columns
}

// nested reports whether scales are bytes that have scales themselves.
func (p *Packed) nested() bool { return tables[p.Packing].high && p.Zeros != nil }

// widenNested is scaleOfScales for groups from first on. numbers is the table Index, decoded.
func (p *Packed) widenNested(to, numbers []float32, first int) {
	table := (*[256]float32)(numbers)
	for len(to) > 0 {
		n := min(len(to), nestedElements-first%nestedElements)
		by := math.Float32frombits(binary.LittleEndian.Uint32(p.Zeros[first/nestedElements*4:]))
		for i, code := range p.Scales[first:][:n] {
			scale := table[code] * by
			to[i] = float32(scale) + p.Global
		}
		to, first = to[n:], first+n
	}
}

func (goOps) dotTokens(int) int { return 1 }

func (goOps) dotCodes(dotKind, []float32, []byte, []float32, []float32, []byte, []float32, dotShape, int) {
}

func (goOps) foldDots([]float32, int, []float32, int, int) {}
