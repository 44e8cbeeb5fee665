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

// Input is the input of one pass. Its slices must not change until the pass has ended.
type Input struct {
	// Tokens has one token id per row.
	Tokens []int32
	// Hidden, [rows, width], replaces Tokens for a tree whose input is hidden states, or to
	// continue after a unit that another context has run. Begin copies it.
	Hidden tensor.Tensor

	// Groups holds the sequences of the pass, once per group of layers with pages and slots of
	// its own. It is not needed for a tree without attention and positions.
	Groups []Group
	// KV is the cache of each layer, with the widths of Program.KV. Its Group selects the layer's
	// entry of Groups.
	KV []kvcache.Layer
	// States is the memory of each layer's states, [slots, elements], with the elements of
	// Program.States. StateSpans are the sequences of the pass, as in Groups. States that no span
	// reads or writes may have no memory.
	States     []tensor.Tensor
	StateSpans []backend.StateSpan
	// Lengths holds for each row the number of tokens for which its rotary frequencies are
	// computed: the length of the prompt for a prompt token, position + 1 for a generated one. It
	// may be nil if the program's RopeClass is 0 for every length.
	Lengths []int32

	// Positions holds the position of each row for rotary embeddings and the table of positions.
	// nil means the positions of Groups.
	Positions []int32

	// Prompts reports for each row whether it is a prompt token. For prompt tokens, linear layers
	// may round their inputs to the dtype of the weights, which changes the order of summation.
	// If Prompts is nil, nothing is rounded.
	Prompts []bool

	// Adapters is the adapter of each row, nil for none. The context must allow the adapters; see
	// [Context.Allow]. A nil slice means no adapters.
	Adapters []*Adapter
	// Drops is nil outside training.
	Drops Drops
	// Noise, [rows, width], is added to the embeddings of the tokens. The zero Tensor adds
	// nothing. It must not change until the backward pass has ended.
	Noise tensor.Tensor

	// Before is for a program that joins. It holds another model's hidden states at the token
	// before that of each row, as slices of one or more vectors of width [Program.Joins], in
	// order. Begin copies them.
	Before [][]float32

	// Logits are the rows to compute logits for. Normed are the rows whose hidden states after
	// the final norm are returned. Sums are sums of such states.
	Logits, Normed []int32
	Sums           []Sum

	// Trace receives intermediate results; it may be nil.
	Trace Trace

	unread bool // nothing reads what the running block computes, but its record
}

// A Group describes the sequences of a pass to the layers that share pages.
type Group struct {
	// Spans are the sequences. Together they cover all rows, in order. They must be equal in all
	// groups except for their pages.
	Spans []backend.Span
	// Slots is the cache slot of each row's keys and values.
	Slots []int32
}

// A Sum adds up the final hidden states of rows in order. A sum continued over several passes is
// bitwise equal to that of a single pass.
type Sum struct {
	meta.RowRange
	From []float32 // the sum of earlier passes; nil means 0
}

// A Context is the memory of one backend in which passes of a program run one after another. It
// is not safe for concurrent use.
type Context struct {
	program *Program
	backend backend.Backend
	weights Weights
	banded  BandedWeights // nil if weights does not implement it
	guesser Guesser       // nil if weights does not implement it
	limits  Limits

	in    Input
	rows  int
	err   error // first error of a rule; the rest of the unit is skipped
	arena arena
	// carried are the channels that the current block hands on, see [meta.CausalLMSpec].Carry.
	carried tensor.Tensor
	run     run // of the current block

	state   [2]tensor.Tensor // current and next hidden states
	hidden  tensor.Tensor    // a view of state[0]
	inputs  tensor.Tensor    // vectors of meta.PerLayerSpec for the rows of the pass, a view of the next field
	input   tensor.Tensor
	chosen  tensor.Tensor // positions that indexers select, see backend.Indexed; for the rows of the pass, a view of the next field
	choice  tensor.Tensor
	before  tensor.Tensor // of Input.Before
	logits  tensor.Tensor
	normed  tensor.Tensor
	zero    tensor.Tensor // [1, Program.zeros], all 0
	number  [8]byte       // see readNumber
	scales  []float32     // of experts, and their stored form: see scaleChosen
	stored  []byte
	between []float32 // hidden states that are copied between two devices; nil until Resume
	ropes   []ropeTable

	products []backend.Product // deferred products, see scope
	tiles    tiles

	positions []int32
	clipped   []int32 // see clip
	looked    []int32 // rows of one piece of a table, see embedding.lookupParts
	hashed    hashed
	places    []int32 // rows of the table of positions, if there is one
	iota      []int32 // 0, 1, 2, …
	nothing   []int32 // 0, 0, 0, …
	ones      []float32
	routing   routing
	lowRank   lowRank
	divide    func(*meta.Module) *ExpertPlaces // see DivideExperts; nil if nothing is divided
}

// NewContext allocates memory from b for passes within the limits l. Close frees it.
func (p *Program) NewContext(b backend.Backend, w Weights, l Limits) (*Context, error) {
	if l.Rows < 1 || l.Outputs < 0 || l.Tile < 0 {
		return nil, fmt.Errorf("nn: invalid limits: %d rows, %d outputs", l.Rows, l.Outputs)
	}
	memory, err := b.New(meta.Float32, p.floats(l))
	if err != nil {
		return nil, fmt.Errorf("nn: scratch memory: %w", err)
	}
	c := &Context{program: p, backend: b, weights: w, limits: l, arena: arena{memory: memory}}
	c.arena.recorder, _ = b.(backend.Recorder)
	c.banded, _ = w.(BandedWeights)
	c.guesser, _ = w.(Guesser)
	c.zero = c.arena.take(1, p.zeros) // first, so that the memory was never written
	c.state[0] = c.arena.take(l.Rows, p.width)
	if p.moves {
		c.state[1] = c.arena.take(l.Rows, p.width)
	}
	if p.perLayer > 0 {
		c.input = c.arena.take(l.Rows, p.perLayer)
		c.clipped = make([]int32, l.Rows)
	}
	c.choice = c.arena.take(l.Rows, p.chosen)
	c.before = c.arena.take(l.Rows, p.joins)
	c.logits = c.arena.take(l.Outputs, p.vocab)
	c.normed = c.arena.take(l.states(), p.hidden)
	c.ropes = make([]ropeTable, len(p.ropes))
	for i, r := range p.ropes {
		c.ropes[i].init(c, r, p.alphas[i])
	}
	c.positions = make([]int32, l.Rows)
	if p.positions {
		c.places = make([]int32, l.Rows)
	}
	n := l.Rows * max(p.constants, 1)
	c.iota = make([]int32, max(n, l.Rows*p.heads))
	for i := range c.iota {
		c.iota[i] = int32(i)
	}
	c.nothing = make([]int32, n)
	c.ones = slices.Repeat([]float32{1}, n)
	c.routing.init(p, l)
	c.hashed.init(p, l)
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

// Begin starts a pass and discards the state of the previous one. If the input is invalid, it
// returns an error and writes no memory.
func (c *Context) Begin(in *Input) error {
	rows, err := c.check(in)
	if err != nil {
		return err
	}
	c.in, c.rows, c.err = *in, rows, nil
	c.chosen = matrix(c.choice, rows, c.program.chosen)
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
	copy(c.positions, in.Positions)
	for i := range c.places[:min(rows, len(c.places))] {
		c.places[i] = c.positions[i] + c.program.firstPosition
	}
	if in.Hidden.IsZero() {
		c.hidden = tensor.Tensor{}
	} else {
		c.hidden = matrix(c.state[0], rows, in.Hidden.Cols())
		if err := c.backend.Copy(c.hidden, in.Hidden); err != nil {
			return fmt.Errorf("nn: input: %w", err)
		}
	}
	if err := c.join(in.Before); err != nil {
		return err
	}
	for i := range c.ropes {
		t := &c.ropes[i]
		if t.filled = false; t.alpha.Param != nil {
			continue // its first unit fills it
		}
		if err := t.fill(c); err != nil {
			return err
		}
	}
	return nil
}

// Resume continues a pass at units after those that another context has run. It copies the hidden
// states of from. Both contexts must have begun the pass. Resume waits for the copy, which goes
// through host memory if the devices differ.
func (c *Context) Resume(from *Context) error {
	h := from.hidden
	if h.IsZero() {
		return nil
	}
	c.hidden = matrix(c.state[0], c.rows, h.Cols())
	return c.receive(c.hidden, from, h)
}

// receive copies src of another context to dst. It waits for the copy, which goes through host
// memory if the devices differ.
func (c *Context) receive(dst tensor.Tensor, from *Context, src tensor.Tensor) error {
	switch {
	case src.Data != nil:
		return c.backend.Copy(dst, src)
	case dst.Data != nil:
		return from.backend.Copy(dst, src)
	}
	if n := src.Elements(); cap(c.between) < n {
		c.between = make([]float32, max(n, c.limits.Rows*c.program.width))
	}
	host := tensor.Floats(c.between[:src.Elements()], src.Rows(), src.Cols())
	if err := from.backend.Copy(host, src); err != nil {
		return err
	}
	return c.backend.Copy(dst, host)
}

// check validates in and returns its number of rows.
func (c *Context) check(in *Input) (int, error) {
	rows := len(in.Tokens)
	if !in.Hidden.IsZero() {
		if in.Hidden.Rank != 2 || in.Hidden.DType != meta.Float32 || in.Hidden.Cols() > c.program.width {
			return 0, fmt.Errorf("nn: hidden states are %v %v, want a float32 matrix of at most %d columns",
				in.Hidden.DType, in.Hidden.Shape(), c.program.width)
		}
		rows = in.Hidden.Rows()
	}
	switch p := c.program; {
	case rows < 1 || rows > c.limits.Rows:
		return 0, fmt.Errorf("nn: input has %d rows, want 1 to %d", rows, c.limits.Rows)
	case rows > c.limits.tile(rows) && in.Trace != nil:
		return 0, fmt.Errorf("nn: a traced pass has %d rows, want at most the %d of a tile", rows, c.limits.Tile)
	case len(in.Logits) > c.limits.Outputs || len(in.Normed)+len(in.Sums) > c.limits.states():
		return 0, fmt.Errorf("nn: input asks for %d rows of logits and %d of hidden states, want at most %d and %d",
			len(in.Logits), len(in.Normed)+len(in.Sums), c.limits.Outputs, c.limits.states())
	case len(p.layers) > 0 && len(in.KV) != len(p.layers):
		return 0, fmt.Errorf("nn: input has %d KV caches, want %d", len(in.KV), len(p.layers))
	case len(in.States) != len(p.states):
		return 0, fmt.Errorf("nn: input has %d states, want %d", len(in.States), len(p.states))
	case in.Prompts != nil && len(in.Prompts) != rows:
		return 0, fmt.Errorf("nn: Prompts has %d rows, want %d", len(in.Prompts), rows)
	case in.Adapters != nil && len(in.Adapters) != rows:
		return 0, fmt.Errorf("nn: Adapters has %d rows, want %d", len(in.Adapters), rows)
	case in.Positions != nil && len(in.Positions) != rows:
		return 0, fmt.Errorf("nn: Positions has %d rows, want %d", len(in.Positions), rows)
	case in.Lengths != nil && len(in.Lengths) != rows:
		return 0, fmt.Errorf("nn: Lengths has %d rows, want %d", len(in.Lengths), rows)
	}
	for _, list := range [...][]int32{in.Logits, in.Normed} {
		for _, r := range list {
			if r < 0 || int(r) >= rows {
				return 0, fmt.Errorf("nn: output row %d is outside the %d rows of the pass", r, rows)
			}
		}
	}
	for _, s := range in.Sums {
		if s.Begin < 0 || s.Begin >= s.End || s.End > rows || (s.From != nil && len(s.From) != c.program.hidden) {
			return 0, fmt.Errorf("nn: invalid sum: rows %d to %d of %d, from %d values", s.Begin, s.End, rows, len(s.From))
		}
	}
	return rows, c.checkGroups(in, rows)
}

// checkGroups validates the groups of a pass with the given number of rows.
func (c *Context) checkGroups(in *Input, rows int) error {
	p := c.program
	if len(in.Groups) == 0 && p.spans() {
		return errors.New("nn: input has no spans")
	}
	for i, kv := range in.KV {
		if kv.Group < 0 || kv.Group >= len(in.Groups) {
			return fmt.Errorf("nn: layer %d has group %d, want one of the %d groups", i, kv.Group, len(in.Groups))
		}
	}
	for i, g := range in.Groups {
		if len(p.layers) > 0 && len(g.Slots) != rows {
			return fmt.Errorf("nn: group %d has %d slots, want %d", i, len(g.Slots), rows)
		}
		next := 0
		for j, s := range g.Spans {
			if s.First != next || s.Rows < 0 || s.Start < 0 {
				return fmt.Errorf("nn: group %d: invalid span: rows %d+%d from position %d, want first row %d", i, s.First, s.Rows, s.Start, next)
			}
			if i > 0 && (j >= len(in.Groups[0].Spans) || s.Start != in.Groups[0].Spans[j].Start || s.Rows != in.Groups[0].Spans[j].Rows) {
				return fmt.Errorf("nn: group %d: span %d differs from that of the first group", i, j)
			}
			next += s.Rows
		}
		if next != rows && (next != 0 || p.spans()) {
			return fmt.Errorf("nn: group %d: spans cover %d of %d rows", i, next, rows)
		}
	}
	return nil
}

// Run computes the unit. The units of a program run in order, each once per pass. When Run
// returns, its operations have finished and its weights may be released.
//
// After an error the pass cannot continue, and the values that it stored in the cache are not
// valid.
func (u *Unit) Run(c *Context) error {
	_ = u.Start(c) // returns c.err
	c.sync(u.Path)
	return c.err
}

// Start is Run for a backend whose operations may still run when it returns, such as a GPU's. The
// next unit may start, but weights must not be released before [Context.Wait], which returns the
// errors of the operations.
func (u *Unit) Start(c *Context) error {
	mark := c.arena.used
	if c.learn(u.learned); c.err == nil {
		u.step.run(c)
	}
	c.arena.used = mark
	return c.err
}

// Wait waits for the operations of all started units. It returns the first error of the backend.
func (c *Context) Wait() error { return c.backend.Sync() }

// Hidden returns the hidden states after the last unit that ran, [rows, width]. They are valid
// until the next Run or Begin.
func (c *Context) Hidden() tensor.Tensor { return c.hidden }

// Logits returns the logits of the rows in Input.Logits, in that order, [len, vocab]. They are
// valid from the last unit to the next Begin.
func (c *Context) Logits() tensor.Tensor { return matrix(c.logits, len(c.in.Logits), c.program.vocab) }

// Normed returns the final hidden states of the rows in Input.Normed, [len, hidden].
func (c *Context) Normed() tensor.Tensor { return matrix(c.normed, len(c.in.Normed), c.program.hidden) }

// Sums returns the sums of Input.Sums, [len, hidden].
func (c *Context) Sums() tensor.Tensor {
	first := len(c.in.Normed)
	return matrix(c.normed, first+len(c.in.Sums), c.program.hidden).Slice(first, first+len(c.in.Sums))
}

// recording reports whether the pass is recorded for a backward pass.
func (c *Context) recording() bool { return c.arena.recorder != nil && c.arena.recorder.Recording() }

// fail records the first error of the pass.
func (c *Context) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("nn: "+format, args...)
	}
}

// sync waits for pending operations and reports whether all have succeeded. An error of a rule
// takes precedence over later errors of the backend.
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
