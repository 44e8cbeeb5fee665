package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Input is what one pass computes. Its slices are borrowed until the pass is over.
type Input struct {
	// Tokens has one id for each row.
	Tokens []int32
	// Hidden stands in for tokens, [rows, width]: for a tree that begins with hidden
	// states, or to go on from a unit that another context has run. It is copied.
	Hidden tensor.Tensor

	// Groups are the sequences of the pass as each group of layers sees them: with pages
	// and slots of its own. A tree without attention and positions needs none.
	Groups []Group
	// KV has the cache of each layer, of the widths that Program.KV tells, and says which
	// of Groups it belongs to.
	KV []kvcache.Layer
	// Lengths has for each row the number of tokens that its rotary frequencies are
	// made for: the whole prompt's for a prompt token, position + 1 for a generated
	// one. It may be nil where the program's RopeClass is 0 for every length.
	Lengths []int32

	// Prompts says of each row whether it is a token of a prompt, where linear maps may
	// round their inputs to the dtype of the weights: the two roles are summed in
	// different orders. With nil nothing is rounded and there is one order.
	Prompts []bool

	// Adapters are what is added to the linear maps for each row, nil for none; nil for no
	// row. The context must allow them.
	Adapters []*Adapter
	// Drops is nil but in training.
	Drops Drops

	// Logits are the rows whose logits are wanted, Normed those whose hidden state
	// after the final norm is. Sums are sums of such states.
	Logits, Normed []int32
	Sums           []Sum

	// Trace sees side outputs; nil for none.
	Trace Trace
}

// A Group is what layers with the same pages know of the sequences of a pass.
type Group struct {
	// Spans are the sequences. Together they cover all rows, in order; but for their pages
	// they are the same in all groups.
	Spans []backend.Span
	// Slots has the place of each row's keys and values.
	Slots []int32
}

// A Sum adds up the final hidden states of rows in their order: so that a sum that goes on
// from one of earlier passes is, bit by bit, that of one pass.
type Sum struct {
	meta.Rows
	From []float32 // nil: nothing came before
}

// A Context is the memory of one backend in which passes of a program run, one after
// another. One goroutine uses it.
type Context struct {
	program *Program
	backend backend.Backend
	weights Weights
	limits  Limits

	in    Input
	rows  int
	err   error // the first that a rule met; the rest of the unit does nothing
	arena arena

	state  [2]tensor.Tensor // the hidden states, and where the next go
	hidden tensor.Tensor    // a view of state[0]
	logits tensor.Tensor
	normed tensor.Tensor
	zero   tensor.Tensor // [1, Program.zeros], all 0
	ropes  []ropeTable

	products []backend.Product // that wait, see scope

	positions []int32
	iota      []int32 // 0, 1, 2, …
	nothing   []int32 // 0, 0, 0, …
	ones      []float32
	routing   routing
	lowRank   lowRank
}

// NewContext takes memory for passes within limits from b. Close gives it back.
func (p *Program) NewContext(b backend.Backend, w Weights, l Limits) (*Context, error) {
	if l.Rows < 1 || l.Outputs < 0 {
		return nil, fmt.Errorf("nn: limits of %d rows and %d outputs", l.Rows, l.Outputs)
	}
	memory, err := b.New(meta.Float32, p.floats(l))
	if err != nil {
		return nil, fmt.Errorf("nn: scratch memory: %w", err)
	}
	c := &Context{program: p, backend: b, weights: w, limits: l, arena: arena{memory: memory}}
	c.arena.recorder, _ = b.(backend.Recorder)
	c.zero = c.arena.take(1, p.zeros) // first, so that nothing was there before
	c.state[0] = c.arena.take(l.Rows, p.width)
	c.state[1] = c.arena.take(l.Rows, p.width)
	c.logits = c.arena.take(l.Outputs, p.vocab)
	c.normed = c.arena.take(l.Outputs, p.hidden)
	c.ropes = make([]ropeTable, len(p.ropes))
	for i, r := range p.ropes {
		c.ropes[i].init(c, r)
	}
	c.positions = make([]int32, l.Rows)
	c.iota = make([]int32, l.Rows*max(p.heads, 1))
	for i := range c.iota {
		c.iota[i] = int32(i)
	}
	c.nothing = make([]int32, l.Rows)
	c.ones = slices.Repeat([]float32{1}, l.Rows)
	c.routing.init(p, l)
	return c, nil
}

// Close frees the memory.
func (c *Context) Close() {
	c.backend.Free(c.arena.memory)
	if !c.lowRank.arena.memory.IsZero() {
		c.backend.Free(c.lowRank.arena.memory)
	}
	c.arena, c.lowRank = arena{}, lowRank{}
}

// Begin starts a pass. What is left of the one before is forgotten. An error says what
// is wrong with the input; no memory was written then.
func (c *Context) Begin(in *Input) error {
	rows, err := c.check(in)
	if err != nil {
		return err
	}
	c.in, c.rows, c.err = *in, rows, nil
	c.products = c.products[:0]
	if err := c.beginAdapters(); err != nil {
		return err
	}
	if len(in.Groups) > 0 {
		for _, s := range in.Groups[0].Spans {
			for i := range s.Rows {
				c.positions[s.First+i] = int32(s.Start + i)
			}
		}
	}
	if in.Hidden.IsZero() {
		c.hidden = tensor.Tensor{}
	} else {
		c.hidden = matrix(c.state[0], rows, in.Hidden.Cols())
		if err := c.backend.Copy(c.hidden, in.Hidden); err != nil {
			return fmt.Errorf("nn: input: %w", err)
		}
	}
	for i := range c.ropes {
		if err := c.ropes[i].fill(c); err != nil {
			return err
		}
	}
	return nil
}

// check says how many rows in has.
func (c *Context) check(in *Input) (int, error) {
	rows := len(in.Tokens)
	if !in.Hidden.IsZero() {
		if in.Hidden.Rank != 2 || in.Hidden.DType != meta.Float32 || in.Hidden.Cols() > c.program.width {
			return 0, fmt.Errorf("nn: input of %v %v; hidden states are float32 matrices of at most %d columns",
				in.Hidden.DType, in.Hidden.Shape(), c.program.width)
		}
		rows = in.Hidden.Rows()
	}
	switch p := c.program; {
	case rows < 1 || rows > c.limits.Rows:
		return 0, fmt.Errorf("nn: a pass of %d rows in a context for 1 to %d", rows, c.limits.Rows)
	case len(in.Logits) > c.limits.Outputs || len(in.Normed)+len(in.Sums) > c.limits.Outputs:
		return 0, fmt.Errorf("nn: %d rows of logits and %d of hidden states in a context for %d",
			len(in.Logits), len(in.Normed)+len(in.Sums), c.limits.Outputs)
	case len(p.layers) > 0 && len(in.KV) != len(p.layers):
		return 0, fmt.Errorf("nn: %d caches for %d layers", len(in.KV), len(p.layers))
	case in.Prompts != nil && len(in.Prompts) != rows:
		return 0, fmt.Errorf("nn: roles of %d rows for %d", len(in.Prompts), rows)
	case in.Adapters != nil && len(in.Adapters) != rows:
		return 0, fmt.Errorf("nn: adapters of %d rows for %d", len(in.Adapters), rows)
	case in.Lengths != nil && len(in.Lengths) != rows:
		return 0, fmt.Errorf("nn: %d rope lengths for %d rows", len(in.Lengths), rows)
	}
	for _, list := range [...][]int32{in.Logits, in.Normed} {
		for _, r := range list {
			if r < 0 || int(r) >= rows {
				return 0, fmt.Errorf("nn: output of row %d of %d", r, rows)
			}
		}
	}
	for _, s := range in.Sums {
		if s.Begin < 0 || s.Begin >= s.End || s.End > rows || (s.From != nil && len(s.From) != c.program.hidden) {
			return 0, fmt.Errorf("nn: sum of rows %d to %d of %d, from %d values", s.Begin, s.End, rows, len(s.From))
		}
	}
	return rows, c.checkGroups(in, rows)
}

// checkGroups looks at what the groups say of so many rows.
func (c *Context) checkGroups(in *Input, rows int) error {
	p := c.program
	if len(in.Groups) == 0 && p.spans() {
		return errors.New("nn: no spans of the rows")
	}
	for i, kv := range in.KV {
		if kv.Group < 0 || kv.Group >= len(in.Groups) {
			return fmt.Errorf("nn: layer %d is of group %d of %d", i, kv.Group, len(in.Groups))
		}
	}
	for i, g := range in.Groups {
		if len(p.layers) > 0 && len(g.Slots) != rows {
			return fmt.Errorf("nn: group %d: %d slots for %d rows", i, len(g.Slots), rows)
		}
		next := 0
		for j, s := range g.Spans {
			if s.First != next || s.Rows < 0 || s.Start < 0 {
				return fmt.Errorf("nn: group %d: span of rows %d+%d from position %d, where row %d is next", i, s.First, s.Rows, s.Start, next)
			}
			if i > 0 && (j >= len(in.Groups[0].Spans) || s.Start != in.Groups[0].Spans[j].Start || s.Rows != in.Groups[0].Spans[j].Rows) {
				return fmt.Errorf("nn: group %d: span %d is not that of the first group", i, j)
			}
			next += s.Rows
		}
		if next != rows && (next != 0 || p.spans()) {
			return fmt.Errorf("nn: group %d: spans cover %d of %d rows", i, next, rows)
		}
	}
	return nil
}

// Run computes the unit. The units of a program run in order, each once in a pass.
// When it returns its operations are done and its weights may go.
//
// After an error the pass is lost: what it stored in the cache is not valid.
func (u *Unit) Run(c *Context) error {
	mark := c.arena.used
	u.step.run(c)
	c.arena.used = mark
	c.sync(u.Path)
	return c.err
}

// Hidden are the hidden states after the last unit that ran, [rows, width]. It is
// valid until the next Run or Begin.
func (c *Context) Hidden() tensor.Tensor { return c.hidden }

// Logits are the rows that Input.Logits asked for, in that order, [len, vocab]. Valid
// after the last unit, until the next Begin.
func (c *Context) Logits() tensor.Tensor { return matrix(c.logits, len(c.in.Logits), c.program.vocab) }

// Normed are the final hidden states that Input.Normed asked for, [len, hidden].
func (c *Context) Normed() tensor.Tensor { return matrix(c.normed, len(c.in.Normed), c.program.hidden) }

// Sums are the sums that Input.Sums asked for, [len, hidden].
func (c *Context) Sums() tensor.Tensor {
	first := len(c.in.Normed)
	return matrix(c.normed, first+len(c.in.Sums), c.program.hidden).Slice(first, first+len(c.in.Sums))
}

// recording reports whether the pass is to be reversed.
func (c *Context) recording() bool { return c.arena.recorder != nil && c.arena.recorder.Recording() }

// fail keeps the first error of the pass.
func (c *Context) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("nn: "+format, args...)
	}
}

// sync waits for the operations so far and reports whether all is well. An error of a
// rule is the cause of what the backend met after it.
func (c *Context) sync(path string) bool {
	if err := c.backend.Sync(); err != nil && c.err == nil {
		c.err = fmt.Errorf("nn: %s: %w", path, err)
	}
	return c.err == nil
}

func (c *Context) trace(at Point, path string, x tensor.Tensor) {
	if c.in.Trace != nil && c.sync(path) {
		c.in.Trace.Trace(at, path, x)
	}
}
