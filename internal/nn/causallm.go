package nn

import (
	"strings"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// causalLM creates the units of a decoder: the embedding, each layer, and the final norm with the
// head.
func (c *compiler) causalLM(root *meta.Module) error {
	n := Node{Module: root}
	s, err := spec[meta.CausalLMSpec](n, meta.KindCausalLM)
	if err != nil {
		return err
	}
	width, err := c.embedUnit(n, s)
	if err != nil {
		return err
	}
	if len(s.Runs) > 0 {
		if err := c.runs(n, s, width); err != nil {
			return err
		}
		return c.headUnit(n, s, width)
	}
	layers, err := c.child(n, "layers", s.Layers)
	if err != nil {
		return err
	}
	var before *block
	for _, layer := range layers.Module.Children {
		at := Node{meta.Join(layers.Path, layer.Name), layer.Resolve()}
		b, err := c.block(at, width)
		if err != nil {
			return err
		}
		if before != nil && before.plain() {
			before.next = b.guessed()
		}
		before = b
		c.unit(&ruleStep{rule: b, in: width, path: at.Path}, Node{at.Path, at.Module.WithoutUnread()})
	}
	return c.headUnit(n, s, width)
}

func (c *compiler) embedUnit(n Node, s *meta.CausalLMSpec) (width int, err error) {
	table, err := c.child(n, "embedding", s.Embed)
	if err != nil {
		return 0, err
	}
	nodes := []Node{table}
	step := &embedStep{scale: orOne(s.EmbedScale)}
	if step.tokens, err = c.embedding(table); err != nil {
		return 0, err
	}
	if width = step.tokens.dim; s.EmbedProject != "" {
		if step.project, err = c.linearNamed(n, "projection of the embeddings", s.EmbedProject, width, 0); err != nil {
			return 0, err
		}
		width, nodes = step.project.out, append(nodes, root(n, s.EmbedProject))
	}
	if nodes, err = c.positions(n, s, step, nodes, width); err != nil {
		return 0, err
	}
	if s.EmbedNorm != "" {
		if step.norm, err = c.normNamed(n, "norm of the embeddings", s.EmbedNorm, width); err != nil {
			return 0, err
		}
		if node := root(n, s.EmbedNorm); len(node.Module.Params) > 0 && !strings.HasPrefix(s.EmbedNorm, s.Embed+".") {
			nodes = append(nodes, node)
		}
	}
	if s.PerLayer != nil {
		more, err := c.perLayer(n, s.PerLayer, width)
		if err != nil {
			return 0, err
		}
		step.perLayer = more
		nodes = append(nodes, more.nodes...)
	}
	if s.Join != nil {
		if step.join, err = c.join(n, s.Join, width); err != nil {
			return 0, err
		}
		nodes = append(nodes, step.join.nodes...)
	}
	if width, err = step.widened(n, s, width); err != nil {
		return 0, err
	}
	if s.AltUp != nil {
		if step.altUp, err = c.altUpEnds(n, s.AltUp, s.AltUp.In, width); err != nil {
			return 0, err
		}
		nodes, width = append(nodes, step.altUp.nodes...), step.altUp.width()
	}
	if width, err = c.behind(n, s, step, width, &nodes); err != nil {
		return 0, err
	}
	if step.sum, err = c.embedSum(n, s.EmbedSum, step.tokens.dim, &nodes); err != nil {
		return 0, err
	}
	c.widen(width)
	c.unit(step, nodes...)
	return width, nil
}

// positions compiles the positional terms that are added to the embeddings, and appends its
// nodes.
func (c *compiler) positions(n Node, s *meta.CausalLMSpec, step *embedStep, nodes []Node, width int) ([]Node, error) {
	if s.Positions != "" {
		positions, err := c.child(n, "positions", s.Positions)
		if err != nil {
			return nil, err
		}
		if step.positions, err = c.embedding(positions); err != nil {
			return nil, err
		}
		if step.positions.dim != width {
			return nil, at(positions.Path, "positions of width %d for embeddings of %d", step.positions.dim, width)
		}
		if s.FirstPosition < 0 || s.FirstPosition >= step.positions.rows {
			return nil, at(positions.Path, "the first of %d positions is %d", step.positions.rows, s.FirstPosition)
		}
		c.program.positions, c.program.firstPosition = true, int32(s.FirstPosition)
		nodes = append(nodes, positions)
	}
	if s.Sinusoids != nil {
		if s.Sinusoids.Dim != width {
			return nil, at(n.Path, "sinusoids of width %d for embeddings of %d", s.Sinusoids.Dim, width)
		}
		var err error
		if step.table, err = c.rope(n.Path, s.Sinusoids, width); err != nil {
			return nil, err
		}
		step.sinusoids = true
	}
	return nodes, nil
}

// widened returns the width of the embeddings in all streams.
func (s *embedStep) widened(n Node, spec *meta.CausalLMSpec, width int) (int, error) {
	if a := spec.AltUp; a != nil && (spec.Positions != "" || spec.Sinusoids != nil || spec.EmbedNorm != "" || spec.Streams != nil || spec.Join != nil || spec.EmbedProject != "" || a.Count < 1) {
		return 0, at(n.Path, "alternating updates of %d streams beside positions, norms or other parts of embeddings", a.Count)
	}
	switch {
	case spec.KeepsEmbeddings:
		s.streams = 2
	case spec.Streams == nil:
		return width, nil
	default:
		s.streams = spec.Streams.Count
	}
	if spec.Positions != "" || spec.Sinusoids != nil || spec.EmbedNorm != "" || spec.PerLayer != nil || spec.Join != nil || spec.EmbedProject != "" || s.streams < 1 {
		return 0, at(n.Path, "%d streams beside positions, norms or other parts of embeddings", s.streams)
	}
	return s.tokens.dim * s.streams, nil
}

// root returns the node of a path below n. The path must exist.
func root(n Node, path string) Node {
	return Node{meta.Join(n.Path, path), n.Module.Find(path).Resolve()}
}

func (c *compiler) headUnit(n Node, s *meta.CausalLMSpec, width int) error {
	step := &headStep{scale: orOne(s.LogitScale), softcap: s.LogitSoftcap}
	var nodes []Node
	var err error
	if c.program.streamWidth > 0 {
		width = c.program.streamWidth
	}
	if s.Norm != "" {
		final, err := c.child(n, "final norm", s.Norm)
		if err != nil {
			return err
		}
		nodes = append(nodes, final)
	}
	if s.Streams != nil {
		if step.streams, err = c.mixer(n, s.Streams, s.Streams.Head, "hc_", width, true); err != nil {
			return err
		}
		width = step.streams.channels()
		nodes = append(nodes, root(n, s.Streams.Head))
	}
	if s.AltUp != nil {
		if step.altUp, err = c.altUpEnds(n, s.AltUp, s.AltUp.Out, width/s.AltUp.Count); err != nil {
			return err
		}
		for _, l := range step.altUp.maps {
			c.needWhole(l) // used alternately by several kinds of results
		}
		width = step.altUp.hidden
		nodes = append(nodes, step.altUp.nodes...)
	}
	if step.norm, err = c.finalNorm(n, s, width); err != nil {
		return err
	}
	if step.cols = width; s.NormProject != "" {
		if step.project, err = c.linearNamed(n, "projection of the final states", s.NormProject, width, 0); err != nil {
			return err
		}
		c.needWhole(step.project) // used alternately by several kinds of results
		step.wide, width = width, step.project.out
		step.cols, nodes = width, append(nodes, root(n, s.NormProject))
	}
	if step.before, err = c.beforeHead(n, s.BeforeHead, width, &nodes); err != nil {
		return err
	}
	head, err := c.child(n, "head", s.Head)
	if err != nil {
		return err
	}
	if step.head, err = c.linear(head, width); err != nil {
		return err
	}
	c.program.hidden, c.program.vocab = width, step.head.cols()
	if s.Vocab > 0 && s.Vocab < c.program.vocab {
		step.padded, c.program.vocab = true, s.Vocab
	}
	step.channels, err = c.channelScale(head, s.LogitChannels, step.head.cols())
	c.unit(step, append(nodes, head)...)
	return err
}

// orOne returns x, or 1 if x is 0: a spec's default for factors.
func orOne(x float32) float32 {
	if x == 0 {
		return 1
	}
	return x
}

// embedStep starts a pass with the embeddings of its tokens.
type embedStep struct {
	tokens, positions *embedding // positions may be nil
	project           *linear    // of the embeddings; nil if there is none
	sinusoids         bool       // sinusoids of positions are added, from the table with this number
	table             int
	norm              *norm // nil if there is none
	scale             float32
	perLayer          *perLayer  // nil if there is none
	join              *join      // nil if there is none
	altUp             *altUpEnds // splits the embeddings into streams; nil if there is one stream
	streams           int        // number of equal streams of the result; 0 means one
	sum               *affine    // of the embeddings; nil for none
	carry             int        // channels behind the embeddings, which blocks hand on
	start             param      // of these channels; empty if they begin without values
}

func (s *embedStep) run(c *Context) {
	if len(c.in.Tokens) != c.rows {
		c.fail("%s: %d tokens for %d rows", s.tokens.path, len(c.in.Tokens), c.rows)
		return
	}
	dim := s.tokens.dim
	c.hidden = matrix(c.state[0], c.rows, s.width())
	embedded := columns(c.hidden, 0, min(dim, c.hidden.Cols()))
	if s.project != nil {
		embedded = c.arena.take(c.rows, dim)
	}
	s.tokens.lookup(c, embedded, c.in.Tokens, s.scale, "token")
	if !c.in.Noise.IsZero() {
		c.backend.Add(embedded, c.in.Noise, 1)
	}
	s.sum.apply(c, embedded)
	if s.start.Param != nil && c.err == nil {
		carry := c.hidden.Columns(dim, dim+s.carry)
		c.repeatVector(carry, s.start)
		c.detach(carry)
	}
	if s.project != nil {
		s.project.forward(c, c.hidden, embedded)
	}
	for i := 1; i < s.streams && c.err == nil; i++ {
		c.copyRows(c.hidden.Columns(i*dim, (i+1)*dim), embedded)
	}
	if s.positions != nil {
		x := c.arena.take(c.rows, s.positions.dim)
		s.positions.lookup(c, x, c.places[:c.rows], 1, "position")
		c.backend.Add(c.hidden, x, 1)
	}
	if s.sinusoids {
		t := &c.ropes[s.table]
		c.backend.Add(c.hidden.Columns(0, dim/2), t.sin, 1)
		c.backend.Add(c.hidden.Columns(dim/2, dim), t.cos, 1)
	}
	if s.norm != nil && c.err == nil {
		s.norm.forward(c, c.hidden, c.hidden)
	}
	if s.perLayer != nil {
		s.perLayer.forward(c, embedded)
	}
	if s.altUp != nil {
		s.altUp.open(c, c.hidden)
	}
	if s.join != nil {
		s.join.forward(c)
	}
	c.trace(PointEmbedding, s.tokens.path, c.residual(c.hidden))
}

// width returns the width of the hidden states.
func (s *embedStep) width() int {
	if s.altUp != nil {
		return s.altUp.width()
	}
	if s.project != nil {
		return s.project.out
	}
	return s.tokens.dim*max(s.streams, 1) + s.carry
}

func (s *embedStep) scratch(l Limits) int {
	n := max(s.perLayer.scratch(l), s.join.scratch(l))
	if s.positions != nil {
		n = max(n, floats(l.Rows, s.positions.dim))
	}
	if s.sum != nil {
		n = max(n, floats(l.Rows, s.tokens.dim))
	}
	if s.start.Param != nil {
		n = max(n, floats(l.Rows, s.carry))
	}
	if s.project != nil {
		n += floats(l.Rows, s.tokens.dim)
	}
	return n
}

// headStep ends a pass with the requested rows.
type headStep struct {
	norm     *norm       // nil if there is none
	project  *linear     // applied to the result of the norm; nil if there is none
	cols     int         // input width of head
	wide     int         // input width of project
	before   *beforeHead // nil if there is none
	head     *linear
	channels *channelScale // of logits; nil for none
	padded   bool          // head has more rows than there are logits
	scale    float32
	softcap  float32
	altUp    *altUpEnds // merges several streams; nil if there is one stream
	streams  mixer      // merges several streams; nil if there is one stream
}

func (s *headStep) run(c *Context) {
	if c.in.Trace != nil && !c.recording() {
		mark := c.arena.used
		all := c.arena.take(c.rows, s.cols)
		s.normalise(c.all(), all, c.residual(c.hidden))
		c.trace(PointNorm, s.path(), all)
		c.arena.used = mark
	}
	if rows := c.in.Normed; len(rows) > 0 {
		s.gather(c, c.Normed(), rows)
	}
	if len(c.in.Sums) > 0 {
		s.sum(c)
	}
	if rows := c.in.Logits; len(rows) > 0 {
		x := c.arena.take(len(rows), s.cols)
		s.gather(c, x, rows)
		logits := c.Logits()
		s.multiply(c.all().at(rows), logits, x)
		if s.scale != 1 || s.softcap > 0 {
			c.backend.Scale(logits, s.scale, s.softcap)
		}
	}
}

// multiply sets logits to the products of x with the head, or with its first rows.
func (s *headStep) multiply(c scope, logits, x tensor.Tensor) {
	mark := c.arena.used
	x = s.before.apply(c, x)
	if !s.padded {
		s.head.compute(c, logits, x, 0)
		s.channels.apply(c.Context, logits)
		c.arena.used = mark
		return
	}
	all := c.arena.take(x.Rows(), s.head.cols())
	s.head.compute(c, all, x, 0)
	s.channels.apply(c.Context, all)
	if c.err == nil {
		c.copyRows(logits, all.Columns(0, logits.Cols()))
	}
	c.arena.used = mark
}

// gather normalises only the selected rows. The norm of a row does not depend on the others.
func (s *headStep) gather(c *Context, dst tensor.Tensor, rows []int32) {
	mark := c.arena.used
	x, hidden := dst, c.residual(c.hidden)
	if s.streams != nil || s.altUp != nil || s.project != nil {
		x = c.arena.take(len(rows), hidden.Cols())
	}
	c.backend.Gather(x, hidden, rows)
	s.normalise(c.all().at(rows), dst, x)
	c.arena.used = mark
}

// normalise sets dst to the final norm of hidden states x.
func (s *headStep) normalise(c scope, dst, x tensor.Tensor) {
	if s.streams != nil {
		s.streams.collapse(c, dst, x)
		x = dst
	}
	if s.altUp != nil {
		s.altUp.collapse(c, dst, x)
		x = dst
	}
	if s.project == nil {
		s.finish(c, dst, x)
		return
	}
	mark := c.arena.used
	y := c.arena.take(x.Rows(), s.wide)
	s.finish(c, y, x)
	s.project.compute(c, dst, y, 0)
	c.arena.used = mark
}

// finish sets dst to the norm of x, or to x if there is no norm.
func (s *headStep) finish(c scope, dst, x tensor.Tensor) {
	switch {
	case s.norm != nil:
		s.norm.compute(c, dst, x)
	case !tensor.Same(dst, x):
		c.copyRows(dst, x)
	}
}

// path returns the path of the module that computes [Input.Normed].
func (s *headStep) path() string {
	if s.norm == nil {
		return s.head.path
	}
	return s.norm.path
}

// sum adds up the normalised rows of each range in order, some rows at a time.
func (s *headStep) sum(c *Context) {
	mark := c.arena.used
	normed := c.arena.take(c.limits.tile(c.rows), s.cols)
	sums, hidden := c.Sums(), c.residual(c.hidden)
	for i, r := range c.in.Sums {
		sum, started := sums.Slice(i, i+1), r.From != nil
		if started {
			if err := c.backend.Copy(sum, tensor.Floats(r.From, 1, sum.Cols())); err != nil {
				c.fail("%s: %w", s.path(), err)
				return
			}
		}
		for begin := r.Begin; begin < r.End; begin += normed.Rows() {
			end := min(begin+normed.Rows(), r.End)
			x := hidden.Slice(begin, end)
			y := normed.Slice(0, x.Rows())
			s.normalise(c.all().at(c.iota[begin:end]), y, x)
			if !started {
				c.backend.Gather(sum, y.Slice(0, 1), c.nothing[:1])
				y, started = y.Slice(1, y.Rows()), true
			}
			if n := y.Rows(); n > 0 {
				c.backend.ScatterAdd(sum, y, c.nothing[:n], c.ones[:n])
			}
		}
	}
	c.arena.used = mark
}

func (s *headStep) scratch(l Limits) int {
	rows := max(l.tile(l.Rows), l.Outputs)
	n := floats(rows, s.cols)
	if s.padded {
		n += floats(l.Outputs, s.head.cols())
	}
	n += s.channels.scratch(l.Outputs)
	if s.before != nil {
		n += floats(l.Outputs, s.cols)
	}
	if s.project != nil {
		n += floats(max(rows, l.states()), s.wide) + floats(max(l.Outputs, l.states()), s.wide)
	}
	if s.altUp != nil {
		n += s.altUp.scratch(max(rows, l.states())) + floats(max(l.Outputs, l.states()), s.altUp.width())
	}
	if s.streams != nil {
		n += s.streams.scratch(max(rows, l.states())) + floats(l.states(), s.streams.width())
	}
	return n
}
