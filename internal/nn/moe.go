package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// moe is a mixture of experts: a router sends each token to a few of them.
type moe struct {
	path       string
	spec       *meta.MoESpec
	router     *linear
	correction *meta.Buffer
	stack      Node
	gateUp     *linear // of all experts
	down       *linear
	inner      int
	width      int
	shared     rule
	sharedGate *linear
}

func (c *compiler) moe(n Node, in int) (*moe, error) {
	s, err := spec[meta.MoESpec](n, meta.KindMoE)
	if err != nil {
		return nil, err
	}
	if s.Count < 1 || s.TopK < 1 || s.TopK > s.Count {
		return nil, at(n.Path, "%d of %d experts", s.TopK, s.Count)
	}
	if s.Groups > 0 && (s.Count%s.Groups != 0 || s.TopGroups < 1 || s.TopGroups > s.Groups || s.TopGroups*(s.Count/s.Groups) < s.TopK) {
		return nil, at(n.Path, "%d of %d groups for %d of %d experts", s.TopGroups, s.Groups, s.TopK, s.Count)
	}
	m := &moe{path: n.Path, spec: s, width: in}
	if err := c.routerOf(n, m); err != nil {
		return nil, err
	}
	if err := c.stackOf(n, m); err != nil {
		return nil, err
	}
	if s.Shared != "" {
		child, err := c.child(n, "shared expert", s.Shared)
		if err != nil {
			return nil, err
		}
		if m.shared, err = c.rule(child, in); err != nil {
			return nil, err
		}
		if m.shared.cols() != in {
			return nil, at(child.Path, "a result of width %d in a stream of %d", m.shared.cols(), in)
		}
		if s.SharedGate != "" {
			if m.sharedGate, err = c.linearNamed(n, "gate of the shared expert", s.SharedGate, in, 1); err != nil {
				return nil, err
			}
		}
	}
	c.experts = append(c.experts, m.stack)
	c.program.experts, c.program.topK = max(c.program.experts, s.Count), max(c.program.topK, s.TopK)
	c.program.zeros = max(c.program.zeros, in)
	return m, nil
}

func (c *compiler) routerOf(n Node, m *moe) error {
	router, err := c.child(n, "router", m.spec.Router)
	if err != nil {
		return err
	}
	if m.router, err = c.affine(router, m.width, m.spec.Count, false); err != nil {
		return err
	}
	c.adaptable(m.router)
	m.router.exact = true // a rounding must not choose another expert
	if m.spec.Correction == "" {
		return nil
	}
	for _, b := range router.Module.Buffers {
		if b.Name == m.spec.Correction {
			m.correction = b
			return nil
		}
	}
	return at(router.Path, "no buffer %q, which the spec names as correction", m.spec.Correction)
}

// stackOf finds the stacked parameters and tells the experts' width from them.
func (c *compiler) stackOf(n Node, m *moe) (err error) {
	s := m.spec
	if m.stack, err = c.child(n, "experts", s.Experts); err != nil {
		return err
	}
	gateUp := m.stack.Module.Param(s.GateUp)
	if gateUp == nil || len(gateUp.Shape) != 3 {
		return at(m.stack.Path, "no parameter %q of three dimensions", s.GateUp)
	}
	both := gateUp.Shape[1]
	if s.Transposed {
		both = gateUp.Shape[2]
	}
	if m.inner = both / 2; both < 2 || both%2 != 0 {
		return at(m.stack.Path, "a fused gate of width %d", both)
	}
	up, down := []int{s.Count, both, m.width}, []int{s.Count, m.width, m.inner}
	if s.Transposed {
		up, down = []int{s.Count, m.width, both}, []int{s.Count, m.inner, m.width}
	}
	m.gateUp = &linear{in: m.width, out: both, transposed: s.Transposed, experts: s.Count}
	if err := c.stacked(m.stack, m.gateUp, s.GateUp, up, s.GateUpBias); err != nil {
		return err
	}
	m.down = &linear{in: m.inner, out: m.width, transposed: s.Transposed, experts: s.Count}
	return c.stacked(m.stack, m.down, s.Down, down, s.DownBias)
}

// stacked finds the parameters of a stack's linear maps; bias may be "".
func (c *compiler) stacked(stack Node, r *linear, weight string, shape []int, bias string) (err error) {
	if r.weight, err = c.param(stack, weight, shape...); err != nil {
		return err
	}
	r.path = r.weight.path
	c.adaptable(r)
	if bias != "" {
		r.bias, err = c.param(stack, bias, r.experts, r.out)
	}
	return err
}

// forward sums, for each token, the shared expert and then its experts by ascending
// number. That order is the token's own: it does not depend on the other rows.
func (m *moe) forward(c *Context, dst, x tensor.Tensor) {
	mark := c.arena.used
	m.begin(c, dst, x)
	m.route(c, x)
	if c.err != nil {
		return
	}
	r := &c.routing
	c.weights.WantExperts(m.stack.Module, r.hit)
	for _, e := range r.hit {
		if err := c.weights.HoldExpert(m.stack.Module, int(e)); err != nil {
			c.fail("%s: expert %d: %w", m.stack.Path, e, err)
			return
		}
		begin, end := r.begin[e], r.begin[e+1]
		m.expert(c, dst, x, int(e), r.rows[begin:end], r.shares[begin:end])
		if !c.sync(m.stack.Path) { // the next expert may take this one's place
			return
		}
	}
	c.arena.used = mark
}

// begin sets dst to what the experts are added to.
func (m *moe) begin(c *Context, dst, x tensor.Tensor) {
	if m.shared != nil && m.sharedGate == nil {
		m.shared.forward(c, dst, x)
		return
	}
	rows := x.Rows()
	zero := matrix(c.zero, 1, m.width)
	c.backend.Gather(dst, zero, c.nothing[:rows])
	if m.shared == nil {
		return
	}
	mark := c.arena.used
	y, gate := c.arena.take(rows, m.width), c.arena.take(rows, 1)
	m.shared.forward(c, y, x)
	m.sharedGate.forward(c, gate, x)
	if c.err == nil {
		shares, sigmoid := c.routing.shares[:rows], c.arena.spare(gate)
		c.backend.Gate(sigmoid, gate, tensor.Tensor{}, meta.ActSigmoid, 0)
		if err := c.backend.Copy(tensor.Floats(shares, rows, 1), sigmoid); err != nil {
			c.fail("%s: %w", m.sharedGate.path, err)
			return
		}
		c.backend.ScatterAdd(dst, y, c.iota[:rows], shares)
	}
	c.arena.used = mark
}

// route chooses the experts and sorts the rows by them.
func (m *moe) route(c *Context, x tensor.Tensor) {
	mark := c.arena.used
	logits := c.arena.take(x.Rows(), m.spec.Count)
	m.router.forward(c, logits, x)
	c.trace(PointRouter, m.router.path, logits)
	var correction tensor.Tensor
	if m.correction != nil {
		if correction = c.weights.Buffer(m.correction); correction.Rank != 1 || correction.Dims[0] != m.spec.Count {
			c.fail("%s: buffer of shape %v, wanted [%d]", meta.Join(m.router.path, m.correction.Name), correction.Shape(), m.spec.Count)
		}
	}
	if c.err != nil {
		return
	}
	n := x.Rows() * m.spec.TopK
	r := &c.routing
	c.backend.Route(r.experts[:n], r.weights[:n], logits, correction, m.spec)
	c.arena.used = mark
	if !c.sync(m.path) {
		return
	}
	if !r.sort(n, m.spec.TopK, m.spec.Count) {
		c.fail("%s: the router chose an expert that is not there", m.path)
		return
	}
	if c.recording() {
		c.arena.recorder.Derive(r.shares[:n], r.weights[:n], r.places[:n])
	}
}

// expert adds what expert e makes of some rows.
func (m *moe) expert(c *Context, dst, x tensor.Tensor, e int, rows []int32, shares []float32) {
	mark := c.arena.used
	in := c.arena.take(len(rows), m.width)
	c.backend.Gather(in, x, rows)
	c.subset = rows
	defer func() { c.subset = nil }()
	gate, up := m.gateUp.gates(c, in, e, m.spec.GateOrder == meta.GateInterleaved)
	if c.err != nil {
		return
	}
	gated := c.arena.spare(gate)
	c.backend.Gate(gated, gate, up, m.spec.Act, m.spec.Limit)
	y := c.arena.spare(in) // no longer read
	m.down.forwardExpert(c, y, gated, e)
	if c.err == nil {
		c.backend.ScatterAdd(dst, y, rows, shares)
	}
	c.arena.used = mark
}

func (m *moe) scratch(rows int) int {
	gates := floats(rows, 2*m.inner)
	if m.spec.GateOrder == meta.GateInterleaved {
		gates = 2 * floats(rows, m.inner)
	}
	n := max(floats(rows, m.spec.Count), floats(rows, m.width)+gates)
	if m.shared == nil {
		return n
	}
	shared := m.shared.scratch(rows)
	if m.sharedGate != nil {
		shared += floats(rows, m.width) + floats(rows, 1)
	}
	return max(n, shared)
}

func (m *moe) cols() int { return m.width }

// routing is which rows go to which experts.
type routing struct {
	experts []int32   // chosen, row by row
	weights []float32 // their weights
	begin   []int32   // begin[e] to begin[e+1]: the places of expert e in
	rows    []int32   // rows by expert, in order, and
	shares  []float32 // the weights by expert
	places  []int32   // where they are among the weights
	hit     []int32   // experts that were chosen, ascending
	next    []int32
}

func (r *routing) init(p *Program, l Limits) {
	n := l.Rows * p.topK
	if n == 0 {
		return
	}
	*r = routing{
		experts: make([]int32, n), weights: make([]float32, n),
		rows: make([]int32, n), shares: make([]float32, n), places: make([]int32, n),
		begin: make([]int32, p.experts+1), next: make([]int32, p.experts), hit: make([]int32, 0, p.experts),
	}
}

// sort fills in what is by expert from the first n choices. It reports whether all of
// them are below count.
func (r *routing) sort(n, topK, count int) bool {
	clear(r.begin[:count+1])
	for _, e := range r.experts[:n] {
		if e < 0 || int(e) >= count {
			return false
		}
		r.begin[e+1]++
	}
	r.hit = r.hit[:0]
	for e := range count {
		if r.begin[e+1] > 0 {
			r.hit = append(r.hit, int32(e))
		}
		r.begin[e+1] += r.begin[e]
	}
	copy(r.next, r.begin[:count])
	for i, e := range r.experts[:n] {
		at := r.next[e]
		r.next[e]++
		r.rows[at], r.shares[at], r.places[at] = int32(i/topK), r.weights[i], int32(i)
	}
	return true
}
