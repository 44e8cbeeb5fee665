package nn

import (
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// scored are experts that every token uses, weighted by the router, see [meta.ScoredSpec].
type scored struct {
	count    int
	gate, up headMap // separate, or
	both     headMap // with alternating rows of gate and up
	down     headMap
	inner    int
	width    int
}

// scored compiles these experts of a MoE layer. It returns nil if there are none.
func (c *compiler) scored(n Node, m *moe) (*scored, error) {
	s := m.spec.Scored
	if s == nil {
		return nil, nil
	}
	if s.Count < 1 || m.spec.Identity > 0 || m.latentDown != nil || m.spec.Table != "" || m.spec.Experts == "" || m.spec.Groups > 0 || m.apart() || m.spec.Score != meta.ScoreSigmoid || !m.spec.Renormalise {
		return nil, at(n.Path, "%d scored experts in a mixture of another kind than one of sigmoids that are divided by their sum", s.Count)
	}
	c.together("experts that every token passes with a weight of the router")
	child, err := c.child(n, "scored experts", s.Name)
	if err != nil {
		return nil, err
	}
	r := &scored{count: s.Count, width: m.width}
	down := child.Module.Param(s.Down)
	if down == nil || len(down.Shape) != 3 {
		return nil, at(child.Path, "no parameter %q of three dimensions", s.Down)
	}
	r.inner = down.Shape[2]
	if r.down, err = c.headMap(child, s.Down, "", s.Count, r.inner, m.width, false); err != nil {
		return nil, err
	}
	if s.GateUp != "" {
		if m.spec.GateOrder != meta.GateInterleaved {
			return nil, at(child.Path, "gates of scored experts in one parameter whose rows do not take turns")
		}
		r.both, err = c.headMap(child, s.GateUp, "", s.Count, m.width, 2*r.inner, false)
		c.program.asked.maps[len(c.program.asked.maps)-1].step, c.program.asked.maps[len(c.program.asked.maps)-1].out = 2, r.inner
		return r, err
	}
	if r.gate, err = c.headMap(child, s.Gate, "", s.Count, m.width, r.inner, false); err != nil {
		return nil, err
	}
	r.up, err = c.headMap(child, s.Up, "", s.Count, m.width, r.inner, false)
	return r, err
}

// passScored adds the results of scored experts for x to dst, in ascending order.
func (m *moe) passScored(c *Context, dst, x tensor.Tensor) {
	s, r := m.scored, &c.routing
	if s == nil || c.err != nil {
		return
	}
	most := min(x.Rows(), max(moreRows, fewRows))
	for e := range s.count {
		at, last := int(r.begin[m.spec.Count+e]), int(r.begin[m.spec.Count+e+1])
		if last-at != x.Rows() {
			c.fail("%s: %d of %d tokens pass scored expert %d", m.path, last-at, x.Rows(), e)
			return
		}
		for first := 0; first < x.Rows() && c.err == nil; first += most {
			end := min(first+most, x.Rows())
			mark := c.arena.used
			y := c.arena.take(end-first, m.width)
			s.forward(c.all().at(r.rows[at+first:at+end]), m.spec, e, y, x.Slice(first, end))
			if c.err == nil {
				c.backend.ScatterAdd(dst, y, r.rows[at+first:at+end], r.shares[at+first:at+end])
			}
			c.arena.used = mark
		}
	}
}

// forward sets y to the result of expert e for x.
func (s *scored) forward(c scope, spec *meta.MoESpec, e int, y, x tensor.Tensor) {
	gate, up := c.arena.take(x.Rows(), s.inner), c.arena.take(x.Rows(), s.inner)
	if s.both.of != nil {
		s.both.alternating(c, e, gate, up, x)
	} else {
		s.gate.forward(c, e, gate, x)
		s.up.forward(c, e, up, x)
	}
	if c.err != nil {
		return
	}
	gated := c.arena.spare(gate)
	c.activate(gated, gate, up, gating{spec.Act, spec.Limit, spec.Alpha})
	s.down.forward(c, e, y, gated)
}

// scratch returns the scratch memory of s, which may be nil.
func (s *scored) scratch(rows int) int {
	if s == nil {
		return 0
	}
	rows = min(rows, max(moreRows, fewRows))
	return floats(rows, s.width) + 2*floats(rows, s.inner)
}
