package nn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A run is one of several runs of a block within a pass.
type run struct {
	offset, states int       // added to the indices of layers of the KV cache and of states
	entry          *runEntry // before the first block of some runs; otherwise nil
	detached       bool      // no gradient passes the result of this block, the run's last one
	width          int       // of the hidden states
}

// runEntry changes the hidden states and the kept ones, see [meta.RunEntrySpec].
type runEntry struct {
	norm         *norm // nil for none
	first, keeps bool
	width        int // of the hidden states
}

// runs creates the units of s.Runs: one for each block of each run.
func (c *compiler) runs(root Node, s *meta.CausalLMSpec, width int) error {
	first := map[string]*Unit{}
	for _, r := range s.Runs {
		list, err := c.child(root, "blocks", r.Blocks)
		if err != nil {
			return err
		}
		if n := len(list.Module.Children); r.From < 0 || r.To <= r.From || r.To > n || r.Offset < 0 || r.States < 0 {
			return at(list.Path, "a run of blocks %d to %d of %d, with offsets %d and %d", r.From, r.To, n, r.Offset, r.States)
		}
		for i := r.From; i < r.To; i++ {
			layer := list.Module.Children[i]
			n := Node{meta.Join(list.Path, layer.Name), layer.Resolve()}
			this := &run{offset: r.Offset, states: r.States, detached: r.Detached && i == r.To-1, width: c.program.streamWidth}
			var read []Node
			if r.Entry != nil && i == r.From {
				if this.entry, read, err = c.runEntry(root, r.Entry); err != nil {
					return err
				}
			}
			if first[n.Path] == nil {
				first[n.Path], err = c.firstRun(n, this, read, width)
			} else {
				err = c.laterRun(first[n.Path], this, read)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// firstRun compiles a block and creates the unit of its first run. read are the modules that the
// run's entry reads.
func (c *compiler) firstRun(n Node, r *run, read []Node, width int) (*Unit, error) {
	if r.offset != 0 || r.states != 0 {
		return nil, at(n.Path, "offsets %d and %d of the first run of a block", r.offset, r.states)
	}
	b, err := c.block(n, width)
	if err != nil {
		return nil, err
	}
	c.unit(&ruleStep{rule: b, in: width, path: n.Path, turn: r}, append([]Node{{n.Path, n.Module.WithoutUnread()}}, read...)...)
	return c.program.Units[len(c.program.Units)-1], nil
}

// laterRun creates the unit of another run of the block of a unit: with the same weights, and
// with layers of the KV cache and states of its own.
func (c *compiler) laterRun(of *Unit, r *run, read []Node) error {
	u := *of
	step := *of.step.(*ruleStep)
	step.turn, u.step, u.Layers, u.States = r, &step, nil, nil
	u.Modules = append(slices.Clone(u.Modules), read...)
	for _, l := range of.Layers {
		if err := c.cache(fmt.Sprintf("%s in a run with offset %d", of.Path, r.offset), l+r.offset, c.program.layers[l]); err != nil {
			return err
		}
	}
	for _, s := range of.States {
		if err := c.state(fmt.Sprintf("%s in a run with offset %d", of.Path, r.states), s+r.states, c.program.states[s]); err != nil {
			return err
		}
	}
	u.Layers, u.States, c.layers, c.held = c.layers, c.held, nil, nil
	c.program.Units = append(c.program.Units, &u)
	return nil
}

// runEntry compiles what comes before a run. It also returns the modules with parameters that it
// reads.
func (c *compiler) runEntry(root Node, s *meta.RunEntrySpec) (e *runEntry, read []Node, err error) {
	e = &runEntry{first: s.First, keeps: s.Keeps, width: c.program.streamWidth}
	if e.width == 0 || c.program.width != 2*e.width {
		return nil, nil, at(root.Path, "kept states in rows of %d channels, want twice the hidden states' %d", c.program.width, e.width)
	}
	if e.norm, err = c.normNamed(root, "norm before a run", s.Norm, e.width); err != nil || e.norm == nil {
		return e, nil, err
	}
	if n := (Node{e.norm.path, root.Module.Find(s.Norm).Resolve()}); len(n.Module.Params) > 0 {
		read = append(read, n)
	}
	return e, read, nil
}

// begin makes the run the current one, and applies its entry. r may be nil: the block has one run.
func (r *run) begin(c *Context, x tensor.Tensor) {
	if r == nil {
		c.run = run{}
		return
	}
	if c.run = *r; r.entry != nil {
		r.entry.apply(c, x)
	}
}

// end ends the run of a block with the result x. r may be nil.
func (r *run) end(c *Context, x tensor.Tensor) {
	if r != nil && r.detached {
		c.detach(c.residual(x))
	}
}

// detach makes x a constant for the backward pass: its record is a product with 0, behind which
// its values return.
func (c *Context) detach(x tensor.Tensor) {
	if !c.recording() || c.err != nil {
		return
	}
	mark := c.arena.used
	y := c.arena.take(x.Rows(), x.Cols())
	c.arena.recorder.Pause()
	c.copyRows(y, x)
	c.arena.recorder.Record()
	c.scale(x, 0)
	c.arena.recorder.Pause()
	c.add(x, y, 1)
	c.arena.recorder.Record()
	c.arena.used = mark
}

// apply changes the rows of x, of hidden states and kept ones.
func (e *runEntry) apply(c *Context, x tensor.Tensor) {
	hidden, kept := x.Columns(0, e.width), x.Columns(e.width, 2*e.width)
	if e.norm != nil {
		e.norm.forward(c, hidden, hidden)
	}
	if e.first && c.err == nil {
		c.copyRows(kept, hidden)
	}
	tile := c.limits.tile(x.Rows())
	for begin := 0; begin < x.Rows() && c.err == nil; begin += tile {
		end := min(begin+tile, x.Rows())
		e.sum(c, hidden.Slice(begin, end), kept.Slice(begin, end))
	}
}

// sum adds the kept states to x. The kept states become x as it was, if e keeps it.
func (e *runEntry) sum(c *Context, x, kept tensor.Tensor) {
	if !e.keeps {
		c.add(x, kept, 1)
		return
	}
	mark := c.arena.used
	y := c.arena.take(x.Rows(), x.Cols())
	c.copyRows(y, x)
	c.add(x, kept, 1)
	if c.err == nil {
		c.copyRows(kept, y)
	}
	c.arena.used = mark
}

// scratch returns the scratch memory of the beginning of a run, which may be nil.
func (r *run) scratch(l Limits) int {
	switch {
	case r == nil:
		return 0
	case r.entry == nil:
		return floats(l.tile(l.Rows), r.width)
	}
	n := floats(l.tile(l.Rows), r.entry.width)
	if r.entry.norm != nil {
		n = max(n, r.entry.norm.scratch(l.Rows))
	}
	return n
}

// carryStart compiles the kept states that the first block finds. It appends the node with the
// Param.
func (c *compiler) carryStart(n Node, s *meta.CausalLMSpec, step *embedStep, nodes *[]Node) (err error) {
	if s.CarryStart == "" {
		return nil
	}
	last := strings.LastIndexByte(s.CarryStart, '.')
	child, err := c.child(n, "module with the first kept states", s.CarryStart[:max(last, 0)])
	if err != nil {
		return err
	}
	step.start, err = c.param(child, s.CarryStart[last+1:], s.Carry)
	own := *child.Module
	own.Children = nil
	*nodes = append(*nodes, Node{child.Path, &own})
	return err
}
