// Package coded stores bfloat16 matrices in about 12.3 bits per weight and multiplies them.
// Products have the bits of those with the plain matrices.
//
// The low byte of a weight is stored as it is. The high byte, which is the sign and the upper seven
// bits of the exponent, is an index of 4 bits into a table of the row's 16 most frequent high bytes.
// [Encode] codes a matrix, [Kernels.Decode] restores any rows bit for bit, and [Kernels.MulPairs]
// and [Kernels.MulTokens] are products of rows that are decoded in registers.
//
// # Layout
//
// A matrix is bands of [BandRows] rows; the last band may have fewer. A band of h rows has
//   - for each row a table of 32 high bytes, the most frequent first;
//   - the exceptions of the band, 4 bytes for each group and 8 for each row;
//   - for each row its groups of [GroupColumns] columns, 192 bytes each; the last group is filled up.
//
// A group has 64 low bytes of columns 0 to 63, 64 low bytes of columns 64 to 127, and 64 bytes of
// codes: the low half for the first 64, the high half for the others. The bytes of 64 columns are in
// the order in which one unpacking instruction of vectors restores the words: columns 0-7, 32-39,
// 8-15, 40-47, 16-23, 48-55, 24-31, 56-63.
//
// A group with high bytes beyond the first 16 of its table is an exception: its first byte of codes
// is 0xFF and its bytes 4 to 7 of codes are the offset of its record in the band's exceptions. If the
// highest bit of the offset is clear, the record has a bit for each low byte that selects the second
// half of the table (16 bytes), and the 8 bytes of codes that mark and offset replace. If it is
// set, the record has the 128 high bytes. Groups whose codes begin with 0xFF are exceptions too.
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
	offsetAt       = codesAt + 4
	tableBytes     = 32
	raw            = 1 << 31 // in an offset
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

// RowBytes returns the size of a row of cols columns, with its share of the exceptions.
func RowBytes(cols int) int { return tableBytes + Groups(cols)*groupBytes + roomOf(cols) }

// roomOf is the room for exceptions of a row.
func roomOf(cols int) int { return 4*Groups(cols) + 8 }

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

// A band is the parts of a band from one of its rows on.
type band struct {
	tables, exceptions, groups []byte
	rows                       int // from that row to the band's end
}

// band returns the band of row r.
func (m *Matrix) band(r int) band {
	each, first := RowBytes(m.Cols), r&^(BandRows-1)
	high, own := min(BandRows, m.Rows-first), Groups(m.Cols)*groupBytes
	data := m.Data[first*each:][:high*each]
	head := high * (tableBytes + roomOf(m.Cols))
	return band{tables: data[(r-first)*tableBytes:], exceptions: data[high*tableBytes : head], groups: data[head+(r-first)*own:], rows: first + high - r}
}

// Kernels are the kernels of one variant. They have no state: any number of goroutines may use them
// at once.
type Kernels struct {
	decoder decoder
	pairs   pairer   // nil: there are no products of rounded activations
	splits  splitter // nil: there are no products of split tokens
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	return Kernels{decoder: decoderOf(v), pairs: pairsOf(v), splits: splitsOf(v)}
}

// Stride is the bytes of a decoded row: that of whole groups.
func Stride(cols int) int { return Groups(cols) * GroupColumns * 2 }

// Decode restores rows [row, row+rows) of m as bfloat16 at dst, [Stride] bytes each. Columns beyond
// the matrix are undefined.
func (k *Kernels) Decode(dst []byte, m *Matrix, row, rows int) {
	stride := Stride(m.Cols)
	for rows > 0 {
		b := m.band(row)
		n := min(rows, b.rows)
		k.decoder.decode(dst[:n*stride], b, Groups(m.Cols), n)
		dst, row, rows = dst[n*stride:], row+n, rows-n
	}
}

// HasPairs reports whether there is [Kernels.MulPairs] for rows of cols columns.
func (k *Kernels) HasPairs(cols int) bool { return k.pairs != nil && cols%GroupColumns == 0 }

// MulPairs sets y[i] to the product of row row+i and the token x, which is rounded to bfloat16. It
// has the bits of gemv.Kernels.MulPairs on the decoded rows. Call it only if HasPairs returns true.
func (k *Kernels) MulPairs(y []float32, m *Matrix, row int, x []uint32) {
	x = x[:m.Cols/2]
	for len(y) > 0 {
		b := m.band(row)
		n := min(len(y), b.rows)
		k.pairs.mulPairs(y[:n], b, x)
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
	for p.Rows > 0 {
		b := p.W.band(p.Row)
		all := p.Rows
		p.Rows = min(all, b.rows)
		k.pairs.mulTokens(p, b)
		p.Y.V, p.Row, p.Rows = p.Y.V[p.Rows:], p.Row+p.Rows, all-p.Rows
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
		b := m.band(row)
		n := min(len(y), b.rows)
		k.splits.mulSplit(y[:n], b, x)
		y, row = y[n:], row+n
	}
}

type splitter interface {
	mulSplit(y []float32, b band, x []float32)
}

type decoder interface {
	decode(dst []byte, b band, groups, rows int)
}

type pairer interface {
	mulPairs(y []float32, b band, x []uint32)
	mulTokens(p TokensProduct, b band) // the rows are in b
}
