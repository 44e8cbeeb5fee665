package nn

import (
	"strings"

	"github.com/heftai/heft/meta"
)

// moe is a mixture of experts (MoE): a router selects a few experts for each token.
type moe struct {
	path       string
	spec       *meta.MoESpec
	router     *linear
	table      *meta.Buffer // the experts of each token; nil if there is none
	tablePath  string       // of table
	correction *meta.Buffer // either this
	// or correctionParam, [1, experts]; neither is set if the spec names none
	correctionParam param
	expertScale     param // of ExpertsSpec; nil if there is none
	routerScale     param // of all weights; nil if there is none
	stack           Node
	downStack       Node    // of down; equal to stack unless the spec names another one
	gateUp          *linear // of all experts
	down            *linear
	inner           int
	width           int
	expertWidth     int     // width of the experts' inputs and results
	latentDown      *linear // nil if the experts' inputs are the hidden states
	latentUp        *linear
	shared          *mlp
	sharedGate      *linear
	scored          *scored     // nil if there is none
	deep            *deepRouter // nil if the router is one map
}

func (c *compiler) moe(n Node, in int) (*moe, error) {
	s, err := spec[meta.MoESpec](n, meta.KindMoE)
	if err != nil {
		return nil, err
	}
	if s.Count < 1 || s.TopK < 1 || s.TopK > s.Count+s.Identity {
		return nil, at(n.Path, "%d of %d experts", s.TopK, s.Count)
	}
	if s.Groups > 0 && (s.Count%s.Groups != 0 || s.TopGroups < 1 || s.TopGroups > s.Groups || s.TopGroups*(s.Count/s.Groups) < s.TopK) {
		return nil, at(n.Path, "%d of %d groups for %d of %d experts", s.TopGroups, s.Groups, s.TopK, s.Count)
	}
	if s.Identity > 0 {
		if s.Experts == "" || s.LatentDown != "" || s.ScaleInput || s.Groups > 0 || s.Table != "" {
			return nil, at(n.Path, "experts without weights in a mixture with groups, a table, scaled operands or maps around the experts")
		}
	}
	if s.Score == meta.ScoreSqrtSoftplus || s.Act == meta.ActClampedSiLU {
		c.together("experts with clamped gates or scores of softplus")
	}
	m := &moe{path: n.Path, spec: s, width: in, expertWidth: in}
	if s.Experts != "" { // otherwise the block has the router
		if err := c.routerOf(n, m); err != nil {
			return nil, err
		}
	}
	if err := c.latentsOf(n, m); err != nil {
		return nil, err
	}
	if err := c.stackOf(n, m); err != nil {
		return nil, err
	}
	if err := c.sharedOf(n, m, in); err != nil {
		return nil, err
	}
	if m.scored, err = c.scored(n, m); err != nil {
		return nil, err
	}
	c.usedBy(m)
	c.experts = append(c.experts, m.stack)
	if m.apart() {
		c.experts = append(c.experts, m.downStack)
	}
	c.program.experts, c.program.topK = max(c.program.experts, m.choices()), max(c.program.topK, s.Chosen())
	c.program.zeros = max(c.program.zeros, in, m.expertWidth)
	if s.ScaleInput {
		c.program.constants = max(c.program.constants, s.TopK)
	}
	return m, nil
}

// sharedOf compiles the shared expert, which every token uses, if there is one.
func (c *compiler) sharedOf(n Node, m *moe, in int) error {
	if m.spec.Shared == "" {
		return nil
	}
	child, err := c.child(n, "shared expert", m.spec.Shared)
	if err != nil {
		return err
	}
	if m.shared, err = c.mlp(child, in); err != nil {
		return err
	}
	if m.shared.adapter != nil || m.shared.scaled.Param != nil {
		return at(child.Path, "an adapter or a learned factor of the shared expert")
	}
	if m.shared.cols() != in {
		return at(child.Path, "a result of width %d in a stream of %d", m.shared.cols(), in)
	}
	if m.spec.SharedGate != "" {
		m.sharedGate, err = c.linearNamed(n, "gate of the shared expert", m.spec.SharedGate, in, 1)
	}
	return err
}

// apart reports whether the down projections are a stack of their own, whose experts are held
// after those of the other.
func (m *moe) apart() bool { return m.spec.DownExperts != "" }

// latentsOf compiles the projections before and after the experts, if there are any.
func (c *compiler) latentsOf(n Node, m *moe) (err error) {
	if m.spec.LatentDown == "" {
		return nil
	}
	if m.latentDown, err = c.linearNamed(n, "map before the experts", m.spec.LatentDown, m.width, 0); err != nil {
		return err
	}
	m.expertWidth = m.latentDown.out
	m.latentUp, err = c.linearNamed(n, "map behind the experts", m.spec.LatentUp, m.expertWidth, m.width)
	return err
}

func (c *compiler) routerOf(n Node, m *moe) error {
	router, err := c.child(n, "router", m.spec.Router)
	if err != nil {
		return err
	}
	if m.deep, err = c.deepRouter(router, m); err != nil {
		return err
	}
	if m.deep == nil {
		if err = c.routes(router, m, m.width); err != nil {
			return err
		}
	}
	if m.spec.RouterScale != "" {
		if m.routerScale, err = c.param(router, m.spec.RouterScale, 1); err != nil {
			return err
		}
		c.program.constants = max(c.program.constants, m.spec.Chosen())
	}
	if err := c.tableOf(router, m); err != nil || m.spec.Correction == "" {
		return err
	}
	holders := []*meta.Module{router.Module, n.Module}
	if i := strings.LastIndexByte(m.spec.Router, '.'); i >= 0 {
		holders = append(holders, n.Module.Find(m.spec.Router[:i]))
	}
	for _, node := range holders {
		for _, b := range node.Buffers {
			if b.Name == m.spec.Correction {
				m.correction = b
				return nil
			}
		}
	}
	at := router
	name := m.spec.Correction
	for _, node := range []Node{router, n} {
		if p := node.Module.Param(name); p != nil && len(p.Shape) == 1 {
			m.correctionParam, err = c.param(node, name, m.ranked())
			return err
		}
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		if at, err = c.child(router, "correction", name[:i]); err != nil {
			return err
		}
		name = name[i+1:]
	}
	m.correctionParam, err = c.param(at, name, 1, m.ranked())
	return err
}

// choices returns the number of logits of the router.
func (m *moe) choices() int { return m.ranked() + m.spec.Chosen() - m.spec.TopK }

// ranked returns the number of experts that the router chooses from.
func (m *moe) ranked() int { return m.spec.Count + m.spec.Identity }

// routes compiles the linear map of m's router, whose operand has in channels.
func (c *compiler) routes(n Node, m *moe, in int) (err error) {
	if m.router, err = c.affine(n, in, m.choices(), false); err != nil {
		return err
	}
	c.adaptable(m.router)
	c.banded = append(c.banded, m.router.weight.Param)
	m.router.exact = true // rounding must not change the selected experts
	return nil
}

// usedBy records the order in which routed uses the layers of m.
func (c *compiler) usedBy(m *moe) {
	shared := m.shared
	if shared == nil {
		shared = &mlp{}
	}
	c.usedNext(m.sharedGate, shared.fused, shared.gate, shared.up, m.router, shared.down, m.latentDown, m.latentUp)
}

// stackOf compiles the stacked parameters and derives the experts' width from them.
func (c *compiler) stackOf(n Node, m *moe) (err error) {
	s := m.spec
	if m.stack = n; s.Experts != "" {
		if m.stack, err = c.child(n, "experts", s.Experts); err != nil {
			return err
		}
	}
	gateUp := m.stack.Module.Param(s.GateUp)
	m.downStack = m.stack
	if s.DownExperts != "" {
		c.together("experts in two stacks")
		if m.downStack, err = c.child(n, "maps down of the experts", s.DownExperts); err != nil {
			return err
		}
	}
	if gateUp == nil || len(gateUp.Shape) != 3 {
		return at(m.stack.Path, "no parameter %q of three dimensions", s.GateUp)
	}
	both := gateUp.Shape[1]
	if s.Transposed {
		both = gateUp.Shape[2]
	}
	width := m.expertWidth
	if m.inner = both / 2; s.Plain {
		m.inner = both
	} else if both < 2 || both%2 != 0 {
		return at(m.stack.Path, "a fused gate of width %d", both)
	}
	up, down := []int{s.Count, both, width}, []int{s.Count, width, m.inner}
	if s.Transposed {
		up, down = []int{s.Count, width, both}, []int{s.Count, m.inner, width}
	}
	m.gateUp = &linear{in: width, out: both, transposed: s.Transposed, experts: s.Count}
	if err := c.stacked(m.stack, m.gateUp, s.GateUp, up, s.GateUpBias); err != nil {
		return err
	}
	m.down = &linear{in: m.inner, out: width, transposed: s.Transposed, experts: s.Count}
	if err := c.stacked(m.downStack, m.down, s.Down, down, s.DownBias); err != nil {
		return err
	}
	if s.SumBias != "" { // the weights add up to 1, so each expert may add it
		m.down.oneBias = true
		if m.down.bias, err = c.param(n, s.SumBias, width); err != nil {
			return err
		}
	}
	c.asks(m)
	return nil
}

// stacked compiles the parameters of a stack of linear layers. bias may be "".
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
