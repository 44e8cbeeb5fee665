// Package backend is the interface between a model's rules and the arithmetic: the memory of one
// device and a dozen coarse operations on it. The destination is the first argument.
//
// A [Backend] runs operations in the order of the calls. Like bufio.Writer it records the first
// error: later operations do nothing, and [Backend.Sync] returns the error and clears it. A
// Backend is not safe for concurrent use. Optional interfaces of a Backend provide gradients,
// recurrent layers and sparse attention. The package does not depend on modules, Kinds or
// checkpoints.
//
// Exactness. For one backend and variant, each element of a result is summed in one fixed order.
// The order does not depend on the number of rows in the call, their position among them, the
// threads, or the alignment of weights. All operations keep activations in float32, except
// [Backend.LinearRounded], and [Backend.Attention] for the rows of prompts. The order of
// summation of these two also depends on the role of the rows.
//
// backendtest has the suite that every implementation must pass.
package backend

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Backend computes on one device. Activations are float32 matrices [rows, columns], one row per
// token. Every activation may have a row stride. dst may be an operand only if the comment says
// so.
type Backend interface {
	Memory
	// Embed: dst[i] = scale · table[ids[i]]. ids must be inside the table.
	Embed(dst tensor.Tensor, table Matrix, ids []int32, scale float32)
	// Norm: dst = norm(x) with the parameters a; weight and bias may be absent. dst may be x. If
	// a.Dim is smaller than the number of columns, each group of Dim columns (a head) is
	// normalised by itself.
	Norm(dst, x, weight, bias tensor.Tensor, a meta.NormSpec)
	// Linear: dst = x·Wᵀ + bias, dst [n, w.OutRows], x [n, w.InCols]. bias, a vector of w.OutRows,
	// may be absent, and may have a Stride for an interleaved gate.
	Linear(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor)
	// LinearRounded is Linear that may round x first: to the dtype of the weights, or to blocks
	// of 32 8-bit integers for weights in blocks of integers. Each role has its own order of
	// summation. A backend that does not round calls Linear.
	LinearRounded(dst, x tensor.Tensor, w Matrix, bias tensor.Tensor, role Role)
	// Products computes all of ps in one operation, with the bits of Linear or LinearRounded. The
	// products must be independent: no result may overlap an operand or another result.
	Products(ps []Product)
	// Rope rotates each head of x [n, heads·dim] in place. cos and sin are [n, rot/2] with rot ≤
	// dim; channels from rot on do not change.
	Rope(x tensor.Tensor, dim int, cos, sin tensor.Tensor, interleaved bool)
	// StoreKV writes row i of k and v into slot slots[i] of kv. A slot is page·PageTokens +
	// offset.
	StoreKV(kv KV, k, v tensor.Tensor, slots []int32)
	// Attention computes causal attention of q [n, heads·dim] over kv into dst [n,
	// heads·valueDim].
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
	// Route selects a.TopK experts for each row of logits: their numbers and weights, row by row,
	// best first. They are followed by the a.Scored experts, whose logits are the last ones.
	// correction is absent, or [experts] without the scored ones. If a.Table is set, experts is
	// an input, whose order is kept.
	Route(experts []int32, weights []float32, logits, correction tensor.Tensor, a *meta.MoESpec)
}

// Selective is implemented by a Backend that does not support weights of every format.
type Selective interface {
	Backend
	// Supports reports whether weights stored like m can be operands. It reads no data of m.
	Supports(m Matrix) bool
}

// A Product holds the operands of a Linear or a LinearRounded.
type Product struct {
	Dst, X  tensor.Tensor
	W       Matrix
	Bias    tensor.Tensor
	Rounded bool
	Role    Role // used if Rounded is set
	// Unread says that nothing reads Dst. A Recorder then records the product and does not compute it.
	Unread bool
}

// Role says what the rows of a [Backend.LinearRounded] are. It determines the order of summation,
// so that many rows and few rows each have an order that is fast for them.
type Role uint8

// The roles.
const (
	Generated Role = iota // generated tokens: few at a time
	Prompt                // tokens of a prompt: many at a time
)

// Memory is the memory of one device.
type Memory interface {
	// New allocates a tensor of zeros, aligned to 64 bytes. Free frees it.
	New(dtype meta.DType, dims ...int) (tensor.Tensor, error)
	Free(t tensor.Tensor)
	// Copy copies the elements of src to dst, which has the same dtype and shape. Either may be
	// host memory. The copy is complete when Copy returns.
	Copy(dst, src tensor.Tensor) error
	// Sync waits for all operations and returns the first error since the last Sync. If the file
	// of a mapped weight was truncated, it is a *FaultError.
	Sync() error
	// Close releases threads and memory. The backend must not be used afterwards.
	Close() error
}

// A Matrix is a weight as it is stored: Rows × Cols of some dtype, in the file's order.
// [Matrix.CutRows] and [Matrix.CutColumns] return views of it.
type Matrix struct {
	tensor.Tensor // [rows, cols], or [cols, rows] if Transposed
	Transposed    bool
	// RowStep selects every RowStep-th stored row (column if Transposed), to read interleaved
	// gates; 0 means 1. The view starts at the first.
	RowStep int
	// Quant is set if Data holds the codes of a quantised matrix. Data has the whole matrix. Dims
	// are those of the view, which begins at Row and Col.
	Quant    *Quant
	Row, Col int
}

// OutRows returns the number of rows of the logical matrix, which is the width of the result.
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

// InCols returns the number of columns of the logical matrix, which is the width of the input.
func (m Matrix) InCols() int {
	if m.Transposed {
		return m.Dims[0]
	}
	return m.Dims[1]
}

// A Part is a piece of a parameter as a checkpoint stores it: a matrix, or a vector of rank 1,
// that fills rows Into of the parameter (of the slab, for one expert of a stacked parameter). A
// zero Into means all rows.
type Part struct {
	Matrix
	Into meta.RowRange
}

// KV holds one layer's keys and values in pages.
type KV struct {
	// K and V are [pages, PageTokens, KVRow(dtype, kvHeads, dim)]; V may be a view of K.
	K, V       tensor.Tensor
	PageTokens int
	// Heads is kvHeads if a page stores all tokens of one head, then those of the next, which is
	// the fastest order for generated tokens. It is 0 if a page stores all heads of one token,
	// then those of the next. Int8 requires kvHeads.
	Heads int
}

// KVRow returns the number of elements in a row of keys or values of dtype d. Elements of Int8
// are bytes: each head is a series of GGUF's q8_0 blocks, a float16 scale and 32 signed codes
// each. The last block is padded with zeros.
func KVRow(d meta.DType, heads, dim int) int {
	if d == meta.Int8 {
		blocks := (dim + meta.QuantQ8.BlockColumns() - 1) / meta.QuantQ8.BlockColumns()
		return heads * blocks * int(meta.QuantQ8.BlockBytes())
	}
	return heads * dim
}

// A Span is the rows of one sequence in a batch: Rows rows from First on, at positions Start,
// Start+1, …. Pages are the sequence's pages in order. They already hold the keys and values of
// these rows.
type Span struct {
	First, Rows int
	Start       int
	Pages       []int32
}

// AttentionArgs holds the parameters of a layer.
type AttentionArgs struct {
	Heads, KVHeads, Dim, ValueDim int
	Scale                         float32
	Window                        int           // 0: all
	Chunk                         int           // a position attends to those from the last multiple of Chunk on; 0: all
	Softcap                       float32       // 0: none
	Sinks                         tensor.Tensor // [heads] or absent
	// Slopes are ALiBi slopes. For each head, the slope times the distance from the query's
	// position to a key's, which is negative, is added to the score. nil means none. With slopes
	// nothing is rounded.
	Slopes []float32
	// RoundedSlopes replaces these biases by Scale times the slope times the key's position. The
	// slope, the position and their product are rounded to bfloat16. There must be no Window and
	// no Chunk.
	RoundedSlopes bool
	// Relative adds biases that depend on the query and on the distance. With it nothing is
	// rounded.
	Relative Relative
	// Prompts reports for each row of q whether it is a prompt token. Rows of prompts have their
	// own order of summation. Their queries and weights may be rounded to bfloat16, and so may
	// keys and values that are stored in less than float32. nil means that no row is.
	Prompts []bool
}

// Relative is a bias for each distance, mixed by each query. With d the distance from the
// position of row i to a key's, the sum over r of States[i][h·rank + r] · Profiles[r][d] is added
// to the score of head h, or 0 if d is not below extent. Softcap must be 0.
type Relative struct {
	States   tensor.Tensor // [n, heads·rank], or absent
	Profiles tensor.Tensor // [rank, extent], or a vector with as many elements
}

// Sizes returns rank and extent for the given number of heads. They are 0 if r is absent or its
// sizes do not match.
func (r *Relative) Sizes(heads int) (rank, extent int) {
	if r.States.IsZero() || r.Profiles.IsZero() || r.States.Cols()%heads != 0 {
		return 0, 0
	}
	if rank = r.States.Cols() / heads; rank == 0 || r.Profiles.Elements()%rank != 0 {
		return 0, 0
	}
	return rank, r.Profiles.Elements() / rank
}

// FaultError reports that memory of a weight could not be read: the mapped file was truncated or
// its device failed.
type FaultError struct{ Address uintptr }

func (e *FaultError) Error() string {
	return "backend: a mapped weight could not be read (its file was cut short or its disk failed)"
}
