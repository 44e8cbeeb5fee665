// Package mat has the operands of the kernels: matrices of float32 activations ([Floats]), of
// weights as a checkpoint stores them ([Weights]) and of activations rounded to bfloat16 ([Pairs]),
// and the conversions between their formats, one number at a time.
//
// A view has no shape of its own: each call gives one. A kernel panics, as indexing does, if the
// view is too short for the shape.
package mat

// GoLanes is the number of partial sums of the Go variant.
const GoLanes = 8

// RowBlock is how many columns of Mix are widened at a time.
const RowBlock = 256

// Lanes8 are the partial sums of one dot product.
type Lanes8 [GoLanes]float32

// Fold adds the lanes in halves.
func (l *Lanes8) Fold() float32 {
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// Transpose sets dst[i][j] = w[j][i] for rows j of [r, rows) and columns i of [c, cols), as float32.
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

// Format is how the elements of [Weights] are stored, little-endian.
type Format uint8

// The formats.
const (
	BFloat16 Format = iota
	Float16
	Float32
	// Formats is their number.
	Formats
)

// Size is the bytes of one element.
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

// Weights is a matrix as it is stored. Row i starts at byte i·Stride. Any alignment is allowed.
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

// CeilDiv is a/b rounded up.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

// Pairs is a matrix of activations rounded to bfloat16, two in a word. Row i starts at
// word i·Stride.
type Pairs struct {
	V      []uint32
	Stride int
}

// PairWords is the length in words of a row of n elements in [Pairs].
func PairWords(n int) int { return CeilDiv(n, 2) }

// SpreadPairs is a stride in words for several rows of n elements in [Pairs]: a multiple of 4 KiB and 1 KiB more.
// Equal parts of four rows then lie in different sets of a first-level cache, which addresses 4 KiB apart share.
func SpreadPairs(n int) int {
	const page, part = 1024, 256
	words := PairWords(n)
	return words + (page+part-words%page)%page
}
