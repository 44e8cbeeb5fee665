package nn

import (
	"cmp"

	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// block is one decoder layer: two branches on a residual stream.
type block struct {
	attention, mlp branch
	parallel       bool
	normSums       bool // norms after the branches apply to the sums
	width          int
	path           string
	experts        *blockExperts // nil if there is none
	input          *layerInput   // nil if there is none
	scalar         *meta.Buffer  // nil if there is none
	streams        *blockStreams // nil if there is one stream
	ngrams         *ngrams       // nil if there is none
	altUp          *altUp        // nil if there is none
	embedded       *embedded     // nil if embeddings do not follow the hidden states
	next           *guess        // predicts experts of the next block; nil if there is none
	shortcut       *shortcut     // nil if there is none
	entry          *entry        // nil if there is none
	carry          int           // channels behind the block's own; see meta.BlockSpec.Carries
}

// A branch is post(body(pre(x)) + added(pre(x))). Either norm and added may be missing. A
// branch without a body does nothing.
type branch struct {
	pre, post   *norm
	body, added rule
	in, out     float32       // multiply the input and the result of body
	scale       float32       // multiplies the result that is added to the residual stream
	kept        param         // multiplies the residual stream by channel; none means 1
	skipScale   float32       // multiplies the residual stream
	replaces    bool          // the result of pre replaces the residual stream
	conv        *residualConv // after post; nil if there is none
	sum         *branchSum    // nil for a plain one
	rate        *channelScale // of the step from the residual stream to the result; nil for a sum
}

func (c *compiler) block(n Node, in int) (*block, error) {
	s, err := spec[meta.BlockSpec](n, meta.KindBlock)
	if err != nil {
		return nil, err
	}
	if s.Parallel && (s.PostAttentionNorm != "" || s.PostMLPNorm != "") {
		return nil, at(n.Path, "norms after the branches of a parallel block")
	}
	if s.NormSums && (s.Parallel || s.Streams != nil || s.AltUp != nil || s.Experts != nil) {
		return nil, at(n.Path, "norms of sums in a block of another form than two branches in sequence")
	}
	b := &block{normSums: s.NormSums, parallel: s.Parallel, width: in, path: n.Path}
	first := len(c.program.asked.maps)
	if in, err = c.blockInput(n, s, b, in); err != nil {
		return nil, err
	}
	if s.Attention != "" || s.MLP == "" || s.Parallel {
		b.attention, err = c.branch(n, "attention", [3]string{s.AttentionNorm, s.Attention, s.PostAttentionNorm}, s.AddedMixer, in)
		if err != nil {
			return nil, err
		}
		b.attention.in, b.attention.out, b.attention.scale = orOne(s.AttentionIn), orOne(s.AttentionOut), orOne(s.ResidualScale)
	}
	if b.altUp != nil && b.altUp.laurel != nil {
		c.usedNext(b.altUp.laurel.down, b.altUp.laurel.up)
	}
	attention := len(c.program.asked.maps)
	if b.streams != nil {
		if b.streams.mlp, err = c.mixer(n, s.Streams, s.Streams.MLP, "", b.width, false); err != nil {
			return nil, err
		}
	}
	if s.MLP != "" || s.Plain != nil || s.Parallel {
		b.mlp, err = c.branch(n, "mlp", [3]string{s.MLPNorm, s.MLP, s.PostMLPNorm}, s.AddedMLP, in)
		b.mlp.out, b.mlp.scale = orOne(s.MLPOut), orOne(cmp.Or(s.MLPScale, s.ResidualScale))
	}
	if err != nil {
		return nil, err
	}
	if err := c.blockParts(n, s, b); err != nil {
		return nil, err
	}
	switch b.tiling() {
	case blockTiles:
		c.tiled(first, len(c.program.asked.maps))
	case attentionTiles:
		c.tiled(first, attention)
	}
	return b, nil
}

// blockInput compiles the layers between the block's input, of in channels, and its branches. It
// returns the input width of the branches.
func (c *compiler) blockInput(n Node, s *meta.BlockSpec, b *block, in int) (_ int, err error) {
	if b.ngrams, err = c.ngrams(n, s, in); err != nil {
		return 0, err
	}
	if s.Streams != nil {
		b.streams = &blockStreams{}
		if b.streams.attention, err = c.mixer(n, s.Streams, s.Streams.Attention, "", in, false); err != nil {
			return 0, err
		}
		if in = b.streams.attention.channels(); b.parallel || scalesSums(s) || s.Experts != nil || s.Input != nil || s.Scalar != "" || s.Attention == "" || s.MLP == "" {
			return 0, at(n.Path, "several streams in a block of another form than two branches")
		}
	}
	if s.AltUp != nil {
		if b.altUp, err = c.altUp(n, s, in); err != nil {
			return 0, err
		}
		if in = b.altUp.hidden; b.parallel || scalesSums(s) || b.streams != nil || s.Experts != nil || s.Scalar != "" || s.Attention == "" || s.AttentionNorm == "" || s.MLP == "" {
			return 0, at(n.Path, "alternating updates in a block of another form than two branches behind norms")
		}
	} else if s.Laurel != nil {
		return 0, at(n.Path, "a low-rank branch without alternating updates")
	}
	if s.KeepsEmbeddings {
		if b.embedded, err = c.embedded(n, s, in); err != nil {
			return 0, err
		}
		in = b.embedded.hidden
	} else if s.Carries {
		if b.carry = in - c.program.streamWidth; c.program.streamWidth == 0 || b.carry < 1 || s.Input != nil || !twoBranches(s) {
			return 0, at(n.Path, "channels that blocks hand on, in rows of %d or a block of another form than two branches in sequence", in)
		}
		in, b.width = c.program.streamWidth, c.program.streamWidth
	} else if s.Shared != nil {
		return 0, at(n.Path, "a shared block without embeddings after the hidden states")
	}
	return in, nil
}

// twoBranches reports whether a block is two branches of one stream in sequence.
func twoBranches(s *meta.BlockSpec) bool {
	return s.Attention != "" && s.MLP != "" && !s.Parallel && s.Streams == nil && s.AltUp == nil && s.Shortcut == "" && s.Experts == nil
}

// scalesSums reports whether a block scales the branch results that it adds to the residual
// stream.
func scalesSums(s *meta.BlockSpec) bool { return orOne(s.ResidualScale) != 1 || orOne(s.MLPScale) != 1 }

// residuals compiles the operations that scale or replace the residual stream.
func (c *compiler) residuals(n Node, s *meta.BlockSpec, b *block) (err error) {
	if s.AttentionResidual == "" && s.AttentionSkipScale == 0 && s.MLPSkipScale == 0 && !s.NormedResidual {
		return nil
	}
	if b.parallel || b.streams != nil || b.altUp != nil || s.Attention == "" || s.MLP == "" || s.Shortcut != "" {
		return at(n.Path, "factors of the residual stream in a block of another form than two branches in sequence")
	}
	b.attention.skipScale, b.mlp.skipScale = orOne(s.AttentionSkipScale), orOne(s.MLPSkipScale)
	if b.attention.replaces, b.mlp.replaces = s.NormedResidual, s.NormedResidual; s.NormedResidual && (b.attention.pre == nil || b.mlp.pre == nil || s.Experts != nil) {
		return at(n.Path, "a residual stream that norms replace, without norms or with experts beside the MLP")
	}
	if s.AttentionResidual == "" {
		return nil
	}
	c.hostOnly("factors of the residual stream")
	if b.attention.kept, err = c.param(n, s.AttentionResidual, b.width); err != nil {
		return err
	}
	b.mlp.kept, err = c.param(n, s.MLPResidual, b.width)
	return err
}

// branch compiles a branch. names are the norm before it, its body, and the norm after it.
func (c *compiler) branch(n Node, role string, names [3]string, added string, in int) (b branch, err error) {
	b.in, b.out, b.scale, b.skipScale = 1, 1, 1, 1
	if b.pre, err = c.normNamed(n, "norm before the "+role, names[0], in); err != nil {
		return b, err
	}
	if b.body, err = c.branchRule(n, role, names[1], in); err != nil {
		return b, err
	}
	if added != "" {
		if b.added, err = c.branchRule(n, "rule parallel to the "+role, added, in); err != nil {
			return b, err
		}
	}
	b.post, err = c.normNamed(n, "norm after the "+role, names[2], in)
	return b, err
}

// branchRule compiles a part of a branch. Its result must be as wide as its input.
func (c *compiler) branchRule(n Node, role, name string, in int) (rule, error) {
	child, err := c.branchNode(n, role, name)
	if err != nil {
		return nil, err
	}
	r, err := c.rule(child, in)
	if err == nil && r.cols() != in {
		err = at(child.Path, "a result of width %d in a stream of %d", r.cols(), in)
	}
	return r, err
}

// branchNode returns the node of a part of a branch. For a plain MLP it is the block itself, seen
// as an MLP.
func (c *compiler) branchNode(n Node, role, name string) (Node, error) {
	block, ok := n.Module.Spec.(*meta.BlockSpec)
	if !ok || block.Plain == nil || role != "mlp" {
		return c.child(n, role, name)
	}
	m := *n.Module
	m.Kind, m.Spec = meta.KindMLP, block.Plain
	return Node{n.Path, &m}, nil
}

// inPlace computes x = block(x).
func (b *block) inPlace(c *Context, x tensor.Tensor) {
	if b.carry > 0 {
		c.carried = x.Columns(b.width, b.width+b.carry)
		x = x.Columns(0, b.width)
	}
	if c.tiled(x) {
		b.inTiles(c, x)
	} else {
		b.together(c, x)
	}
}

// together computes x = block(x) for all rows of x at once.
func (b *block) together(c *Context, x tensor.Tensor) {
	if b.altUp != nil {
		b.altUp.through(c, b, x)
		return
	}
	if b.shortcut != nil {
		b.shortcut.through(c, b, x)
		return
	}
	if b.embedded != nil {
		b.embedded.through(c, b, x)
		return
	}
	if !b.parallel {
		b.entry.apply(c, x)
		b.addBranch(c, &b.attention, x)
		last := &b.mlp
		if m, ok := last.body.(*mlp); ok && c.in.unread && b.endsWith(m) {
			unread := b.mlp
			unread.body = unreadMLP{m}
			last = &unread
		}
		b.addBranch(c, last, x)
		b.finish(c, x)
		return
	}
	mark := c.arena.used
	first := c.arena.passing(x.Rows(), b.width)
	b.attention.forward(c, first, x, false)
	second := c.arena.passing(x.Rows(), b.width)
	b.mlp.forward(c, second, x, false)
	c.add(x, first, b.attention.scale)
	c.add(x, second, b.mlp.scale)
	c.arena.used = mark
	b.finish(c, x)
}

// endsWith reports whether nothing but the block's result reads that of its MLP.
func (b *block) endsWith(m *mlp) bool {
	return m.scaled.Param == nil && b.mlp.rate == nil && b.mlp.added == nil && b.mlp.post == nil && b.mlp.conv == nil && b.experts == nil && b.input == nil && b.streams == nil
}

// addBranch adds the result of a branch for x to x.
func (b *block) addBranch(c *Context, branch *branch, x tensor.Tensor) {
	if branch.body == nil {
		return
	}
	if b.streams != nil {
		m := b.streams.attention
		if b.ngrams != nil && branch == &b.attention {
			b.ngrams.addTo(c, x)
		}
		if branch == &b.mlp {
			m = b.streams.mlp
		}
		m.through(c, branch, x)
		return
	}
	mark := c.arena.used
	if branch == &b.mlp {
		b.guessFrom(c, x)
	}
	if branch.replaces && c.err == nil {
		branch.pre.forward(c, x, x)
	}
	y := c.arena.passing(x.Rows(), x.Cols())
	if branch == &b.mlp && b.experts != nil {
		b.experts.forward(c, branch, y, x)
	} else {
		branch.forward(c, y, x, b.normSums)
	}
	c.tellGuess()
	branch.keep(c, x)
	branch.sum.apply(c, x, y)
	branch.rate.toward(c, x, y)
	c.add(x, y, branch.scale)
	if b.normSums && branch.post != nil && c.err == nil {
		branch.post.forward(c, x, x)
	}
	c.arena.used = mark
}

// keep scales the residual stream by b's factors.
func (b *branch) keep(c *Context, x tensor.Tensor) {
	c.scale(x, b.skipScale)
	if b.kept.Param == nil {
		return
	}
	mark := c.arena.used
	factors := c.arena.take(x.Rows(), x.Cols())
	if c.repeatVector(factors, b.kept); c.err == nil {
		c.backend.Gate(x, x, factors, meta.ActNone, 0)
	}
	c.arena.used = mark
}

func (c *Context) add(dst, x tensor.Tensor, scale float32) {
	if c.err == nil {
		c.backend.Add(dst, x, scale)
	}
}

// forward computes the branch of x. If bare is set, it omits the norm after it.
func (b *branch) forward(c *Context, dst, x tensor.Tensor, bare bool) {
	mark := c.arena.used
	if b.pre != nil && !b.replaces {
		y := c.arena.passing(x.Rows(), b.pre.cols())
		b.pre.forward(c, y, x)
		x = y
	}
	if b.added == nil && b.in == 1 && b.out == 1 {
		b.body.forward(c, dst, x)
	} else {
		b.both(c, dst, x)
	}
	if b.post != nil && !bare {
		b.post.forward(c, dst, dst)
	}
	b.conv.apply(c, dst)
	c.arena.used = mark
}

// both computes the sum of body and added, with the factors of body.
func (b *branch) both(c *Context, dst, x tensor.Tensor) {
	y := c.arena.take(x.Rows(), x.Cols())
	c.scaled(y, x, b.in)
	b.body.forward(c, dst, y)
	c.scale(dst, b.out)
	if b.added != nil {
		b.added.forward(c, y, x)
		c.add(dst, y, 1)
	}
}

// scaled sets dst to x·by.
func (c *Context) scaled(dst, x tensor.Tensor, by float32) {
	if c.err == nil {
		c.copyRows(dst, x)
		c.scale(dst, by)
	}
}

// scale multiplies x by a factor.
func (c *Context) scale(x tensor.Tensor, by float32) {
	if c.err == nil && by != 1 {
		c.backend.Scale(x, by, 0)
	}
}

func (b *branch) scratch(rows int) int {
	if b.body == nil {
		return 0
	}
	n := b.body.scratch(rows)
	if b.added != nil {
		n = max(n, b.added.scratch(rows))
	}
	if b.added != nil || b.in != 1 || b.out != 1 {
		n += floats(rows, b.body.cols())
	}
	if b.pre != nil {
		n = max(n, b.pre.scratch(rows)) + floats(rows, b.pre.cols())
	}
	if b.sum != nil {
		n = max(n, floats(rows, b.body.cols()))
	}
	n = max(n, b.rate.scratch(rows))
	return max(n, b.conv.scratch(rows))
}

func (b *block) forward(c *Context, dst, x tensor.Tensor) {
	c.copyRows(dst, x)
	b.inPlace(c, dst)
}

func (b *block) scratch(rows int) int {
	if b.streams != nil {
		return max(b.ngrams.scratch(rows), b.streams.attention.around(rows, b.attention.scratch(rows)), b.streams.mlp.around(rows, b.mlp.scratch(rows)))
	}
	if b.altUp != nil {
		return b.altUp.scratch(b, rows)
	}
	if b.shortcut != nil {
		return b.shortcut.scratch(b, rows)
	}
	if b.embedded != nil {
		return b.embedded.scratch(b, rows)
	}
	if b.parallel {
		return 2*floats(rows, b.width) + max(b.attention.scratch(rows), b.mlp.scratch(rows))
	}
	kept := 0
	if b.attention.kept.Param != nil {
		kept = floats(rows, b.width)
	}
	return floats(rows, b.width) + max(kept, b.attention.scratch(rows), b.mlp.scratch(rows)+b.experts.scratch(rows), b.input.scratch(rows), b.next.scratch(rows))
}

func (b *block) cols() int { return b.width + b.carry }
