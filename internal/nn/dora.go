package nn

import (
	"fmt"
	"math"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// dora is the DoRA part of a pair. With V = W + scale·b·a and the norms ‖V‖ of its rows, the
// linear layer becomes m/‖V‖ ∘ (V·x). The update of W·x is therefore gain ∘ (V·x) +
// scale·b·(a·x), where gain = m/‖V‖ − 1.
type dora struct {
	gain tensor.Tensor // [1, out], of an adapter that is not trained
	// While the adapter is trained, each pass computes the gain. ‖V‖ has no gradient.
	magnitude backend.Matrix // [1, out]
	squares   []float64      // squared norms of the rows of W
}

// Squares returns the squared norm of each row of the weight of a pair's target. pieces are the
// pieces of the weight. It computes on b.
func Squares(b backend.Backend, pieces []backend.Part, t *lora.Target) ([]float64, error) {
	out := make([]float64, t.Out)
	for i := range pieces {
		if err := addSquares(b, &pieces[i], t, out); err != nil {
			return nil, fmt.Errorf("nn: %s: %w", t.Path, err)
		}
	}
	return out, nil
}

// squareRows is the number of rows whose values addSquares reads at a time.
const squareRows = 32

// addSquares adds the squares of one piece to out.
func addSquares(b backend.Backend, p *backend.Part, t *lora.Target, out []float64) error {
	m := p.Matrix
	byColumns := m.Transposed != t.Transposed // the columns as stored are rows of the layer
	m.Transposed = false
	rows, cols, first := m.Rows(), m.Cols(), 0
	if !p.Into.IsAll() {
		first = p.Into.Begin
	}
	n := rows
	if byColumns {
		n = cols
	}
	if first+n > len(out) {
		return fmt.Errorf("a piece of %d rows from row %d on, want at most %d rows", n, first, len(out))
	}
	memory, err := b.New(meta.Float32, min(squareRows, rows), cols)
	if err != nil {
		return err
	}
	defer b.Free(memory)
	ids := make([]int32, 0, squareRows)
	for begin := 0; begin < rows; begin += squareRows {
		ids = ids[:0]
		for i := begin; i < min(begin+squareRows, rows); i++ {
			ids = append(ids, int32(i))
		}
		values := memory.Slice(0, len(ids))
		b.Embed(values, m, ids, 1)
		if err := b.Sync(); err != nil {
			return err
		}
		for i, id := range ids {
			for j, v := range values.Row(i) {
				to := first + int(id)
				if byColumns {
					to = first + j
				}
				out[to] += float64(v) * float64(v)
			}
		}
	}
	return nil
}

// Lengths returns the norm of each row of W + Scale·B·A of a pair with Squares. pieces are the
// pieces of W. It computes on b, from the matrices as they are stored.
func Lengths(b backend.Backend, pieces []backend.Part, p *lora.Pair) ([]float32, error) {
	down, up := make([]float32, p.A.Elements()), make([]float32, p.B.Elements())
	err := tensor.Widen(down, p.A.Data[:p.A.Bytes()], p.A.DType)
	if err == nil {
		err = tensor.Widen(up, p.B.Data[:p.B.Bytes()], p.B.DType)
	}
	if err != nil {
		return nil, fmt.Errorf("nn: %s: %w", p.Path, err)
	}
	memory, err := b.New(meta.Float32, lengthFloats(p.Rank, p.Out))
	if err != nil {
		return nil, fmt.Errorf("nn: %s: %w", p.Path, err)
	}
	defer b.Free(memory)
	l := lengths{backend: b, arena: &arena{memory: memory}, a: tensor.Floats(down, p.Rank, p.In), b: tensor.Floats(up, p.Out, p.Rank), scale: p.Scale}
	l.add(pieces, p.Transposed)
	if err := b.Sync(); err != nil {
		return nil, fmt.Errorf("nn: %s: %w", p.Path, err)
	}
	return l.of(p.Squares), nil
}

// lengths computes the norms of the rows of V = W + scale·b·a without V: ‖V‖² = ‖W‖² +
// scale·b·(2·a·Wᵀ + scale·a·aᵀ·bᵀ), row by row of b.
type lengths struct {
	backend backend.Backend
	arena   *arena
	a, b    tensor.Tensor // [rank, in], [out, rank]
	scale   float32

	cross tensor.Tensor // a·Wᵀ, [rank, out]
	own   tensor.Tensor // b·(a·aᵀ), [out, rank]
}

// lengthFloats returns the memory that lengths takes from its arena.
func lengthFloats(rank, out int) int {
	return floats(rank, out) + floats(out, rank) + floats(rank, rank)
}

// add queues the products with the pieces of W, which is stored as [in, out] if transposed is set.
func (l *lengths) add(pieces []backend.Part, transposed bool) {
	rank, out := l.a.Rows(), l.b.Rows()
	l.cross, l.own = l.arena.take(rank, out), l.arena.take(out, rank)
	square := l.arena.take(rank, rank)
	for _, p := range pieces {
		w, dst := p.Matrix, l.cross
		if w.Transposed = w.Transposed != transposed; !p.Into.IsAll() {
			dst = columns(dst, p.Into.Begin, p.Into.End)
		}
		l.backend.Linear(dst, l.a, w, tensor.Tensor{})
	}
	l.backend.Linear(square, l.a, backend.Matrix{Tensor: l.a}, tensor.Tensor{})
	l.backend.Linear(l.own, l.b, backend.Matrix{Tensor: square}, tensor.Tensor{})
}

// of returns the norms. squares are the squared norms of the rows of W. The products must have
// been computed.
func (l *lengths) of(squares []float64) []float32 {
	sums := make([]float64, len(squares))
	s := float64(l.scale)
	for r := range l.a.Rows() {
		cross := l.cross.Row(r)
		for o := range sums {
			sums[o] += s * float64(l.b.Row(o)[r]) * (2*float64(cross[o]) + s*float64(l.own.Row(o)[r]))
		}
	}
	out := make([]float32, len(squares))
	for o, square := range squares {
		out[o] = float32(math.Sqrt(max(square+sums[o], 0)))
	}
	return out
}

// bindDoRA adds the DoRA part to a pair.
func (a *Adapter) bindDoRA(to *pair, f *lora.Pair) error {
	if f.Magnitude.IsZero() {
		return nil
	}
	to.dora = &dora{squares: f.Squares}
	a.dora, a.trains = true, a.trains || f.Squares != nil
	if f.Squares != nil && f.Lengths == nil {
		m := f.Magnitude // includes its owner
		m.Rank, m.Stride, m.Dims = 2, 0, [tensor.MaxRank]int{1, f.Out}
		to.dora.magnitude.Tensor = m
		return nil
	}
	if f.Lengths == nil { // only its size is needed
		return nil
	}
	gain := make([]float32, f.Out)
	if err := tensor.Widen(gain, f.Magnitude.Data[:f.Magnitude.Bytes()], f.Magnitude.DType); err != nil {
		return fmt.Errorf("nn: adapter of %s: %w", f.Path, err)
	}
	inverse := inverses(f.Lengths)
	for i := range gain {
		gain[i] = (gain[i] - f.Lengths[i]) * inverse[i]
	}
	to.dora.gain = tensor.Floats(gain, 1, f.Out)
	if a.memory == nil {
		return nil
	}
	var err error
	to.dora.gain, err = a.copied(to.dora.gain)
	return err
}

// inverses returns 1/x for each x, and 0 for 0: a row of zeros stays zero.
func inverses(x []float32) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		if v > 0 {
			out[i] = 1 / v
		}
	}
	return out
}

// doraFloats returns the scratch memory for rows of pairs with magnitudes.
func (a *Adapter) doraFloats(rows int) int {
	if !a.dora {
		return 0
	}
	n := 4 * floats(rows, a.out) // includes the bias
	if a.trains {
		n += max(lengthFloats(a.rank, a.out), floats(rows, a.out)) + 4*floats(1, a.out)
	}
	return n
}

// gainOf returns the gain of a pair, [1, out].
func (c scope) gainOf(m part, p *pair) tensor.Tensor {
	d := p.dora
	if d.magnitude.IsZero() {
		if d.gain.IsZero() {
			c.fail("%s: the lengths of the rows of an adapted weight are not known", p.to.path)
		}
		return d.gain
	}
	found := c.lengthsOf(m, p)
	if c.err != nil {
		return tensor.Tensor{}
	}
	arena := &c.lowRank.arena
	gain, length, inverse := arena.take(1, p.out), arena.take(1, p.out), arena.take(1, p.out)
	for _, v := range []struct {
		to     tensor.Tensor
		values []float32
	}{{length, found}, {inverse, inverses(found)}} {
		if err := c.backend.Copy(v.to, tensor.Floats(v.values, 1, p.out)); err != nil {
			c.fail("%s: %w", p.to.path, err)
		}
	}
	c.backend.Embed(gain, d.magnitude, c.nothing[:1], 1) // records the magnitude's gradient
	c.backend.Add(gain, length, -1)                      // exactly 0 when training begins
	c.backend.Gate(gain, gain, inverse, meta.ActNone, 0)
	return gain
}

// lengthsOf computes the present norms of a pair's rows. The computation is not recorded.
func (c scope) lengthsOf(m part, p *pair) []float32 {
	arena := &c.lowRank.arena
	defer arena.pause()()
	mark := arena.used
	defer func() { arena.used = mark }()
	weight := p.to.bind(c.Context, m.expert).weight
	if c.err != nil {
		return nil
	}
	l := lengths{backend: c.backend, arena: arena, a: p.a.Tensor, b: p.b.Tensor, scale: p.scale}
	l.add(weight, p.to.transposed)
	if !c.sync(p.to.path) {
		return nil
	}
	return l.of(p.dora.squares)
}

// magnify adds DoRA's update to rows of dst, which are W·in + bias. high is b·(a·in). With
// dropout, dst was computed from all inputs, and only the update uses the remaining ones, as in
// PEFT.
func (c scope) magnify(m part, p *pair, dst, in, high tensor.Tensor, rows []int32, dropped bool) {
	gain := c.gainOf(m, p)
	if c.err != nil {
		return
	}
	n, cols, arena := len(rows), dst.Cols(), &c.lowRank.arena
	var v tensor.Tensor
	if dropped {
		w := p.to.bind(c.Context, m.expert)
		w.bias = nil
		whole := arena.take(n, p.out)
		w.apply(c, whole, in)
		c.compute()
		v = columns(whole, m.first, m.first+cols)
	} else {
		v = arena.take(n, cols)
		c.backend.Gather(v, dst, rows)
		c.withoutBias(p.to, v, m.first)
	}
	if c.err != nil {
		return
	}
	c.backend.Add(v, high, p.scale)
	gains, update := arena.take(n, cols), arena.passing(n, cols)
	c.backend.Gather(gains, columns(gain, m.first, m.first+cols), c.lowRank.zeros[:n])
	c.backend.Gate(update, v, gains, meta.ActNone, 0)
	c.backend.Add(update, high, p.scale)
	c.backend.ScatterAdd(dst, update, rows, c.lowRank.ones[:n])
}

// withoutBias subtracts the bias of rows first, first+1, … of r from v.
func (c scope) withoutBias(r *linear, v tensor.Tensor, first int) {
	if r.bias.Param == nil {
		return
	}
	arena := &c.lowRank.arena
	for _, p := range c.parts(r.bias, -1) {
		lo, hi := 0, r.out
		if !p.Into.IsAll() {
			lo, hi = p.Into.Begin, p.Into.End
		}
		from, to := max(lo, first), min(hi, first+v.Cols())
		if from >= to {
			continue
		}
		values := p.Matrix
		values.Tensor = p.Slice(from-lo, to-lo)
		values.Rank, values.Dims = 2, [tensor.MaxRank]int{1, to - from}
		negative := arena.take(v.Rows(), to-from)
		c.backend.Embed(negative, values, c.lowRank.zeros[:v.Rows()], -1)
		c.backend.Add(columns(v, from-first, to-first), negative, 1)
	}
}

// byHead describes columns of a matrix that belong to outputs of a linear layer. For head h, the
// first cols of the head's width columns belong to the outputs h·step+first, ….
type byHead struct{ heads, width, cols, step, first int }

// scaleHeads multiplies columns of x by 1 + gain of the corresponding outputs of r, for rows of
// the pass whose adapter has magnitudes for r.
func (c *Context) scaleHeads(r *linear, x tensor.Tensor, at byHead) {
	l := &c.lowRank
	for _, g := range l.groups {
		p := &g.adapter.pairs[r.number]
		if p.dora == nil || c.err != nil {
			continue
		}
		l.arena.used = 0
		gain := c.all().gainOf(part{number: r.number}, p)
		if c.err != nil {
			return
		}
		mark := l.arena.used
		for h := range at.heads {
			by := columns(gain, h*at.step+at.first, h*at.step+at.first+at.cols)
			dst := x.Columns(h*at.width, h*at.width+at.cols)
			for rows := g.rows; len(rows) > 0; {
				n := min(len(rows), l.most)
				l.arena.used = mark
				v, gains, update := l.arena.take(n, at.cols), l.arena.take(n, at.cols), l.arena.passing(n, at.cols)
				c.backend.Gather(v, dst, rows[:n])
				c.backend.Gather(gains, by, l.zeros[:n])
				c.backend.Gate(update, v, gains, meta.ActNone, 0)
				c.backend.ScatterAdd(dst, update, rows[:n], l.ones[:n])
				rows = rows[n:]
			}
		}
	}
}
