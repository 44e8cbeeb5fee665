// Package coded stores bfloat16 matrices in about 12.3 bits per weight and multiplies them.
// Products have the bits of those with the plain matrices.
//
// The low byte of a weight is stored as it is. The high byte, which is the sign and the upper seven
// bits of the exponent, is an index of 4 bits into a table of the row's 16 most frequent high bytes.
// [Encode] codes a matrix, [Kernels.Decode] restores any rows bit for bit, and [Kernels.MulPairs]
// and [Kernels.MulTokens] are products of rows that are decoded in registers, [Kernels.MulTiles] of rows that are decoded
// in the first-level cache.
//
// # Layout
//
// Rows lie one after the other, [RowBytes] each. A row has
//   - a table of 32 high bytes, the most frequent first;
//   - units for exceptions, 24 bytes each, one for every six of its groups that has begun;
//   - groups of [GroupColumns] columns, 192 bytes each; the last group is filled up.
//
// So groups are nearly one sequence in memory: where hundreds of bytes are skipped, processors stop to
// prefetch, which made products up to a quarter slower.
//
// A group has 64 low bytes of columns 0 to 63, 64 low bytes of columns 64 to 127, and 64 bytes of
// codes: the low half for the first 64, the high half for the others. The bytes of 64 columns are in
// the order in which one unpacking instruction of vectors restores the words: columns 0-7, 32-39,
// 8-15, 40-47, 16-23, 48-55, 24-31, 56-63.
//
// A group with high bytes beyond the first 16 of its table is an exception: its first byte of codes
// is 0xFF. If the next one is 0, its record is a unit, whose offset from the group in bytes is in bytes 4
// to 7 of codes: a bit for each low byte that selects the second half of the table (16 bytes), and the
// first 8 bytes of codes. If it is 1, the record is the 128 high bytes in six units, whose offsets are in
// bytes 4 to 27. Groups whose codes begin with 0xFF are exceptions too. The units may be those of any
// row of the same band of [BandRows] rows; the last band may have fewer rows.
//
// The size of a matrix therefore depends on its shape alone. [Encode] fails with [ErrNoRoom] if the
// exceptions do not fit; use such a matrix as it is.
package coded

import (
	"errors"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

const (
	// BandRows is the number of rows of a band. Bands are coded by themselves.
	BandRows = 16
	// GroupColumns is the number of columns of a group.
	GroupColumns = 128

	groupBytes     = GroupColumns * 3 / 2
	codesAt        = GroupColumns // in a group
	mark           = 0xff
	rawAt          = 1 // in codes, as the two below
	offsetsAt      = 4
	tableBytes     = 32
	unitBytes      = maskBytes + displacedBytes
	rawUnits       = 6
	maskBytes      = GroupColumns / 8
	displacedBytes = 8

	// mostTokens are the tokens that a kernel multiplies at once.
	mostTokens = 8
	// sumLanes are the lanes of a sum.
	sumLanes = 16
)

// ErrNoRoom says that a band has more exceptions than it has room for.
var ErrNoRoom = errors.New("coded: the weights' high bytes vary too much")

// Groups returns the number of groups in a row of cols columns.
func Groups(cols int) int { return mat.CeilDiv(cols, GroupColumns) }

// RowBytes returns the size of a row of cols columns, with its units for exceptions.
func RowBytes(cols int) int { return beforeGroups(cols) + Groups(cols)*groupBytes }

// beforeGroups is the bytes of a row before its groups.
func beforeGroups(cols int) int { return tableBytes + unitsOf(cols)*unitBytes }

// unitsOf is the number of units of a row.
func unitsOf(cols int) int { return mat.CeilDiv(Groups(cols), 6) }

// Pays reports whether coding saves a tenth of the bytes of rows of cols columns.
func Pays(cols int) bool { return cols > 0 && 10*RowBytes(cols) <= 9*2*cols }

// Matrix is a coded matrix.
type Matrix struct {
	Data       []byte
	Rows, Cols int
}

// Holds reports whether the data has the matrix's size.
func (m *Matrix) Holds() bool {
	return m.Rows >= 0 && m.Cols > 0 && len(m.Data) >= m.Rows*RowBytes(m.Cols)
}

// A strip is some rows of a matrix. The units of their exceptions may lie before and behind them.
type strip struct {
	data    []byte // of the matrix
	at      int    // where the first row begins
	columns int
}

// strip returns rows [row, row+rows).
func (m *Matrix) strip(row, rows int) strip {
	each := RowBytes(m.Cols)
	_ = m.Data[row*each : (row+rows)*each]
	return strip{m.Data, row * each, m.Cols}
}

// Kernels are the kernels of one variant. They have no state: any number of goroutines may use them
// at once.
type Kernels struct {
	decoder decoder
	pairs   pairer   // nil: there are no products of rounded activations
	splits  splitter // nil: there are no products of split tokens
	strips  striper  // nil: there are no products of tiles
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	return Kernels{decoder: decoderOf(v), pairs: pairsOf(v), splits: splitsOf(v), strips: stripsOf(v)}
}

// Stride is the bytes of a decoded row: that of whole groups.
func Stride(cols int) int { return Groups(cols) * GroupColumns * 2 }

// Decode restores rows [row, row+rows) of m as bfloat16 at dst, [Stride] bytes each. Columns beyond
// the matrix are undefined.
func (k *Kernels) Decode(dst []byte, m *Matrix, row, rows int) {
	stride := Stride(m.Cols)
	for ; rows > 0; rows -= BandRows {
		n := min(rows, BandRows)
		k.decoder.decode(dst[:n*stride], m.strip(row, n), n)
		dst, row = dst[n*stride:], row+n
	}
}

// HasPairs reports whether there is [Kernels.MulPairs] for rows of cols columns.
func (k *Kernels) HasPairs(cols int) bool { return k.pairs != nil && cols%GroupColumns == 0 }

// MulPairs sets y[i] to the product of row row+i and the token x, which is rounded to bfloat16. It
// has the bits of gemv.Kernels.MulPairs on the decoded rows. Call it only if HasPairs returns true.
func (k *Kernels) MulPairs(y []float32, m *Matrix, row int, x []uint32) {
	x = x[:m.Cols/2]
	for len(y) > 0 {
		n := min(len(y), BandRows)
		k.pairs.mulPairs(y[:n], m.strip(row, n), x)
		y, row = y[n:], row+n
	}
}

// A TokensProduct is a product of rows of a coded matrix and several tokens.
type TokensProduct struct {
	Y            mat.Floats // [Tokens][Rows]
	W            *Matrix
	Row          int       // the first of the rows
	X            mat.Pairs // [Tokens][W.Cols], rounded to bfloat16
	Rows, Tokens int
	Sums         []float32 // scratch, [TokenSums] of Tokens
}

// TokenSums is the scratch of a product of so many tokens, in floats.
func TokenSums(tokens int) int { return BandRows * min(tokens, mostTokens) * sumLanes }

// MulTokens computes p with the bits of gemv.Kernels.MulPairs on the decoded rows. Call it only if HasPairs returns
// true.
func (k *Kernels) MulTokens(p TokensProduct) {
	if p.Rows <= 0 || p.Tokens <= 0 {
		return
	}
	p.Y.Check(p.Tokens, p.Rows)
	_, _ = p.X.V[:(p.Tokens-1)*p.X.Stride+p.W.Cols/2], p.Sums[:TokenSums(p.Tokens)]
	for left := p.Rows; left > 0; left -= p.Rows {
		p.Rows = min(left, BandRows)
		k.pairs.mulTokens(p, p.W.strip(p.Row, p.Rows))
		p.Y.V, p.Row = p.Y.V[p.Rows:], p.Row+p.Rows
	}
}

// HasSplit reports whether there is [Kernels.MulSplit] for rows of cols columns.
func (k *Kernels) HasSplit(cols int) bool { return k.splits != nil && cols%GroupColumns == 0 }

// MulSplit sets y[i] to the product of row row+i and the token x, which gemv.Kernels.SplitTokens
// laid out. It has the bits of gemv.Kernels.MulSplit on the decoded rows. Call it only if HasSplit
// returns true.
func (k *Kernels) MulSplit(y []float32, m *Matrix, row int, x []float32) {
	x = x[:m.Cols]
	for len(y) > 0 {
		n := min(len(y), BandRows)
		k.splits.mulSplit(y[:n], m.strip(row, n), x)
		y, row = y[n:], row+n
	}
}

type splitter interface {
	mulSplit(y []float32, w strip, x []float32)
}

type decoder interface {
	decode(dst []byte, w strip, rows int)
}

type pairer interface {
	mulPairs(y []float32, w strip, x []uint32)
	mulTokens(p TokensProduct, w strip) // the rows are in w
}
