package cpu

import (
	"sort"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels/quant"
)

// A product is one Linear in some order of summation. Its units are rows of the weight. Its tokens
// may have to be packed first, in units too; ready ends that phase.
type product interface {
	task
	// prepare plans for a number of threads.
	prepare(threads int) needs
	// take sets the memory for packed tokens.
	take(input []float32)
	// ready says that the tokens are packed.
	ready()
	base() *linear
	// lies returns the memory that a unit reads first, to be prefetched, or nil.
	weights(unit int) []byte
}

// needs are the memory and the units of a product.
type needs struct {
	input   int // floats of packed tokens
	packs   int // units that pack them; 0 for none
	units   int
	scratch int // floats of each thread
}

// products are the products of one operation. Calls reuse the values of each kind.
type products struct {
	list    []product
	numbers []int // of the products in list, among those of the call
	sources []source
	from    []int // the source of each product, or -1
	packing together
	rows    together
	one     [1]backend.Product
	choice  choice // of the product at hand, and its weight: they live here so that a call allocates nothing
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

// A source is tokens in the packing that some products need, from an offset of the input's memory
// on.
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
	packing quant.Packing // of ints and codes
}

const (
	byDots uint8 = iota
	byPairs
	byTiles
	byPanels
	bySplit
	bySmallBatch
	byInt8
	byRowBlocks
	byMinifloat
)

// single is Products of one.
func (b *Backend) single(p backend.Product) {
	b.products.one[0] = p
	b.Products(b.products.one[:])
}

// Products packs tokens once for all products that need the same packing. Then it distributes all
// rows of all weights over the threads: each gets a run of rows of each weight, as for a single
// product. If that needs more memory than is planned, it runs some products after the others.
func (b *Backend) Products(ps []backend.Product) {
	for len(ps) > 0 && !b.failed.Load() {
		n := b.some(ps)
		if n == 0 {
			b.halves(&ps[0])
			n = 1
		}
		ps = ps[n:]
	}
}

// halves runs a product whose packed tokens take more memory than is planned.
func (b *Backend) halves(p *backend.Product) {
	first, second := *p, *p
	rows := p.X.Rows()
	half := rows / 2
	first.Dst, first.X = p.Dst.Slice(0, half), p.X.Slice(0, half)
	second.Dst, second.X = p.Dst.Slice(half, rows), p.X.Slice(half, rows)
	b.single(first)
	b.single(second)
}

// some runs as many of the first products as fit into the planned memory, and returns how many. It runs
// none if the tokens of the first have to be divided.
func (b *Backend) some(ps []backend.Product) (n int) {
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
		op.list, op.numbers = append(op.list, op.of(l)), append(op.numbers, i)
		work += l.w.rows * l.w.cols * l.tokens
		packWork += l.tokens * l.w.cols
	}
	if n = len(ps); len(op.list) == 0 {
		return n
	}
	planned := b.planProducts()
	if len(op.list) < len(op.numbers) {
		n = op.numbers[len(op.list)]
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

// biasOf is the elements of p's bias.
func biasOf(p *backend.Product) int {
	if p.Bias.IsZero() {
		return 0
	}
	return p.Bias.Elements()
}

// withBiases is how many of the first products have biases that fit into the planned memory.
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
	op.list, op.numbers, op.sources, op.from = op.list[:0], op.numbers[:0], op.sources[:0], op.from[:0]
	op.packing.reset()
	op.rows.reset()
	op.rows.rows = true
	op.dots.used, op.bf16.used, op.panels.used, op.splitDots.used, op.smallBatches.used, op.int8.used, op.interleaved.used, op.minifloats.used, op.rowProducts.used = 0, 0, 0, 0, 0, 0, 0, 0, 0
}

// placeBiases makes room for all biases that may have to be widened.
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

// of makes the product of a kernel.
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
	case amxOneToken, amxInPlace, bf16Tiles, bf16FewTokens, pairDots:
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

// planProducts gives the products their memory. It shortens the list to those for whose packed tokens
// memory is planned: to none if the tokens of the first have to be divided.
func (b *Backend) planProducts() bool {
	op := &b.products
	threads := ceil(len(b.pool.workers), len(op.list))
	input, scratch := 0, 0
	for i, p := range op.list {
		n := p.prepare(threads)
		for limit, units := b.pool.workers[0].scratch.limit, threads; limit > 0 && units < mostUnits && workerFloats(p, n) > limit; {
			units = min(4*units, mostUnits)
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
		if p.inTiles() {
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

// find returns the number of the source that equals s except for its offset, or -1. It looks at the
// last few, because products with one input follow one another.
func (op *products) find(s source) int {
	for i := len(op.sources) - 1; i >= max(0, len(op.sources)-4); i-- {
		if s.at = op.sources[i].at; s == op.sources[i] {
			return i
		}
	}
	return -1
}

// A stock has values for reuse.
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

// together is some tasks as one, whose units follow one another in shares: the first share of
// the units of each, then the second of each, and so on, one for each thread.
type together struct {
	tasks  []product
	counts []int
	shares int
	rows   bool  // units are rows of weights
	starts []int // of share s of task i, at s·tasks + i
	units  int
}

func (t *together) reset() { t.tasks, t.counts = t.tasks[:0], t.counts[:0] }

func (t *together) add(p product, units int) {
	t.tasks, t.counts = append(t.tasks, p), append(t.counts, units)
}

// share divides the units into so many shares.
func (t *together) share(shares int) {
	t.shares, t.starts, t.units = shares, t.starts[:0], 0
	for s := range shares {
		for _, n := range t.counts {
			t.starts = append(t.starts, t.units)
			t.units += n*(s+1)/shares - n*s/shares
		}
	}
}

func (t *together) run(w *worker, unit int) {
	at := sort.SearchInts(t.starts, unit+1) - 1 // the last that begins here or before
	w.next = t.follows(at, unit+1)
	i, own := t.unit(at, unit)
	if p := t.tasks[i]; t.rows && p.base().w.isCoded() {
		w.runCoded(p, own)
		return
	}
	t.tasks[i].run(w, own)
}

// unit is the task of a unit of range at, and which of its own units it is.
func (t *together) unit(at, unit int) (task, own int) {
	s, i := at/len(t.tasks), at%len(t.tasks)
	return i, t.counts[i]*s/t.shares + unit - t.starts[at]
}

// follows is what a unit behind one of range at reads, where that is of the same share.
func (t *together) follows(at, unit int) []byte {
	s := at / len(t.tasks)
	for at++; at < len(t.starts) && t.starts[at] <= unit; at++ {
	}
	if at--; unit == t.units || at/len(t.tasks) != s {
		return nil
	}
	i, own := t.unit(at, unit)
	return t.tasks[i].weights(own)
}

// runAll runs the units of all tasks, whose steps are work together.
func (b *Backend) runAll(t *together, work int) {
	if len(t.tasks) > 0 {
		t.share(len(b.pool.workers))
		b.run(t, t.units, work)
	}
}
