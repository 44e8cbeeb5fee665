// Package coded stores bfloat16 matrices without loss in about 12.3 bits per weight and
// multiplies them. Products have the same bits as those with the plain matrices.
//
// The low byte of a weight is stored as it is. The high byte, which is the sign and the upper
// seven bits of the exponent, becomes a 4-bit index into a table of the row's 16 most frequent
// high bytes. [Encode] codes a matrix, and [Kernels.Decode] restores any rows bit for bit.
// [Kernels.MulPairs] and [Kernels.MulTokens] multiply rows that they decode in registers, and
// [Kernels.MulTiles] rows that it decodes in the first-level cache. [Kernels.PackPiece] decodes
// into the packs that gemm multiplies.
//
// # Layout
//
// Rows follow one another, [RowBytes] each. A row has
//
//   - a table of 32 high bytes, the most frequent first;
//   - units for exceptions, 24 bytes each, one for every six of its groups or part of six;
//   - groups of [GroupColumns] columns, 192 bytes each; the last group is padded.
//
// Groups are therefore nearly contiguous in memory. Where hundreds of bytes are skipped,
// processors stop prefetching, which made products up to a quarter slower.
//
// A group has 64 low bytes of columns 0 to 63, 64 low bytes of columns 64 to 127, and 64 bytes of
// codes: the low half of each byte for the first 64 columns, the high half for the others. The
// bytes of 64 columns are in the order in which one vector unpack instruction restores the words:
// columns 0-7, 32-39, 8-15, 40-47, 16-23, 48-55, 24-31, 56-63.
//
// A group with high bytes other than the first 16 of its table is an exception: its first byte of
// codes is 0xFF. If the second byte of codes is 0, the record of the group is one unit, whose
// offset from the group in bytes is in bytes 4 to 7 of codes. The unit has a bit for each low
// byte that selects the second half of the table (16 bytes), and the first 8 bytes of codes. If
// the second byte is 1, the record is the 128 high bytes in six units, whose offsets are in bytes
// 4 to 27. Groups whose codes begin with 0xFF are exceptions too. The units may belong to any row
// of the same band of [BandRows] rows. The last band may have fewer rows.
//
// The size of a matrix therefore depends only on its shape. [Encode] fails with [ErrNoRoom] if
// the exceptions do not fit. Such a matrix must be used uncoded.
package coded

import (
	"errors"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

const (
	// BandRows is the number of rows in a band. Each band is coded independently.
	BandRows = 16
	// GroupColumns is the number of columns in a group.
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

	// mostTokens is the largest number of tokens that a kernel multiplies at once.
	mostTokens = 8
	// sumLanes is the number of lanes of a sum.
	sumLanes = 16
)

// ErrNoRoom means that the exceptions of a band do not fit its units.
var ErrNoRoom = errors.New("coded: the weights' high bytes vary too much")

// Groups returns the number of groups in a row of cols columns.
func Groups(cols int) int { return mat.CeilDiv(cols, GroupColumns) }

// RowBytes returns the size in bytes of a row of cols columns, including its units for
// exceptions.
func RowBytes(cols int) int { return beforeGroups(cols) + Groups(cols)*groupBytes }

// beforeGroups returns the size in bytes of the part of a row before its groups.
func beforeGroups(cols int) int { return tableBytes + unitsOf(cols)*unitBytes }

// unitsOf returns the number of units in a row.
func unitsOf(cols int) int { return mat.CeilDiv(Groups(cols), 6) }

// Matrix is a coded matrix.
type Matrix struct {
	Data       []byte
	Rows, Cols int
}

// Holds reports whether the data has the size of the matrix.
func (m *Matrix) Holds() bool {
	return m.Rows >= 0 && m.Cols > 0 && len(m.Data) >= m.Rows*RowBytes(m.Cols)
}

// A strip is a range of rows of a matrix. The units of their exceptions may lie outside the
// strip.
type strip struct {
	data    []byte // the data of the whole matrix
	at      int    // offset of the first row
	columns int
}

// strip returns rows [row, row+rows).
func (m *Matrix) strip(row, rows int) strip {
	each := RowBytes(m.Cols)
	_ = m.Data[row*each : (row+rows)*each]
	return strip{m.Data, row * each, m.Cols}
}

// Kernels are the kernels of coded weights in one variant. They are stateless and safe for
// concurrent use.
type Kernels struct {
	decoder decoder
	pairs   pairer   // nil if there are no products of rounded activations
	splits  splitter // nil if there are no products of split tokens
	strips  striper  // nil if there are no products with tiles
	packs   packer   // nil if there are no products of packs in steps
}

// For returns the kernels of v.
func For(v isa.Variant) Kernels {
	return Kernels{decoder: decoderOf(v), pairs: pairsOf(v), splits: splitsOf(v), strips: stripsOf(v), packs: packsOf(v)}
}

// Stride returns the size in bytes of a decoded row, which is padded to whole groups.
func Stride(cols int) int { return Groups(cols) * GroupColumns * 2 }

// Decode restores rows [row, row+rows) of m as bfloat16 at dst, [Stride] bytes each. Columns
// beyond the matrix have undefined values.
func (k *Kernels) Decode(dst []byte, m *Matrix, row, rows int) {
	stride := Stride(m.Cols)
	for ; rows > 0; rows -= BandRows {
		n := min(rows, BandRows)
		k.decoder.decode(dst[:n*stride], m.strip(row, n), n)
		dst, row = dst[n*stride:], row+n
	}
}

// HasPairs reports whether the variant implements [Kernels.MulPairs] for rows of cols columns.
func (k *Kernels) HasPairs(cols int) bool { return k.pairs != nil && cols%GroupColumns == 0 }

// MulPairs sets y[i] to the dot product of row row+i and the token x, which is rounded to
// bfloat16. It has the bits of gemv.Kernels.MulPairs on the decoded rows. Call it only if
// HasPairs returns true.
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
	Y            mat.Floats // Tokens × Rows
	W            *Matrix
	Row          int       // the first row
	X            mat.Pairs // Tokens × W.Cols, rounded to bfloat16
	Rows, Tokens int
	Sums         []float32 // scratch; its length is TokenSums(Tokens)
}

// TokenSums returns the length of the scratch of a product of the given number of tokens.
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

// HasSplit reports whether the variant implements [Kernels.MulSplit] for rows of cols columns.
func (k *Kernels) HasSplit(cols int) bool { return k.splits != nil && cols%GroupColumns == 0 }

// MulSplit sets y[i] to the dot product of row row+i and the token x, which
// gemv.Kernels.SplitTokens laid out. It has the bits of gemv.Kernels.MulSplit on the decoded
// rows. Call it only if HasSplit returns true.
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
	mulTokens(p TokensProduct, w strip) // w holds the rows
}
