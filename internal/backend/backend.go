// Package backend is the seam between a model's rules and the arithmetic: memory of
// one device and a dozen coarse operations on it, destination first.
//
// A [Backend] runs operations in the order of the calls. Like bufio.Writer it keeps
// the first error: later operations do nothing, and [Backend.Sync] returns the error
// and clears it. One goroutine uses a Backend at a time. Gradients are an optional
// interface of the same values. It knows no module, no Kind and no checkpoint.
//
// Exactness. For one backend and variant, each element of a result is summed in one
// fixed order, whatever the number of rows in the call, their place among them, the
// threads, and whether the weights are aligned. All operations keep activations in
// float32 but [Backend.LinearRounded] and [Backend.Attention] for the rows of prompts, whose
// order depends on the role of the rows too.
//
// backendtest holds the suite that every implementation passes.
package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Backend computes on one device. Activations are float32 matrices [rows, columns],
// one row a token; a row stride is allowed wherever an activation is. dst may be an
// operand where the comment says so.
type Backend interface {
	Memory
	// Embed: dst[i] = scale · table[ids[i]]. ids are inside the table.
	Embed(dst tensor.Tensor, table Matrix, ids []int32, scale float32)
	// Norm: dst = norm(x) by a; weight and bias may be absent. dst may be x. With
	// a.Dim smaller than the columns, each group of Dim columns is normalised by
	// itself (heads).
	Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec)
	// Linear: dst = x·Wᵀ + bias, dst [n, w.OutRows], x [n, w.InCols]. bias, a vector of
	// w.OutRows, may be absent, and may have a Stride: that of an interleaved gate.
	Linear(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor)
	// LinearRounded is Linear where x may be rounded to the dtype of the weights first, or for
	// weights in blocks of integers to blocks of 32 integers of eight bits. Each
	// role has its own order of summation. A backend that does not round calls Linear.
	LinearRounded(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, role Role)
	// Products computes each of ps, with the bits of Linear or LinearRounded, in one operation:
	// for products that do not wait for one another. No result overlaps an operand or another
	// result.
	Products(ps []Product)
	// Rope rotates each head of x [n, heads·dim] in place: cos and sin are [n, rot/2]
	// with rot ≤ dim; the channels from rot on stay.
	Rope(x tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool)
	// StoreKV writes row i of k and v into slot slots[i] of kv, where a slot is
	// page·PageTokens + offset.
	StoreKV(kv KV, k, v tensor.Tensor, slots []int32)
	// Attention: causal attention of q [n, heads·dim] over kv, dst [n, heads·valueDim].
	Attention(dst, q tensor.Tensor, kv KV, spans []Span, a AttentionArgs)
	// Gate: dst = act(gate)·up; without up, dst = act(gate). dst may be gate.
	Gate(dst, gate, up tensor.Tensor, act meta.Activation, limit float32)
	// Add: dst += scale · x.
	Add(dst, x tensor.Tensor, scale float32)
	// Gather: dst[i] = x[rows[i]].
	Gather(dst, x tensor.Tensor, rows []int32)
	// ScatterAdd: dst[rows[i]] += weights[i] · x[i], in the order of i.
	ScatterAdd(dst, x tensor.Tensor, rows []int32, weights []float32)
	// Scale: x = x·scale, then cap·tanh(x/cap) where cap > 0.
	Scale(x tensor.Tensor, scale, cap float32)
	// Route chooses a.TopK experts for each row of logits: the experts' numbers and
	// weights, row by row, best first. correction is absent or [experts].
	Route(experts []int32, weights []float32, logits, correction tensor.Tensor, a *meta.MoESpec)
}

// Selective is implemented by a Backend that does not multiply by weights of every format.
type Selective interface {
	Backend
	// Supports reports whether weights stored as m is can be operands. It reads no data of m.
	Supports(m Matrix) bool
}

// A Product is the operands of a Linear, or of a LinearRounded.
type Product struct {
	Dst, X  tensor.Tensor
	W       Matrix
	Bias    tensor.Tensor
	Rounded bool
	Role    Role // where Rounded
}

// Role is what the rows of a [Backend.LinearRounded] are. It decides the order of
// summation, so that many rows and few can each be summed in the way that is fast for
// them.
type Role uint8

// The roles.
const (
	Generated Role = iota // tokens that the model chose: few at a time
	Prompt                // tokens of a prompt: many at a time
)

// Memory is the memory of one device.
type Memory interface {
	// New allocates a tensor of zeros, aligned to 64 bytes; Free gives it back.
	New(dtype meta.DType, dims ...int) (tensor.Tensor, error)
	Free(t tensor.Tensor)
	// Copy copies the elements of src to dst, of the same dtype and shape, either of
	// which may be host memory. It is done when the call returns.
	Copy(dst, src tensor.Tensor) error
	// Sync waits for all operations and returns the first error since the last Sync.
	// A weight whose file was cut short while mapped is a *FaultError.
	Sync() error
	// Close releases threads and memory. The backend is not used afterwards.
	Close() error
}

// A Matrix is a weight as it is stored: Rows × Cols of some dtype, in the file's own
// order. [Matrix.CutRows] and [Matrix.CutColumns] are its views.
type Matrix struct {
	tensor.Tensor // [rows, cols], or [cols, rows] where Transposed
	Transposed    bool
	// RowStep takes every RowStep-th stored row (column, where Transposed), which is
	// how interleaved gates are read; 0 means 1. The view starts at the first.
	RowStep int
	// Quant is set where Data holds the codes of a quantised matrix: all of them, while
	// Dims are those of the view, which begins at Row and Col.
	Quant    *Quant
	Row, Col int
}

// OutRows is the number of rows of the logical matrix, which is the width of the result.
func (m Matrix) OutRows() int {
	n := m.Dims[0]
	if m.Transposed {
		n = m.Dims[1]
	}
	if m.RowStep > 1 {
		n = (n + m.RowStep - 1) / m.RowStep
	}
	return n
}

// InCols is the number of columns of the logical matrix, which is the width of the input.
func (m Matrix) InCols() int {
	if m.Transposed {
		return m.Dims[0]
	}
	return m.Dims[1]
}

// A Part is a piece of a parameter as a checkpoint stores it: a matrix, or a vector of
// rank 1, that fills rows Into of the parameter (of the slab, for one expert of a
// stacked parameter). A zero Into is all rows.
type Part struct {
	Matrix
	Into meta.RowRange
}

// KV is one layer's keys and values in pages.
type KV struct {
	// K and V are [pages, PageTokens, KVRow(dtype, kvHeads, dim)]; V may be a view of K.
	K, V       tensor.Tensor
	PageTokens int
	// Heads is kvHeads where a page has the tokens of one head after those of another, which a
	// generated token reads fastest; 0 where it has the heads of one token after those of
	// another. Int8 needs it.
	Heads int
}

// KVRow is the number of elements of a row of keys or values of dtype d. That of Int8 is of
// bytes: each head is a series of GGUF's blocks of q8_0, 32 signed codes behind a scale of
// float16, the last of which is filled up with zeros.
func KVRow(d meta.DType, heads, dim int) int {
	if d == meta.Int8 {
		blocks := (dim + meta.QuantQ8.BlockColumns() - 1) / meta.QuantQ8.BlockColumns()
		return heads * blocks * int(meta.QuantQ8.BlockBytes())
	}
	return heads * dim
}

// A Span is the rows of one sequence in a batch: Rows rows from First on, at positions
// Start, Start+1, …. Pages are the sequence's pages in order; they already hold the
// rows' own keys and values.
type Span struct {
	First, Rows int
	Start       int
	Pages       []int32
}

// AttentionArgs are what a layer fixes.
type AttentionArgs struct {
	Heads, KVHeads, Dim, ValueDim int
	Scale                         float32
	Window                        int           // 0: all
	Chunk                         int           // a position sees those from the last multiple of Chunk on; 0: all
	Softcap                       float32       // 0: none
	Sinks                         tensor.Tensor // [heads] or absent
	// Prompts says of each row of q whether it is a token of a prompt, where queries and
	// weights may be rounded to bfloat16, and keys and values that are stored in less than
	// float32: in an order of its own. nil: no row.
	Prompts []bool
}

// FaultError says that memory of a weight could not be read: the file behind a mapping
// was cut short or its device failed.
type FaultError struct{ Address uintptr }

func (e *FaultError) Error() string {
	return "backend: a mapped weight could not be read (its file was cut short or its disk failed)"
}
