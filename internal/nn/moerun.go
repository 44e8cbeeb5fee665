package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// forward computes for each token the sum of the shared expert and its routed experts, by
// ascending number. The order does not depend on other rows. Independent products form one
// operation: the router with the shared expert's first projections, then the shared expert's last
// projection with the routed experts' first ones, then the routed experts' last ones.
func (m *moe) forward(c *Context, dst, x tensor.Tensor) { m.routed(c, dst, x, x) }

// routed is forward with a separate input of the router.
func (m *moe) routed(c *Context, dst, x, operand tensor.Tensor) {
	mark := c.arena.used
	together := c.collect()
	s := m.openShared(together, x)
	m.route(together, operand)
	r := &c.routing
	r.hit = r.hit[:len(r.hit)-r.beyond(m.spec.Count)]
	places := c.placesOf(m)
	if c.err == nil && !m.apart() {
		c.want(m.stack.Module, r.hit, places)
	}
	c.tellGuess()
	m.closeShared(together, dst, &s)
	sum := dst
	if m.latentDown != nil {
		x, sum = m.openLatent(together, x)
	}
	m.show(c, x, places)
	for hit := r.hit; len(hit) > 0 && c.err == nil; {
		lot := r.lot(hit, lotRows(x.Rows(), m.spec.TopK))
		m.experts(together, sum, x, lot, &s, places)
		hit = hit[len(lot):]
	}
	m.pass(c, dst, x)
	m.passScored(c, dst, x)
	if m.latentDown != nil {
		y := c.arena.take(dst.Rows(), m.width)
		m.latentUp.forward(c, y, sum)
		c.add(dst, y, 1)
	}
	c.arena.used = mark
}

// openLatent returns the input of the experts, and a zero sum of their results.
func (m *moe) openLatent(c scope, x tensor.Tensor) (in, sum tensor.Tensor) {
	in, sum = c.arena.take(x.Rows(), m.expertWidth), c.arena.take(x.Rows(), m.expertWidth)
	if c.err == nil {
		m.latentDown.compute(c, in, x, 0)
		c.compute()
		c.backend.Gather(sum, matrix(c.zero, 1, m.expertWidth), c.nothing[:x.Rows()])
	}
	return in, sum
}

// sharing is the intermediate state of the shared expert. The zero value is for a layer without
// one.
type sharing struct {
	dst      tensor.Tensor // the sum of the layer
	gate, up tensor.Tensor
	y, share tensor.Tensor // set if the shared expert has a gate of its own
}

// openShared computes the first projections of the shared expert.
func (m *moe) openShared(c scope, x tensor.Tensor) (s sharing) {
	if m.shared == nil {
		return s
	}
	if m.sharedGate != nil {
		s.y, s.share = c.arena.take(x.Rows(), m.width), c.arena.take(x.Rows(), 1)
		m.sharedGate.compute(c, s.share, x, 0)
	}
	s.gate, s.up = m.shared.open(c, x)
	return s
}

// closeShared computes the initial value of dst, or the term that addShared adds to it first.
func (m *moe) closeShared(c scope, dst tensor.Tensor, s *sharing) {
	if s.dst = dst; c.err != nil {
		return
	}
	if m.shared == nil || m.sharedGate != nil {
		c.backend.Gather(dst, matrix(c.zero, 1, m.width), c.nothing[:dst.Rows()])
	}
	switch {
	case m.shared == nil:
	case m.sharedGate == nil:
		m.shared.close(c, dst, s.gate, s.up)
	default:
		m.shared.close(c, s.y, s.gate, s.up)
	}
}

// addShared adds the shared expert to the sum if it has a gate. Only the first call has an
// effect.
func (m *moe) addShared(c *Context, s *sharing) {
	if s.y.IsZero() || c.err != nil {
		return
	}
	rows := s.dst.Rows()
	shares, sigmoid := c.routing.gates[:rows], c.arena.spare(s.share)
	c.backend.Gate(sigmoid, s.share, tensor.Tensor{}, meta.ActSigmoid, 0)
	if err := c.backend.Copy(tensor.Floats(shares, rows, 1), sigmoid); err != nil {
		c.fail("%s: %w", m.sharedGate.path, err)
		return
	}
	c.backend.ScatterAdd(s.dst, s.y, c.iota[:rows], shares)
	s.y = tensor.Tensor{}
}

// route selects the experts and sorts the rows by expert.
func (m *moe) route(c scope, x tensor.Tensor) {
	mark := c.arena.used
	logits := m.logits(c, x)
	if m.table == nil {
		c.trace(PointRouter, m.router.path, logits)
	}
	m.choose(c.Context, logits)
	c.arena.used = mark
	if !c.sync(m.path) {
		return
	}
	n, r := x.Rows()*m.spec.Chosen(), &c.routing
	if m.routerScale.Param != nil {
		c.scaleChosen(m.routerScale, r.weights[:n], c.nothing[:n])
	}
	if m.expertScale.Param != nil {
		c.scaleChosen(m.expertScale, r.weights[:n], r.experts[:n])
	}
	if !r.sort(n, m.spec.Chosen(), m.choices()) {
		c.fail("%s: the router chose an expert that is not there", m.path)
		return
	}
	if c.recording() {
		c.arena.recorder.Derive(r.shares[:n], r.weights[:n], r.places[:n])
	}
}

// logits returns the router's result for x. It also computes the deferred products.
func (m *moe) logits(c scope, x tensor.Tensor) tensor.Tensor {
	logits := c.arena.take(x.Rows(), m.choices())
	x = m.deep.operand(c.Context, x)
	m.router.compute(c, logits, x, 0)
	c.compute()
	if s := m.spec.Softcap; s > 0 && c.err == nil {
		c.backend.Scale(logits, 1, s)
	}
	return logits
}

// choose sets the experts of each row and their weights from the logits of the router.
func (m *moe) choose(c *Context, logits tensor.Tensor) {
	correction := c.vector(m.correctionParam)
	if m.correction != nil {
		if correction = c.weights.Buffer(m.correction); correction.Rank != 1 || correction.Dims[0] != m.ranked() {
			c.fail("%s: buffer of shape %v, wanted [%d]", meta.Join(m.router.path, m.correction.Name), correction.Shape(), m.ranked())
		}
	}
	if c.err != nil {
		return
	}
	n, r := logits.Rows()*m.spec.Chosen(), &c.routing
	m.lookUp(c, r.experts[:n])
	c.backend.Route(r.experts[:n], r.weights[:n], logits, correction, m.spec)
}

// experts adds the outputs of a lot of consecutive experts to their rows. It computes the experts
// in the order in which their weights arrive, each into memory of its own, and adds their outputs
// by ascending number.
func (m *moe) experts(c scope, dst, x tensor.Tensor, lot []int32, s *sharing, places *ExpertPlaces) {
	mark, r := c.arena.used, &c.routing
	first, last := r.begin[lot[0]], r.begin[lot[len(lot)-1]+1]
	rows, shares := r.rows[first:last], r.shares[first:last]
	at := m.openLot(c, x, rows, shares)
	at.routing, at.first = r, int(first)
	switch {
	case m.apart():
		m.wanted(c, m.stack, lot, func(experts []int32) { m.ups(c, &at, experts, s) })
		m.wanted(c, m.downStack, lot, func(experts []int32) { m.downs(c, &at, experts) })
	case places != nil:
		m.divided(c, &at, lot, s, places)
	default:
		m.held(c, &at, append(r.left[:0], lot...), s, true)
	}
	if c.err != nil {
		return
	}
	if m.spec.ScaleInput {
		shares = c.ones[:len(rows)]
	}
	c.backend.ScatterAdd(dst, at.y, rows, shares)
	c.arena.used = mark
}

// held computes the experts of a lot in the order in which their weights arrive, and reorders the
// slice accordingly. If wait is set, all of them are computed when it returns; otherwise the last
// operations may still run.
func (m *moe) held(c scope, at *lotMemory, experts []int32, s *sharing, wait bool) {
	for len(experts) > 0 {
		n, err := c.weights.HoldExperts(m.stack.Module, experts)
		if err != nil {
			c.fail("%s: %w", m.stack.Path, err)
			return
		}
		m.loaded(c, at, experts[:n], s)
		experts = experts[n:]
		if len(experts) == 0 && !wait && c.err == nil {
			return
		}
		if !c.sync(m.stack.Path) { // the next experts may reuse the memory of these experts
			return
		}
	}
}

// wanted requests the experts of a lot of a stack, and calls f for held experts until it was
// called for all of them. The experts of another stack may be held before and after.
func (m *moe) wanted(c scope, stack Node, lot []int32, f func(experts []int32)) {
	if c.err != nil {
		return
	}
	c.weights.WantExperts(stack.Module, lot)
	for left := append(c.routing.left[:0], lot...); len(left) > 0 && c.err == nil; {
		n, err := c.weights.HoldExperts(stack.Module, left)
		if err != nil {
			c.fail("%s: %w", stack.Path, err)
			return
		}
		f(left[:n])
		left = left[n:]
		c.sync(stack.Path) // the next experts may reuse the memory of these experts
	}
}

// loaded computes the outputs of experts of a lot, in ascending order, into their rows of at.y.
// The same operations compute deferred products.
func (m *moe) loaded(c scope, at *lotMemory, experts []int32, s *sharing) {
	m.ups(c, at, experts, s)
	m.downs(c, at, experts)
}

// ups computes the inputs of the down projections of experts of a lot into their rows of
// at.gated.
func (m *moe) ups(c scope, at *lotMemory, experts []int32, s *sharing) {
	m.project(c, at, experts)
	m.addShared(c.Context, s)
	if c.err != nil {
		return
	}
	for i := 0; i < len(experts); { // adjacent experts at once
		begin, end := at.rows(experts[i])
		for i++; i < len(experts); i++ {
			next, last := at.rows(experts[i])
			if next != end {
				break
			}
			end = last
		}
		to := at.to.slice(begin, end)
		c.activate(at.gated.Slice(begin, end), to.gate, to.up, gating{m.spec.Act, m.spec.Limit, m.spec.Alpha})
	}
}

// project computes the first projections of experts of a lot into their rows of at.to.
func (m *moe) project(c scope, at *lotMemory, experts []int32) {
	m.each(c, at, experts, func(c scope, e, begin, end int) {
		if m.spec.Plain {
			m.gateUp.compute(c, at.to.gate.Slice(begin, end), at.in.Slice(begin, end), e)
			return
		}
		m.gateUp.gates(c, at.to.slice(begin, end), at.in.Slice(begin, end), e)
	})
	c.compute()
}

// downs computes the outputs of experts of a lot into their rows of at.y.
func (m *moe) downs(c scope, at *lotMemory, experts []int32) {
	m.each(c, at, experts, func(c scope, e, begin, end int) {
		m.down.compute(c, at.y.Slice(begin, end), at.gated.Slice(begin, end), e)
	})
	c.compute()
}

// each calls f for each expert in the scope of its rows, with their range in at.
func (m *moe) each(c scope, at *lotMemory, experts []int32, f func(c scope, e, begin, end int)) {
	r := at.routing
	for _, e := range experts {
		begin, end := at.rows(e)
		f(c.at(r.rows[r.begin[e]:r.begin[e+1]]), int(e), begin, end)
	}
}

// fewRows is the minimum number of rows that experts process together. moreRows is the maximum
// beyond the rows of one expert.
const (
	fewRows  = 256
	moreRows = 512
)

// lotRows returns the number of rows that experts process together in a pass of the given rows:
// all of them if the memory is small, and at least the rows of one expert.
func lotRows(rows, topK int) int { return min(rows*topK, max(rows+min(rows, moreRows), fewRows)) }

func (m *moe) scratch(rows int) int {
	lot := lotRows(rows, m.spec.TopK)
	gates := floats(lot, 2*m.inner)
	if m.spec.GateOrder == meta.GateInterleaved {
		gates = 2 * floats(lot, m.inner)
	}
	if m.spec.Plain {
		gates = floats(lot, m.inner)
	}
	n := floats(lot, m.expertWidth) + gates
	if m.spec.ScaleInput {
		n += floats(lot, m.expertWidth)
	}
	if m.latentDown != nil {
		n = 2*floats(rows, m.expertWidth) + max(n, floats(rows, m.width))
	}
	n = max(floats(rows, m.choices())+m.deep.scratch(rows), m.scored.scratch(rows), n)
	if m.shared == nil {
		return n
	}
	n += m.shared.scratch(rows)
	if m.sharedGate != nil {
		n += floats(rows, m.width) + floats(rows, 1)
	}
	return n
}

func (m *moe) cols() int { return m.width }
