// Package mat defines the operands of the kernels: matrices of float32 activations ([Floats]), of
// stored weights ([Weights]) and of activations rounded to bfloat16 ([Pairs]). It also converts
// between their formats, one number at a time.
//
// A view has no shape of its own: each call specifies one. A kernel panics, as indexing does, if
// the view is too short for the shape.
package mat

// GoLanes is the number of partial sums of the Go variant.
const GoLanes = 8

// RowBlock is the number of columns that Mix widens at a time.
const RowBlock = 256

// Lanes8 holds the partial sums of one dot product.
type Lanes8 [GoLanes]float32

// Fold returns the sum of the lanes, added in halves.
func (l *Lanes8) Fold() float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// Transpose sets dst[i][j] = w[j][i] for rows j in [r, rows) and columns i in [c, cols),
// converted to float32.
func Transpose(dst Floats, w Weights, r, rows, c, cols int) {
	var buf [RowBlock]float32
	size := w.Format.Size()
	for ; r < rows; r++ {
		for begin := c; begin < cols; begin += RowBlock {
			row := buf[:min(RowBlock, cols-begin)]
			Widen(row, w.Data[r*w.Stride+begin*size:], w.Format)
			for i, v := range row {
				dst.V[(begin+i)*dst.Stride+r] = v
			}
		}
	}
}

// Format is the format in which the elements of [Weights] are stored, little-endian.
type Format uint8

// The formats.
const (
	BFloat16 Format = iota
	Float16
	Float32
	// Formats is the number of formats.
	Formats
)

// Size returns the size of an element in bytes.
func (f Format) Size() int {
	if f == Float32 {
		return 4
	}
	return 2
}

// Floats is a matrix of activations. Row i starts at element i·Stride.
type Floats struct {
	V      []float32
	Stride int
}

// Weights is a matrix as stored. Row i starts at byte i·Stride. Any alignment is allowed.
type Weights struct {
	Data   []byte
	Stride int
	Format Format
}

// Check panics, as indexing does, if the view is too short for the shape.
func (m Floats) Check(rows, cols int) { _ = m.V[:(rows-1)*m.Stride+cols] }

// Check panics, as indexing does, if the view is too short for the shape.
func (m Weights) Check(rows, cols int) {
	_ = m.Data[:(rows-1)*m.Stride+cols*m.Format.Size()]
}

// CeilDiv returns a/b rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

// Pairs is a matrix of activations rounded to bfloat16, two in each word. Row i starts at word
// i·Stride.
type Pairs struct {
	V      []uint32
	Stride int
}

// PairWords returns the length in words of a row of n elements in [Pairs].
func PairWords(n int) int { return CeilDiv(n, 2) }

// SpreadPairs returns a stride in words for several rows of n elements in [Pairs]: a multiple of
// 4 KiB plus 1 KiB. Addresses 4 KiB apart share a set of the first-level cache. With this stride
// the same columns of four rows lie in different sets.
func SpreadPairs(n int) int {
	const page, part = 1024, 256
	words := PairWords(n)
	return words + (page+part-words%page)%page
}
