package nn

import (
	"github.com/heftai/heft/internal/tensor"
)

// gates are the two halves of a fused projection: the gate and the values that it multiplies.
// They are columns of both, unless the weights are stored with interleaved rows: then both is
// zero.
type gates struct{ both, gate, up tensor.Tensor }

// slice returns rows [begin, end).
func (g gates) slice(begin, end int) gates {
	g.gate = g.gate.Slice(begin, end)
	if !g.up.IsZero() {
		g.up = g.up.Slice(begin, end)
	}
	if !g.both.IsZero() {
		g.both = g.both.Slice(begin, end)
	}
	return g
}

// takeGates allocates memory for rows of a fused projection.
func (r *linear) takeGates(c *Context, rows int, interleaved bool) gates {
	inner := r.out / 2
	if interleaved {
		return gates{gate: c.arena.take(rows, inner), up: c.arena.take(rows, inner)}
	}
	both := c.arena.take(rows, r.out)
	return gates{both: both, gate: both.Columns(0, inner), up: both.Columns(inner, r.out)}
}

// gates computes a fused projection, for one expert if r is a stack.
func (r *linear) gates(c scope, to gates, x tensor.Tensor, expert int) {
	interleaved := to.both.IsZero()
	r.each(c, x.Rows(), expert, func(c scope, begin, end int, w boundLinear) {
		to, x := to.slice(begin, end), x.Slice(begin, end)
		if interleaved {
			w.alternating(c, to.gate, to.up, x)
		} else {
			w.apply(c, to.both, x)
		}
	})
	if len(c.lowRank.groups) == 0 {
		return
	}
	second, step := r.out/2, 1
	if interleaved {
		second, step = 1, 2
	}
	c.adaptPart(part{number: r.number, step: step, expert: expert}, to.gate, x)
	c.adaptPart(part{number: r.number, first: second, step: step, expert: expert}, to.up, x)
}

// alternates records that passes compute even and odd rows of r separately, by gates.
func (c *compiler) alternates(r *linear) {
	r.partial = true
	c.program.asked.maps = append(c.program.asked.maps, mapped{linear: r, step: 2, in: r.in, out: r.out / 2})
}
