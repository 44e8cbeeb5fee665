package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// tiles is the memory for passes whose rows go through a unit tile by tile.
type tiles struct {
	whole  Input // input of the pass, while it is narrowed to a tile
	groups []Group
	states []backend.StateSpan
	ropes  [][3]tensor.Tensor // cosines, sines and angles of all rows
	inputs tensor.Tensor
	chosen tensor.Tensor
}

// tile returns the maximum number of rows that are processed together.
func (l Limits) tile(rows int) int {
	if l.Tile > 0 {
		return min(rows, l.Tile)
	}
	return rows
}

// tiled reports whether x has so many rows that a block processes them in tiles.
func (c *Context) tiled(x tensor.Tensor) bool {
	return x.Rows() > c.limits.tile(x.Rows()) && x.Rows() == c.rows
}

// eachTile calls run for each tile of x, in order. x has all rows of the pass. During a call the
// pass consists of the rows of the tile. A row attends to rows of earlier tiles through the KV
// cache, as it attends to earlier chunks of its prompt.
func (c *Context) eachTile(x tensor.Tensor, run func(c *Context, x tensor.Tensor)) {
	rows := c.rows
	c.widen()
	for begin := 0; begin < rows && c.err == nil; begin += c.limits.Tile {
		end := min(begin+c.limits.Tile, rows)
		if err := c.narrow(begin, end); err != nil {
			c.fail("%w", err)
			break
		}
		run(c, x.Slice(begin, end))
	}
	c.in, c.rows, c.inputs, c.chosen = c.tiles.whole, rows, c.tiles.inputs, c.tiles.chosen
	for i := range c.ropes {
		all := &c.tiles.ropes[i]
		c.ropes[i].cos, c.ropes[i].sin, c.ropes[i].angles = all[0], all[1], all[2]
	}
	if err := c.beginAdapters(); err != nil {
		c.fail("%w", err)
	}
}

// widen saves the input that narrow replaces.
func (c *Context) widen() {
	t := &c.tiles
	t.whole, t.inputs, t.chosen = c.in, c.inputs, c.chosen
	t.groups = slices.Grow(t.groups[:0], len(c.in.Groups))[:len(c.in.Groups)]
	t.ropes = t.ropes[:0]
	for i := range c.ropes {
		t.ropes = append(t.ropes, [3]tensor.Tensor{c.ropes[i].cos, c.ropes[i].sin, c.ropes[i].angles})
	}
}

// narrow restricts the pass to its rows [begin, end).
func (c *Context) narrow(begin, end int) error {
	t := &c.tiles
	c.rows = end - begin
	for i, g := range t.whole.Groups {
		to := &t.groups[i]
		to.Spans = cutSpans(to.Spans[:0], g.Spans, begin, end)
		to.Slots = cut(g.Slots, begin, end)
	}
	c.in.Groups = t.groups
	t.states = cutStates(t.states[:0], t.whole.StateSpans, begin, end)
	c.in.StateSpans = t.states
	c.in.Tokens = cut(t.whole.Tokens, begin, end)
	c.in.Prompts = cut(t.whole.Prompts, begin, end)
	c.in.Lengths = cut(t.whole.Lengths, begin, end)
	c.in.Adapters = cut(t.whole.Adapters, begin, end)
	if c.program.perLayer > 0 {
		c.inputs = t.inputs.Slice(begin, end)
	}
	if c.program.chosen > 0 {
		c.chosen = t.chosen.Slice(begin, end)
	}
	for i := range c.ropes {
		r := &c.ropes[i]
		if r.filled {
			r.cos, r.sin = t.ropes[i][0].Slice(begin, end), t.ropes[i][1].Slice(begin, end)
		}
		if r.filled && r.alpha.Param != nil {
			r.angles = t.ropes[i][2].Slice(begin, end)
		}
	}
	return c.beginAdapters()
}

// cut returns s[begin:end], or nil if s is empty.
func cut[T any](s []T, begin, end int) []T {
	if len(s) == 0 {
		return nil
	}
	return s[begin:end]
}

// cutSpans appends the parts of spans within rows [begin, end) to list, with rows counted from
// begin.
func cutSpans(list, spans []backend.Span, begin, end int) []backend.Span {
	for _, s := range spans {
		first, last := max(s.First, begin), min(s.First+s.Rows, end)
		if first >= last {
			continue
		}
		s.Start += first - s.First
		s.First, s.Rows = first-begin, last-first
		list = append(list, s)
	}
	return list
}

// tiling says which parts of a block process rows tile by tile. Experts process all rows at once,
// so that each is read once per pass.
type tiling uint8

const (
	wholeRows      tiling = iota // MoE layer parallel to the attention, or in it
	attentionTiles               // MoE layer after the attention
	blockTiles
)

func (b *block) tiling() tiling {
	_, mixture := b.mlp.body.(*moe)
	_, added := b.mlp.added.(*moe)
	mixture = mixture || added || b.experts != nil
	_, heads := b.attention.body.(*mixedAttention)
	switch {
	case b.shortcut != nil || heads:
		return wholeRows
	case !mixture:
		return blockTiles
	case b.parallel:
		return wholeRows
	}
	return attentionTiles
}

// inTiles is inPlace for rows of the pass that are processed in tiles.
func (b *block) inTiles(c *Context, x tensor.Tensor) {
	switch b.tiling() {
	case blockTiles:
		c.eachTile(x, b.together)
	case attentionTiles:
		c.eachTile(x, func(c *Context, x tensor.Tensor) { b.addBranch(c, &b.attention, x) })
		b.addBranch(c, &b.mlp, x)
		b.finish(c, x)
	default:
		b.together(c, x)
	}
}

// tiledScratch is scratch for passes that are tiled.
func (b *block) tiledScratch(l Limits) int {
	tile := l.tile(l.Rows)
	if b.streams != nil && b.tiling() == attentionTiles {
		return max(b.ngrams.scratch(tile), b.streams.attention.around(tile, b.attention.scratch(tile)), b.streams.mlp.around(l.Rows, b.mlp.scratch(l.Rows)))
	}
	switch b.tiling() {
	case blockTiles:
		return b.scratch(tile)
	case attentionTiles:
		return max(floats(tile, b.width)+b.attention.scratch(tile), floats(l.Rows, b.width)+max(b.mlp.scratch(l.Rows)+b.experts.scratch(l.Rows), b.input.scratch(l.Rows), b.next.scratch(l.Rows)))
	}
	return b.scratch(l.Rows)
}

// cutStates is cutSpans for states. A later part of a sequence continues with the state that the
// earlier part wrote.
func cutStates(list, spans []backend.StateSpan, begin, end int) []backend.StateSpan {
	for _, s := range spans {
		first, last := max(s.First, begin), min(s.First+s.Rows, end)
		if first >= last {
			continue
		}
		if first > s.First {
			s.From = s.To
		}
		if save := s.First + s.SaveAfter; s.SaveAfter > 0 && save > first && save <= last {
			s.SaveAfter = save - first
		} else {
			s.SaveAfter = 0
		}
		s.First, s.Rows = first-begin, last-first
		list = append(list, s)
	}
	return list
}
