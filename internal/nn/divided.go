package nn

import (
	"fmt"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// ExpertPlaces says which contexts compute the experts of a stack, if not all run where their
// block runs.
type ExpertPlaces struct {
	// Of is, for each expert, the index in At of the context that computes it.
	Of []uint8
	// At are contexts of the program that have begun the pass. The one that runs the block may be
	// among them. They start in this order, so the host should be last: devices then compute in
	// the meantime. A context may occur twice; HoldExperts of its weights is called for the
	// experts of one index at a time.
	At []*Context
}

// A PeerError is the error of a context that computed experts for the context of [Context.Run].
type PeerError struct {
	Context *Context
	Err     error
}

func (e *PeerError) Error() string { return e.Err.Error() }

// Unwrap returns the context's error.
func (e *PeerError) Unwrap() error { return e.Err }

// DivideExperts sets the function that returns the places of a stack's experts when a block runs.
// nil, also as the result of places, means that all experts run where the block runs.
//
// The inputs of experts in other contexts are copied there, and their outputs are copied back. c
// adds up the outputs for a token in the order of the experts' numbers. The placement therefore
// does not change a bit if the kernels of all contexts return the same bits.
func (c *Context) DivideExperts(places func(*meta.Module) *ExpertPlaces) { c.divide = places }

// divided is the state of a MoE layer some of whose experts run in other contexts.
type divided struct {
	starts []int32   // start of each expert's rows at its place
	rows   []int32   // gathered rows
	shares []float32 // their shares
	seen   int       // number of input rows
	shown  []bool    // by place: it has the hidden states
	lots   []lotMemory
	marks  []int // of the arenas of places
}

// placesOf returns the places of m's experts, or nil if all of them are in c.
func (c *Context) placesOf(m *moe) *ExpertPlaces {
	if c.divide == nil || c.err != nil {
		return nil
	}
	p := c.divide(m.stack.Module)
	if p == nil {
		return nil
	}
	d, r := &c.routing.divided, &c.routing
	if d.starts == nil {
		d.starts, d.rows, d.shares = make([]int32, len(r.next)), make([]int32, len(r.rows)), make([]float32, len(r.rows))
	}
	for len(d.lots) < len(p.At) {
		d.lots, d.marks, d.shown = append(d.lots, lotMemory{}), append(d.marks, 0), append(d.shown, false)
	}
	clear(d.shown)
	return p
}

// want announces experts to the weights of c, or of all places that hold some of them.
func (c *Context) want(stack *meta.Module, experts []int32, places *ExpertPlaces) {
	c.weights.WantExperts(stack, experts)
	if places == nil {
		return
	}
	for _, p := range places.At {
		if p != c {
			p.weights.WantExperts(stack, experts)
		}
	}
}

// show copies the input of a MoE layer to the other places of the experts that the router has
// selected. The copy goes to the memory of their own hidden states, which is unused while they
// run no unit.
func (m *moe) show(c *Context, x tensor.Tensor, places *ExpertPlaces) {
	if places == nil || c.err != nil {
		return
	}
	d := &c.routing.divided
	if c.compute(); m.expertWidth > c.program.width {
		c.fail("%s: operands of width %d at several devices, at most %d are possible", m.stack.Path, m.expertWidth, c.program.width)
		return
	}
	d.seen = x.Rows()
	for _, e := range c.routing.hit {
		k := places.Of[e]
		p := places.At[k]
		if p == c || d.shown[k] {
			continue
		}
		d.shown[k] = true
		if err := p.receive(matrix(p.state[0], d.seen, m.expertWidth), c, x); err != nil {
			c.failPeer(p, fmt.Errorf("nn: %s: %w", m.stack.Path, err))
			return
		}
	}
}

// failPeer records an error of another context.
func (c *Context) failPeer(p *Context, err error) {
	if c.err == nil {
		c.err = &PeerError{p, err}
	}
}

// lotMemory holds the rows of a lot of experts, sorted by expert, from their inputs to their
// results.
type lotMemory struct {
	routing *routing // of the context that routes, also if another one computes
	first   int      // index of the lot's first row among all sorted rows
	starts  []int32  // start of each expert's rows; nil if they are all rows of the lot
	in      tensor.Tensor
	to      gates
	gated   tensor.Tensor
	y       tensor.Tensor
}

// rows returns the range of rows of expert e.
func (a *lotMemory) rows(e int32) (begin, end int) {
	r := a.routing
	begin = int(r.begin[e]) - a.first
	if a.starts != nil {
		begin = int(a.starts[e])
	}
	return begin, begin + int(r.begin[e+1]-r.begin[e])
}

// openLot allocates memory for rows of x and gathers them. shares are the shares of the rows.
func (m *moe) openLot(c scope, x tensor.Tensor, rows []int32, shares []float32) (at lotMemory) {
	at.in = c.arena.take(len(rows), m.expertWidth)
	c.backend.Gather(at.in, x, rows)
	if m.spec.ScaleInput {
		at.in = m.scaleInput(c, at.in, shares)
	}
	if m.spec.Plain {
		at.to.gate = c.arena.take(len(rows), m.inner)
	} else {
		at.to = m.gateUp.takeGates(c.Context, len(rows), m.spec.GateOrder == meta.GateInterleaved)
	}
	at.gated, at.y = c.arena.spare(at.to.gate), c.arena.spare(at.in)
	return at
}

// divided computes the experts of a lot, each at its place, into their rows of at.y.
func (m *moe) divided(c scope, at *lotMemory, lot []int32, s *sharing, places *ExpertPlaces) {
	r, d := at.routing, &at.routing.divided
	c.compute()
	m.addShared(c.Context, s)
	for k, p := range places.At {
		d.marks[k] = p.arena.used
		if experts := r.at(lot, places, k); len(experts) > 0 && c.err == nil {
			m.start(c, p, k, at, experts)
		}
	}
	for k := len(places.At) - 1; k >= 0; k-- {
		p := places.At[k]
		if p == c.Context {
			continue
		}
		if experts := r.at(lot, places, k); len(experts) > 0 && c.err == nil {
			m.fetch(c.Context, p, at, &d.lots[k], experts)
		}
		p.arena.used = d.marks[k]
	}
	c.sync(m.stack.Path)
}

// at returns the experts of a lot at place k, in ascending order. The next call reuses the
// memory.
func (r *routing) at(lot []int32, places *ExpertPlaces, k int) []int32 {
	r.left = r.left[:0]
	for _, e := range lot {
		if int(places.Of[e]) == k {
			r.left = append(r.left, e)
		}
	}
	return r.left
}

// start starts to compute experts at place k, which is p. Operations of a device may still run
// when it returns. The shared expert must have been added.
func (m *moe) start(c scope, p *Context, k int, at *lotMemory, experts []int32) {
	var none sharing
	r, d := at.routing, &at.routing.divided
	if p == c.Context {
		m.held(c, at, experts, &none, false)
		return
	}
	n := 0
	for _, e := range experts {
		d.starts[e] = int32(n)
		begin, end := r.begin[e], r.begin[e+1]
		copy(d.shares[n:], r.shares[begin:end])
		n += copy(d.rows[n:], r.rows[begin:end])
	}
	pc := p.collect()
	d.lots[k] = m.openLot(pc, matrix(p.state[0], d.seen, m.expertWidth), d.rows[:n], d.shares[:n])
	d.lots[k].routing, d.lots[k].starts = r, d.starts
	m.held(pc, &d.lots[k], experts, &none, false)
	c.failed(p)
}

// fetch copies the outputs of experts that p has computed to their rows of at.y.
func (m *moe) fetch(c, p *Context, at, lot *lotMemory, experts []int32) {
	if p.sync(m.stack.Path); c.failed(p) {
		return
	}
	for len(experts) > 0 {
		begin, end := at.rows(experts[0])
		first, _ := lot.rows(experts[0])
		for experts = experts[1:]; len(experts) > 0; experts = experts[1:] { // copy adjacent rows at once
			next, last := at.rows(experts[0])
			if next != end {
				break
			}
			end = last
		}
		if err := c.receive(at.y.Slice(begin, end), p, lot.y.Slice(first, first+end-begin)); err != nil {
			c.failPeer(p, fmt.Errorf("nn: %s: %w", m.stack.Path, err))
			return
		}
	}
}

// failed takes over an error of another context, and reports whether there is one.
func (c *Context) failed(p *Context) bool {
	if err := p.err; err != nil {
		c.failPeer(p, err)
	}
	return p.err != nil
}
