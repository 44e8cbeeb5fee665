// Package backend is the interface between a model's rules and the arithmetic: the memory of one
// device and a dozen coarse operations on it, destination first.
//
// A [Backend] runs operations in the order of the calls. Like bufio.Writer it keeps the first
// error: later operations do nothing, and [Backend.Sync] returns the error and clears it. One
// goroutine uses a Backend at a time. Optional interfaces of the same values have gradients,
// recurrent layers and sparse attention. The package knows no module, no Kind and no checkpoint.
//
// Exactness. For one backend and variant, each element of a result is summed in one fixed order,
// whatever the number of rows in the call, their place among them, the threads, and whether the
// weights are aligned. All operations keep activations in float32, except [Backend.LinearRounded],
// and [Backend.Attention] for the rows of prompts. Their order of summation depends on the role of
// the rows too.
//
// backendtest holds the suite that every implementation passes.
package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Backend computes on one device. Activations are float32 matrices [rows, columns], one row per
// token. Every activation may have a row stride. dst may be an operand if the comment says so.
type Backend interface {
	Memory
	// Embed: dst[i] = scale · table[ids[i]]. ids are inside the table.
	Embed(dst tensor.Tensor, table Matrix, ids []int32, scale float32)
	// Norm: dst = norm(x) by a; weight and bias may be absent. dst may be x. If a.Dim is smaller
	// than the number of columns, each group of Dim columns (a head) is normalised by itself.
	Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec)
	// Linear: dst = x·Wᵀ + bias, dst [n, w.OutRows], x [n, w.InCols]. bias, a vector of w.OutRows,
	// may be absent, and may have a Stride for an interleaved gate.
	Linear(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor)
	// LinearRounded is Linear that may round x first: to the dtype of the weights, or for weights
	// in blocks of integers to blocks of 32 integers of eight bits. Each role has its own order of
	// summation. A backend that does not round calls Linear.
	LinearRounded(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, role Role)
	// Products computes each of ps in one operation, with the bits of Linear or LinearRounded. The
	// products must be independent. No result overlaps an operand or another result.
	Products(ps []Product)
	// Rope rotates each head of x [n, heads·dim] in place. cos and sin are [n, rot/2] with rot ≤
	// dim; channels from rot on do not change.
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
	// weights, row by row, best first, and then the a.Scored experts, whose logits are the last ones. correction is
	// absent or [experts] without those. Where a.Table is set, experts are operands, in their order.
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

// Role says what the rows of a [Backend.LinearRounded] are. It decides the order of summation, so
// that many rows and few rows each have the order that is fast for them.
type Role uint8

// The roles.
const (
	Generated Role = iota // tokens that the model chose: few at a time
	Prompt                // tokens of a prompt: many at a time
)

// Memory is the memory of one device.
type Memory interface {
	// New allocates a tensor of zeros, aligned to 64 bytes; Free frees it.
	New(dtype meta.DType, dims ...int) (tensor.Tensor, error)
	Free(t tensor.Tensor)
	// Copy copies the elements of src to dst, of the same dtype and shape, either of
	// which may be host memory. It is done when the call returns.
	Copy(dst, src tensor.Tensor) error
	// Sync waits for all operations and returns the first error since the last Sync. If the file of
	// a mapped weight was truncated, it is a *FaultError.
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
	// Quant is set if Data holds the codes of a quantised matrix. Data has the whole matrix; Dims
	// are those of the view, which begins at Row and Col.
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
	// Heads is kvHeads if a page has all tokens of one head, then those of the next, which
	// generated tokens read fastest. It is 0 if a page has all heads of one token, then those of
	// the next. Int8 needs kvHeads.
	Heads int
}

// KVRow is the number of elements of a row of keys or values of dtype d. Elements of Int8 are
// bytes: each head is a series of GGUF's blocks of q8_0, a float16 scale and 32 signed codes, and
// the last block is padded with zeros.
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

// AttentionArgs are the parameters of a layer.
type AttentionArgs struct {
	Heads, KVHeads, Dim, ValueDim int
	Scale                         float32
	Window                        int           // 0: all
	Chunk                         int           // a position sees those from the last multiple of Chunk on; 0: all
	Softcap                       float32       // 0: none
	Sinks                         tensor.Tensor // [heads] or absent
	// Slopes are multiplied, for each head, with the distance from the query's position to a key's,
	// which is negative, and added to the score (ALiBi). nil: none. Nothing is then rounded.
	Slopes []float32
	// RoundedSlopes replaces these biases by slope times the key's position, both and their product rounded to bfloat16,
	// and the product multiplied by Scale. There must be no Window and no Chunk.
	RoundedSlopes bool
	// Relative adds biases that depend on the query and on the distance. Nothing is then rounded.
	Relative Relative
	// Prompts says for each row of q whether it is a token of a prompt. Rows of prompts have an
	// order of summation of their own; their queries and weights may be rounded to bfloat16, and so
	// may keys and values that are stored in less than float32. nil means no row.
	Prompts []bool
}

// Relative is a bias for each distance, mixed by each query: with d the distance from the position of row i to a key's, the
// score of head h grows by the sum over r of States[i][h·rank + r] · Profiles[r][d], or by 0 where d is not below extent.
// Softcap must be 0.
type Relative struct {
	States   tensor.Tensor // [n, heads·rank], or absent
	Profiles tensor.Tensor // [rank, extent] or as many elements in a row
}

// Sizes returns rank and extent for so many heads. They are 0 if r is absent or its sizes do not fit.
func (r *Relative) Sizes(heads int) (rank, extent int) {
	if r.States.IsZero() || r.Profiles.IsZero() || r.States.Cols()%heads != 0 {
		return 0, 0
	}
	if rank = r.States.Cols() / heads; rank == 0 || r.Profiles.Elements()%rank != 0 {
		return 0, 0
	}
	return rank, r.Profiles.Elements() / rank
}

// FaultError says that memory of a weight could not be read: the mapped file was truncated or its
// device failed.
type FaultError struct{ Address uintptr }

func (e *FaultError) Error() string {
	return "backend: a mapped weight could not be read (its file was cut short or its disk failed)"
}
