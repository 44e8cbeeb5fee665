package cpu

import (
	"os"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/attention"
	"github.com/heftai/heft/internal/kernels/mat"
	"github.com/heftai/heft/internal/kernels/quant"
	"github.com/heftai/heft/meta"
)

// Scratch is the memory that operations need besides tensors, in floats. Products whose packed
// tokens or widened biases would exceed it run in several parts.
type Scratch struct {
	Input  int // packed tokens
	Worker int // for each thread
	Vector int // for each operand that is widened
	Bias   int // for all biases of an operation
}

// The largest sizes of packed tokens, in floats. A product with more is computed in parts. Each
// part reads and packs the weight again, which a few hundred tokens amortise.
const (
	maxInput      = 8 << 20
	maxTightInput = 1 << 20 // for plans with the minimum of scratch memory
)

// manyThreads is a number of threads for which prepare makes the smallest units that kernels can
// compute.
const manyThreads = 1 << 20

// biases is the number of biases, as long as the longest one, that an operation may widen at
// once.
const biases = 4

// A Sizer computes the scratch memory of work with a kernel variant. It caches the results for
// products, because plans ask about the same products in passes of many sizes. It is not safe for
// concurrent use.
type Sizer struct {
	set   *kernels.Set
	known map[productKey]Scratch
}

// NewSizer returns a Sizer for a variant, named as in Options. It returns an error if the
// processor does not support the variant.
func NewSizer(variant string) (*Sizer, error) {
	set, err := kernels.Select(variant)
	if err != nil {
		return nil, err
	}
	return &Sizer{set: set, known: map[productKey]Scratch{}}, nil
}

// Scratch returns the largest scratch memory that w needs on the given number of threads. If
// least is set, it returns the minimum: operations then have smaller units and more parts.
func (z *Sizer) Scratch(threads int, w *backend.Work, least bool) Scratch {
	s := Scratch{Vector: w.Vector, Bias: biases * w.Vector}
	s.Worker = max(w.Columns, quant.UnpackScratch, quant.BlockColumns, w.Taps*max(convChannels, poolChannels))
	for i := range w.Attention {
		s.Worker = max(s.Worker, attentionScratch(z.set, &w.Attention[i], w.KVDType))
	}
	if least {
		threads = manyThreads
	}
	for i := range w.Products {
		z.addProduct(&s, &w.Products[i], threads)
	}
	s.Input = min(s.Input, maxInput)
	if least {
		s.Input = min(s.Input, maxTightInput)
	}
	return s
}

// Bytes returns the size of s for the given number of threads, in whole pages.
func (s Scratch) Bytes(threads int) int64 {
	page := os.Getpagesize()
	size := func(floats int) int64 { return int64(hostmem.Up(4*floats, page)) }
	return int64(threads)*size(s.Worker) + size(s.Input) + 3*size(s.Vector) + size(max(s.Bias, s.Vector))
}

// LimitScratch limits operations to s, and frees memory beyond it.
func (b *Backend) LimitScratch(s Scratch) {
	limit := func(m *scratch, floats int) {
		if m.limit = floats; len(m.v) > floats {
			if err := m.free(); err != nil {
				b.fail("scratch: %w", err)
			}
		}
	}
	limit(&b.input, s.Input)
	for i := range b.vectors {
		limit(&b.vectors[i], s.Vector)
	}
	limit(&b.vectors[slotBias], max(s.Bias, s.Vector))
	for _, w := range b.pool.workers {
		limit(&w.scratch, s.Worker)
	}
}

// scratch is memory that grows to the largest requested size.
type scratch struct {
	block *hostmem.Block
	v     []float32
	limit int // planned size in floats; 0 if there is no plan
}

func (s *scratch) grow(l *hostmem.Ledger, n int) error {
	if n <= len(s.v) {
		return nil
	}
	// Double the size, because the scores of a sequence grow by one in each pass.
	size := 2 * len(s.v)
	if s.limit > 0 {
		size = min(size, s.limit)
	}
	size = max(size, n)
	if err := s.free(); err != nil {
		return err
	}
	block, err := hostmem.Alloc(l, hostmem.Activations, 4*size)
	if err != nil {
		return err
	}
	s.block = block
	s.v = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(block.Bytes()))), size)
	return nil
}

func (s *scratch) free() error {
	if s.block == nil {
		return nil
	}
	block := s.block
	s.block, s.v = nil, nil
	return block.Release()
}

// reserve gives every worker n floats of scratch memory.
func (b *Backend) reserve(n int) bool {
	for _, w := range b.pool.workers {
		if err := w.scratch.grow(b.ledger, n); err != nil {
			b.fail("scratch: %w", err)
			return false
		}
	}
	return true
}

// productKey distinguishes products that may need different scratch memory.
type productKey struct {
	dtype           meta.DType
	format          meta.QuantFormat
	rows, columns   int // that share a scale
	dims            [2]int
	transposed      bool
	step, height    int
	threads, tokens int
}

// keyOf returns the key of products with m, without their tokens.
func keyOf(m *backend.Matrix, threads int) productKey {
	k := productKey{dtype: m.DType, dims: [2]int{m.Dims[0], m.Dims[1]}, transposed: m.Transposed, step: m.RowStep, threads: threads}
	if q := m.Quant; q != nil {
		k.format, k.rows, k.columns, k.height = q.Format, q.Rows, q.Columns, q.Height
	}
	return k
}

// workerFloats returns the scratch memory per thread that p needs.
func workerFloats(p product, n needs) int {
	decoded := decodedFloats(p)
	if decoded == 0 {
		return n.scratch
	}
	return (n.scratch+15)&^15 + decoded
}

// addProduct makes s large enough for p and for fewer tokens.
func (z *Sizer) addProduct(s *Scratch, p *backend.ProductWork, threads int) {
	key := keyOf(&p.Weight, threads)
	for _, key.tokens = range tokenCounts(p) {
		known, ok := z.known[key]
		if !ok {
			known = z.product(&p.Weight, key.tokens, threads)
			z.known[key] = known
		}
		s.Worker, s.Input = max(s.Worker, known.Worker), max(s.Input, known.Input)
	}
}

// product returns the scratch memory of products with the given number of tokens, in all roles
// and modes.
func (z *Sizer) product(weight *backend.Matrix, tokens, threads int) (s Scratch) {
	for _, m := range weightsLike(weight) {
		for _, role := range []backend.Role{backend.Generated, backend.Prompt} {
			for _, mode := range []mode{exact, rounded} {
				s.add(z.set, m, tokens, threads, role, mode)
			}
		}
	}
	return s
}

func (s *Scratch) add(set *kernels.Set, m *matrix, tokens, threads int, role backend.Role, mode mode) {
	l := linear{set: set, w: *m, tokens: tokens}
	c := choice{set: set, w: &l.w, tokens: tokens, mode: mode, role: role}
	if l.kernel = c.kernel(); l.kernel == noKernel {
		return
	}
	var op products
	product := op.of(l)
	n := product.prepare(threads)
	s.Worker = max(s.Worker, workerFloats(product, n))
	if n.packs > 0 {
		s.Input = max(s.Input, (n.input+15)&^15)
	}
}

// tokenCounts returns the numbers of tokens at which the memory of p may be largest: those at
// which the kernel changes, and the largest.
func tokenCounts(p *backend.ProductWork) []int {
	var out []int
	for n := 1; n < p.Tokens; n *= 2 {
		out = append(out, n)
		if n > 2 && n+1 < p.Tokens {
			out = append(out, n+1)
		}
		if half := n + n/2; n > 1 && half < p.Tokens && half != n+1 {
			out = append(out, half)
		}
	}
	out = append(out, p.Tokens)
	if p.Together > p.Tokens {
		out = append(out, p.Together)
	}
	return out
}

// weightsLike returns descriptions of a weight without data: one for the kernels that need no
// index, and one for the others.
func weightsLike(m *backend.Matrix) []*matrix {
	out := &matrix{rows: m.OutRows(), cols: m.InCols(), transposed: m.Transposed, step: max(m.RowStep, 1)}
	q := m.Quant
	if q == nil {
		f, ok := format(m.DType)
		if !ok {
			return nil
		}
		out.Weights = mat.Weights{Stride: m.Dims[1] * f.Size(), Format: f}
		if !m.Transposed {
			out.Stride *= out.step
			out.step = 1
		}
		return []*matrix{out}
	}
	if out.likeCoded(q) {
		return []*matrix{out}
	}
	p := &out.packed
	var ok bool
	if p.Packing, ok = quant.Named(q.Format.String()); !ok {
		return nil
	}
	p.Width, p.Height, p.Rows, p.Columns = q.Width, q.Height, max(q.Rows, 1), max(q.Columns, 1)
	p.ZeroWords = q.ZeroWords
	if p.Round, ok = format(meta.BFloat16); q.Format.Row().FloatScales() {
		p.ScaleFormat, ok = format(q.ScaleDType)
	}
	if !ok {
		p.ScaleFormat = mat.Float32
	}
	indexed := *out
	indexed.packed.Index = make([]byte, 4)
	return []*matrix{out, &indexed}
}

// attentionScratch returns the largest scratch memory per thread for the attention of a layer.
func attentionScratch(set *kernels.Set, w *backend.AttentionWork, kv meta.DType) int {
	group, width := w.Heads/max(w.KVHeads, 1), max(w.Dim, w.ValueDim)
	wide := 0
	if kv == meta.Int8 {
		wide = keyBlock * wholeBlocks(max(width, w.Dim+w.Index.Dim, w.Blocks.Dim))
	}
	n, context := 0, w.Context
	if w.Index.Heads > 0 {
		rate := max(w.Rate, 1)
		if w.Blocks.Tail {
			rate = w.Blocks.Size
		}
		n = context/rate + keyBlock*(2*w.Index.Dim+w.Index.Heads) + wide
	}
	if x := w.Blocks; x.Count > 0 {
		seen := x.Most()
		n = max(n, x.Heads*ceil(context, x.Size)+keyBlock*(x.Dim+x.Heads), group*seen+keyBlock*w.Dim) + wide
		context = min(context, seen)
	}
	if w.Rate > 0 {
		most := context / w.Rate
		if w.Count > 0 {
			most = min(most, w.Count)
		}
		return max(n, w.Heads*(most+min(w.Window, context))+2*keyBlock*w.Dim+wide)
	}
	if w.Count > 0 {
		n = max(n, w.Heads*w.Count+2*keyBlock*width+wide)
		context = min(context, w.Count)
	}
	queries := min(tileRows, w.Tokens*group)
	tile := max(min(min(group, queries)*context, mostTile), min(queries*context, tileScores), context)
	n = max(n, tile+queries*(w.Dim+w.ValueDim+1)+keyBlock*w.Dim+wide)
	op := attentionOp{a: backend.AttentionArgs{Heads: w.Heads, KVHeads: w.KVHeads, Dim: w.Dim, ValueDim: w.ValueDim}, group: group, pitch: context}
	rows := padded(min(group, tileRows))
	n = max(n, max(min(w.KVHeads*rows*op.pagedPitch(), mostScores), min(rows*op.pagedPitch(), mostTile), op.pagedPitch())+
		min(w.KVHeads*rows, mostScores/attention.PagedTokens)*(wholeBlocks(w.Dim)+wholeBlocks(w.ValueDim)+1))
	if bf16(set) {
		n = max(n, op.layout(new(tileScratch), nil, ceil(min(max(op.roundedQueries(), 1), w.Tokens*group), couple)))
	}
	return n
}
