package cpu

import (
	"sort"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A product is one Linear with a fixed order of summation. Its units are rows of the weight. Some
// kernels need packed tokens: the first phase then packs them, also in units, until ready is
// called.
type product interface {
	task
	// prepare divides the work into units for a number of threads.
	prepare(threads int) needs
	// take sets the memory for packed tokens.
	take(input []float32)
	// ready is called when the tokens are packed.
	ready()
	base() *linear
	// weights returns the memory that a unit reads first, so that it can be prefetched, or nil.
	weights(unit int) []byte
}

// needs describes the memory and the units of a product.
type needs struct {
	input   int // floats of packed tokens
	packs   int // number of units that pack them, or 0
	units   int
	scratch int // floats for each thread
}

// products are the products of one operation. They are allocated once and reused by later operations.
type products struct {
	list    []product
	places  []int // the index of each product of list among the products of the call
	sources []source
	from    []int     // the source of each product, or -1
	packing taskGroup // units that pack tokens
	rows    taskGroup // units of rows of weights
	one     [1]backend.Product
	choice  choice // the current product and its weight; kept here so that a call does not allocate
	weight  matrix

	dots         stock[linear]
	bf16         stock[bf16Product]
	panels       stock[panelProduct]
	splitDots    stock[splitDot]
	smallBatches stock[smallBatch]
	int8         stock[int8Product]
	rowProducts  stock[rowsProduct]
	interleaved  stock[interleaved]
	minifloats   stock[minifloat]
}

// A source is a set of tokens, packed once for all products that need the same packing. It begins
// at offset at of the backend's input memory.
type source struct {
	kind   productKind
	first  *float32
	stride int
	tokens int
	cols   int
	needs  needs
	at     int
}

// productKind distinguishes products by the packing of their tokens.
type productKind struct {
	order   uint8
	packing quant.Packing // for integer products and minifloats
}

const (
	byDots uint8 = iota
	byPairs
	byTiles
	byTileSteps
	byPanels
	bySplit
	bySmallBatch
	byInt8
	byRowBlocks
	byMinifloat
)

// single runs one product.
func (b *Backend) single(p backend.Product) {
	b.products.one[0] = p
	b.Products(b.products.one[:])
}

// Products packs tokens once for all products that need the same packing. Then it distributes all
// rows of all weights over the threads: each gets a run of rows of each weight, as for a single
// product. If that needs more memory than planned, it runs some products after the others.
func (b *Backend) Products(ps []backend.Product) {
	for len(ps) > 0 && !b.failed.Load() {
		n := b.runFitting(ps)
		if n == 0 {
			b.splitTokens(&ps[0])
			n = 1
		}
		ps = ps[n:]
	}
}

// splitTokens runs a product in two halves of its tokens, because the packed tokens exceed the
// planned memory.
func (b *Backend) splitTokens(p *backend.Product) {
	first, second := *p, *p
	rows := p.X.Rows()
	half := rows / 2
	first.Dst, first.X = p.Dst.Slice(0, half), p.X.Slice(0, half)
	second.Dst, second.X = p.Dst.Slice(half, rows), p.X.Slice(half, rows)
	b.single(first)
	b.single(second)
}

// runFitting runs as many of the first products as fit into the planned memory, and returns their
// number. It returns 0 if the packed tokens of the first product do not fit.
func (b *Backend) runFitting(ps []backend.Product) (n int) {
	op := &b.products
	op.reset()
	if ps = ps[:b.withBiases(ps)]; !b.placeBiases(ps) {
		return len(ps)
	}
	place, work, packWork := 0, 0, 0
	for i := range ps {
		l, ok := b.linearAt(&ps[i], place)
		if !ok {
			if b.failed.Load() {
				return len(ps)
			}
			continue
		}
		place += biasOf(&ps[i])
		op.weight = l.w
		op.choice = choice{set: b.set, w: &op.weight, tokens: l.tokens, mode: modeOf(&ps[i]), role: ps[i].Role}
		if l.kernel = op.choice.kernel(); l.kernel == noKernel {
			b.fail("linear: no kernel for a weight of %d × %d", l.w.rows, l.w.cols)
			return len(ps)
		}
		op.list, op.places = append(op.list, op.of(l)), append(op.places, i)
		work += l.w.rows * l.w.cols * l.tokens
		packWork += l.tokens * l.w.cols
	}
	if n = len(ps); len(op.list) == 0 {
		return n
	}
	planned := b.planProducts()
	if len(op.list) < len(op.places) {
		n = op.places[len(op.list)]
	}
	if len(op.list) == 0 || !planned {
		return n
	}
	b.runAll(&op.packing, packWork)
	for _, p := range op.list {
		p.ready()
	}
	b.runAll(&op.rows, work)
	return n
}

// biasOf returns the number of elements of p's bias.
func biasOf(p *backend.Product) int {
	if p.Bias.IsZero() {
		return 0
	}
	return p.Bias.Elements()
}

// withBiases returns the number of first products whose biases fit into the planned memory.
func (b *Backend) withBiases(ps []backend.Product) int {
	limit, n := b.vectors[slotBias].limit, 0
	for i := range ps {
		if n += biasOf(&ps[i]); limit > 0 && n > limit && i > 0 {
			return i
		}
	}
	return len(ps)
}

func (op *products) reset() {
	op.list, op.places, op.sources, op.from = op.list[:0], op.places[:0], op.sources[:0], op.from[:0]
	op.packing.reset()
	op.rows.reset()
	op.rows.rows = true
	op.dots.used, op.bf16.used, op.panels.used, op.splitDots.used, op.smallBatches.used, op.int8.used, op.interleaved.used, op.minifloats.used, op.rowProducts.used = 0, 0, 0, 0, 0, 0, 0, 0, 0
}

// placeBiases allocates memory for all biases that may have to be widened.
func (b *Backend) placeBiases(ps []backend.Product) bool {
	n := 0
	for i := range ps {
		n += biasOf(&ps[i])
	}
	if err := b.vectors[slotBias].grow(b.ledger, n); err != nil {
		b.fail("linear: %w", err)
		return false
	}
	return true
}

// of returns the product of a kernel.
func (op *products) of(l linear) product {
	switch l.kernel {
	case interleavedFloats:
		x := op.interleaved.next()
		*x = interleaved{linear: l}
		return x
	case minifloatCodes:
		x := op.minifloats.next()
		*x = minifloat{linear: l}
		return x
	case interleavedInt8:
		x := op.int8.next()
		*x = int8Product{linear: l}
		return x
	case rowsInt8:
		x := op.rowProducts.next()
		*x = rowsProduct{linear: l}
		return x
	case amxOneToken, amxInPlace, amxSteps, bf16Tiles, bf16FewTokens, pairDots:
		x := op.bf16.next()
		*x = bf16Product{linear: l}
		return x
	case smallBatches:
		x := op.smallBatches.next()
		*x = smallBatch{linear: l}
		return x
	case panelSums:
		x := op.panels.next()
		*x = panelProduct{linear: l}
		return x
	case splitDots:
		x := op.splitDots.next()
		*x = splitDot{linear: l}
		return x
	}
	x := op.dots.next()
	*x = l
	return x
}

// planProducts assigns memory to the products. It drops products from the end of the list whose
// packed tokens exceed the planned memory, and leaves none if those of the first do. It returns
// false if memory cannot be allocated.
func (b *Backend) planProducts() bool {
	op := &b.products
	threads := ceil(len(b.pool.workers), len(op.list))
	input, scratch := 0, 0
	for i, p := range op.list {
		n := p.prepare(threads)
		for limit, units := b.pool.workers[0].scratch.limit, threads; limit > 0 && units < manyThreads && workerFloats(p, n) > limit; {
			units = min(4*units, manyThreads)
			n = p.prepare(units)
		}
		from := -1
		if s := sourceOf(p, n); n.packs > 0 {
			if from = op.find(s); from < 0 {
				from, s.at = len(op.sources), input
				size := (n.input + 15) &^ 15
				if limit := b.input.limit; limit > 0 && input+size > limit && (i > 0 || s.tokens > 1) {
					op.list = op.list[:i]
					break
				}
				op.sources = append(op.sources, s)
				op.packing.add(p, n.packs)
				input += size
			}
		}
		op.rows.add(p, n.units)
		p.base().decodedAt = (n.scratch + 15) &^ 15
		scratch = max(scratch, workerFloats(p, n))
		op.from = append(op.from, from)
	}
	if err := b.input.grow(b.ledger, input); err != nil {
		b.fail("linear: %w", err)
		return false
	}
	for i, p := range op.list {
		if from := op.from[i]; from >= 0 {
			s := &op.sources[from]
			p.take(b.input.v[s.at:][:s.needs.input])
		}
	}
	return b.reserve(scratch)
}

// sourceOf returns the source that p packs.
func sourceOf(p product, n needs) source {
	l := p.base()
	s := source{stride: l.x.Stride, tokens: l.tokens, cols: l.w.cols, needs: needs{input: n.input, packs: n.packs}}
	if len(l.x.V) > 0 {
		s.first = &l.x.V[0]
	}
	switch p := p.(type) {
	case *bf16Product:
		s.kind.order = byPairs
		switch {
		case p.kernel == amxSteps:
			s.kind.order = byTileSteps
		case p.inTiles():
			s.kind.order = byTiles
		}
	case *panelProduct:
		s.kind.order = byPanels
	case *splitDot:
		s.kind.order = bySplit
	case *smallBatch:
		s.kind.order = bySmallBatch
	case *int8Product:
		s.kind = productKind{byInt8, l.w.packed.Packing}
	case *rowsProduct: // one layout for all packings
		s.kind.order = byRowBlocks
	case *minifloat:
		s.kind = productKind{byMinifloat, l.w.packed.Packing}
	}
	return s
}

// find returns the index of the source that equals s except for its offset, or -1. It checks only
// the last few, because products with one input follow one another.
func (op *products) find(s source) int {
	for i := len(op.sources) - 1; i >= max(0, len(op.sources)-4); i-- {
		if s.at = op.sources[i].at; s == op.sources[i] {
			return i
		}
	}
	return -1
}

// A stock holds values for reuse.
type stock[T any] struct {
	all  []*T
	used int
}

func (s *stock[T]) next() *T {
	if s.used == len(s.all) {
		s.all = append(s.all, new(T))
	}
	s.used++
	return s.all[s.used-1]
}

// A taskGroup runs several tasks as one. It divides the units of each task into equal shares, one for each thread.
// The units of the group are the first shares of all tasks, then the second shares of all tasks, and so on, so that
// a thread gets its part of every task.
type taskGroup struct {
	tasks  []product
	counts []int // number of units by task
	shares int
	rows   bool  // units are rows of weights
	starts []int // starts[s·len(tasks)+i] is the first unit of share s of task i
	units  int
}

func (t *taskGroup) reset() { t.tasks, t.counts = t.tasks[:0], t.counts[:0] }

func (t *taskGroup) add(p product, units int) {
	t.tasks, t.counts = append(t.tasks, p), append(t.counts, units)
}

// share divides the units of each task into shares.
func (t *taskGroup) share(shares int) {
	t.shares, t.starts, t.units = shares, t.starts[:0], 0
	for s := range shares {
		for _, n := range t.counts {
			t.starts = append(t.starts, t.units)
			t.units += n*(s+1)/shares - n*s/shares
		}
	}
}

func (t *taskGroup) run(w *worker, unit int) {
	at := sort.SearchInts(t.starts, unit+1) - 1 // the last that begins here or before
	w.next = t.nextWeights(at, unit+1)
	i, own := t.locate(at, unit)
	if p := t.tasks[i]; t.rows && p.base().w.isCoded() {
		w.runCoded(p, own)
		return
	}
	t.tasks[i].run(w, own)
}

// locate returns the task that a unit belongs to, and the unit's number within that task. at is the index in starts of
// the share that has the unit.
func (t *taskGroup) locate(at, unit int) (task, own int) {
	s, i := at/len(t.tasks), at%len(t.tasks)
	return i, t.counts[i]*s/t.shares + unit - t.starts[at]
}

// nextWeights returns the weights that unit reads first, or nil if it is not in the same share as its predecessor, which
// is in the share at of starts. A worker prefetches them while it computes the predecessor.
func (t *taskGroup) nextWeights(at, unit int) []byte {
	s := at / len(t.tasks)
	for at++; at < len(t.starts) && t.starts[at] <= unit; at++ {
	}
	if at--; unit == t.units || at/len(t.tasks) != s {
		return nil
	}
	i, own := t.locate(at, unit)
	return t.tasks[i].weights(own)
}

// runAll runs the units of all tasks. work is the number of their steps, as for run.
func (b *Backend) runAll(t *taskGroup, work int) {
	if len(t.tasks) > 0 {
		t.share(len(b.pool.workers))
		b.run(t, t.units, work)
	}
}
