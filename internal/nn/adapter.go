package nn

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// An Adapter holds low-rank updates (LoRA) of a program's linear layers. They apply to the rows
// that select the adapter in [Input.Adapters]. Passes do not change an Adapter; many contexts may
// use it concurrently.
type Adapter struct {
	pairs   []pair // indexed by the number of the linear layer, from 1 on
	linears []own  // indexed likewise; replaces the layer's weights
	tables  []own  // indexed by the number of the embedding
	norms   []own  // indexed by the number of the norm, from 1 on
	owns    bool   // some parameters are replaced
	rank    int    // largest rank
	in, out int    // largest widths
	dora    bool   // some pairs have magnitudes
	trains  bool   // the magnitudes are trained
	memory  backend.Memory
	held    []tensor.Tensor // allocations in memory
}

// pair is the update y += scale · b·(a·x) of a linear layer. A zero a means that the layer has no
// pair. The pairs of a stack of experts are concatenated by rows.
type pair struct {
	a, b      backend.Matrix // [rank, in], [out, rank]
	rank, out int
	scale     float32
	to        *linear
	dora      *dora // nil if there is no magnitude
}

// NewAdapter binds the pairs of an adapter to the linear layers of p. It copies the matrices to
// memory, and [Adapter.Close] frees the copies. If memory is nil, it uses the matrices in place.
// It returns an error if a pair has no linear layer. Pairs with magnitudes (DoRA) need Lengths,
// or Squares if their matrices change; without either, only the adapter's size is valid.
func (p *Program) NewAdapter(memory backend.Memory, from *lora.Adapter) (*Adapter, error) {
	a := &Adapter{pairs: make([]pair, len(p.linears)+1), linears: make([]own, len(p.linears)+1), tables: make([]own, len(p.embeddings)), norms: make([]own, len(p.norms)+1), memory: memory}
	for i := range from.Pairs {
		f := &from.Pairs[i]
		number, err := p.linearAt(f)
		if err == nil {
			err = a.bind(number, p.linears[number-1], f)
		}
		if err != nil {
			a.Close()
			return nil, err
		}
	}
	for i := range from.Saved {
		if err := a.bindSaved(p, &from.Saved[i]); err != nil {
			a.Close()
			return nil, err
		}
	}
	return a, nil
}

// linearAt returns the number of the linear layer that a pair belongs to.
func (p *Program) linearAt(f *lora.Pair) (int, error) {
	path := f.Path
	if f.Experts > 0 {
		path = meta.Join(path, f.Param)
	}
	for i, r := range p.linears {
		switch {
		case r.path != path:
		case r.experts != f.Experts:
			return 0, at(r.path, "an adapter of %d experts for %d", f.Experts, r.experts)
		case r.in != f.In || r.out != f.Out:
			return 0, at(r.path, "an adapter of %d columns to %d for a map of %d to %d", f.In, f.Out, r.in, r.out)
		case r.partial && !r.magnitudes && !f.Magnitude.IsZero():
			return 0, at(r.path, "magnitudes (DoRA) of a map that passes take apart are not supported: exclude it from target_modules")
		default:
			return i + 1, nil
		}
	}
	return 0, at(path, "an adapter of a module that is not run as a linear map")
}

func (a *Adapter) bind(number int, r *linear, f *lora.Pair) error {
	to := &a.pairs[number]
	to.scale, to.rank, to.out, to.to = f.Scale, f.Rank, f.Out, r
	for _, m := range []struct {
		to   *backend.Matrix
		from tensor.Tensor
	}{{&to.a, f.A}, {&to.b, f.B}} {
		m.to.Tensor = m.from
		if a.memory == nil {
			continue
		}
		var err error
		if m.to.Tensor, err = a.copied(m.from); err != nil {
			return fmt.Errorf("nn: adapter of %s: %w", f.Path, err)
		}
	}
	a.rank, a.in, a.out = max(a.rank, f.Rank), max(a.in, f.In), max(a.out, f.Out)
	return a.bindDoRA(to, f)
}

// copied copies a matrix to the adapter's memory.
func (a *Adapter) copied(from tensor.Tensor) (tensor.Tensor, error) {
	t, err := a.memory.New(from.DType, from.Shape()...)
	if err != nil {
		return t, err
	}
	a.held = append(a.held, t)
	return t, a.memory.Copy(t, from)
}

// Close frees the memory.
func (a *Adapter) Close() {
	for _, t := range a.held {
		a.memory.Free(t)
	}
	a.held, a.pairs, a.linears, a.tables, a.norms = nil, nil, nil, nil, nil
}

// adapted is the set of rows of a pass that use one adapter, in ascending order.
type adapted struct {
	adapter *Adapter
	rows    []int32
}

// adapterRows is the number of rows that an adapter's pairs process at a time. It bounds the
// scratch memory. The result of a row does not depend on it.
const adapterRows = 64

// Drops selects the inputs of A that dropout sets to zero while an adapter is trained.
type Drops interface {
	// Factors returns one factor for each of the rows × cols inputs of a linear layer: 0 if the
	// input is dropped. All calls for one layer in a pass return the same numbers. There are
	// several calls if the unit is recomputed or the layer is computed in parts. The slice must
	// not change until the backward pass has ended.
	Factors(linear, rows, cols int) []float32
}

// lowRank is the state that a context needs for adapters. It is empty until [Context.Allow].
type lowRank struct {
	arena  arena
	most   int // rows processed at a time
	groups []adapted
	owns   bool    // some replace weights of the model
	rows   []int32 // rows of all groups
	subset []int32
	scales []float32
	zeros  []int32
	ones   []float32
}

// AdapterBytes returns the memory that [Context.Allow] takes for an adapter.
func (a *Adapter) AdapterBytes() int64 { return 4 * int64(a.floats(adapterRows)) }

func (a *Adapter) floats(rows int) int {
	return 2*floats(rows, a.in) + floats(rows, a.rank) + floats(rows, a.out) + a.doraFloats(rows)
}

// Allow allocates the scratch memory for passes with adapter a, in addition to that of earlier
// adapters.
func (c *Context) Allow(a *Adapter) error {
	l := &c.lowRank
	l.most, l.arena.recorder = adapterRows, c.arena.recorder
	if l.arena.recorder != nil { // the order of summation may depend on the number of rows
		l.most = max(c.limits.Rows, c.limits.Outputs)
	}
	if need := a.floats(l.most); l.arena.memory.Elements() < need || l.arena.memory.IsZero() {
		memory, err := c.backend.New(meta.Float32, need)
		if err != nil {
			return fmt.Errorf("nn: memory for adapters: %w", err)
		}
		if !l.arena.memory.IsZero() {
			c.backend.Free(l.arena.memory)
		}
		l.arena.memory = memory
	}
	if l.rows == nil {
		l.rows, l.subset = make([]int32, c.limits.Rows), make([]int32, c.limits.Rows)
		l.scales, l.zeros, l.ones = make([]float32, l.most), make([]int32, l.most), slices.Repeat([]float32{1}, l.most)
	}
	return nil
}

// Forbid frees the memory of Allow. Any goroutine may call it while no pass uses an adapter.
func (c *Context) Forbid() {
	if memory := &c.lowRank.arena.memory; !memory.IsZero() {
		c.backend.Free(*memory)
		*memory = tensor.Tensor{}
	}
}

// beginAdapters groups the rows of a pass by adapter.
func (c *Context) beginAdapters() error {
	l := &c.lowRank
	l.groups, l.owns = l.groups[:0], false
	next := 0
	for i, a := range c.in.Adapters {
		if a == nil || l.group(a) {
			continue
		}
		if l.most == 0 || l.arena.memory.Elements() < a.floats(l.most) {
			return fmt.Errorf("nn: row %d has an adapter for which Context.Allow was not called", i)
		}
		first := next
		for j := i; j < len(c.in.Adapters); j++ {
			if c.in.Adapters[j] == a {
				l.rows[next] = int32(j)
				next++
			}
		}
		l.groups = append(l.groups, adapted{a, l.rows[first:next]})
		l.owns = l.owns || a.owns
	}
	return nil
}

// group reports whether the rows of a are already grouped.
func (l *lowRank) group(a *Adapter) bool {
	for i := range l.groups {
		if l.groups[i].adapter == a {
			return true
		}
	}
	return false
}

// adapt adds the updates of the pass's adapters to dst, the output of linear layer number for
// input x. dst has all outputs of the layer, or the outputs first, first+step, ….
func (c *Context) adapt(number int, dst, x tensor.Tensor, first, step int) {
	c.all().adaptPart(part{number: number, first: first, step: step}, dst, x)
}

// adaptTurned is adapt for a layer that is applied transposed: dst is x times the weight's rows
// from first on, not times their transpose.
func (c *Context) adaptTurned(number int, dst, x tensor.Tensor, first int) {
	c.all().adaptPart(part{number: number, first: first, step: 1, turned: true}, dst, x)
}

// adapts reports whether an adapter of the pass has a pair for r.
func (c *Context) adapts(r *linear) bool {
	for _, g := range c.lowRank.groups {
		if !g.adapter.pairs[r.number].a.IsZero() {
			return true
		}
	}
	return false
}

// part is the range of a linear layer's outputs, or of those of one expert in a stack, that an
// operation computes.
type part struct {
	number, first, step int
	expert              int
	turned              bool
}

func (c scope) adaptPart(m part, dst, x tensor.Tensor) {
	if c.err != nil || m.number == 0 {
		return
	}
	l := &c.lowRank
	for _, g := range l.groups {
		p := &g.adapter.pairs[m.number]
		if p.a.IsZero() {
			continue
		}
		c.compute() // computes the sums to which the pairs are added
		rows := g.rows
		if c.gathered != nil {
			n := 0
			for i := range x.Rows() {
				if c.in.Adapters[c.gathered[i]] == g.adapter {
					l.subset[n] = int32(i)
					n++
				}
			}
			rows = l.subset[:n]
		}
		for len(rows) > 0 {
			n := min(len(rows), l.most)
			c.adaptRows(m, p, dst, x, rows[:n])
			rows = rows[n:]
		}
	}
}

// adaptRows adds scale · b·(a·x) to some rows of dst, or scale · (x·b)·a if the layer is applied
// transposed.
func (c scope) adaptRows(m part, p *pair, dst, x tensor.Tensor, rows []int32) {
	l := &c.lowRank
	l.arena.used = 0
	n := len(rows)
	var in tensor.Tensor
	if begin, end := int(rows[0]), int(rows[n-1])+1; end-begin == n {
		in = x.Slice(begin, end)
	} else {
		in = l.arena.take(n, x.Cols())
		c.backend.Gather(in, x, rows)
	}
	if c.in.Drops != nil {
		left := l.arena.take(n, x.Cols())
		c.backend.Gate(left, in, tensor.Floats(c.in.Drops.Factors(m.number, n, x.Cols()), n, x.Cols()), meta.ActNone, 0)
		in = left
	}
	down, up := p.of(m, x.Cols(), dst.Cols())
	low, high := l.arena.take(n, p.rank), l.arena.take(n, dst.Cols())
	c.backend.Linear(low, in, down, tensor.Tensor{})
	if c.unread {
		c.backend.Products([]backend.Product{{Dst: high, X: low, W: up, Unread: true}})
	} else {
		c.backend.Linear(high, low, up, tensor.Tensor{})
	}
	if p.dora != nil && !p.to.magnitudes {
		c.magnify(m, p, dst, in, high, rows, c.in.Drops != nil)
		return
	}
	for i := range n {
		l.scales[i] = p.scale
	}
	c.backend.ScatterAdd(dst, high, rows, l.scales[:n])
}

// of returns the matrices of a part of a pair, from in columns to out, in the order in which they
// are applied.
func (p *pair) of(m part, in, out int) (down, up backend.Matrix) {
	down, up = p.a, p.b
	if down.OutRows() > p.rank {
		down = rowsOf(down, m.expert*p.rank, (m.expert+1)*p.rank)
	}
	if m.turned {
		out = in
	}
	base := m.expert * p.out
	begin, end := base+m.first, base+p.out
	if m.step <= 1 {
		end = begin + out
	}
	up = rowsOf(up, begin, end)
	up.RowStep = m.step
	if m.turned {
		down, up = up, down
		down.Transposed, up.Transposed = !down.Transposed, !up.Transposed
	}
	return down, up
}
