package nn

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// ngrams adds table entries of the n-grams that end with each token to several streams. The
// tokens before those of a pass are part of the layer's state, stored as numbers from 1 on,
// because an empty state is all zeros.
type ngrams struct {
	path                        string
	spec                        *meta.NGramSpec
	table                       *embedding
	key, value                  *linear
	keyNorm, queryNorm, outNorm *norm // outNorm applies to the input of the following layer
	conv                        convolution
	multipliers, sizes, offsets *meta.Buffer
	earlier                     int       // number of earlier tokens in the n-grams of a row
	shifts                      []float32 // convolution kernels that each select one of the earlier tokens
	width                       int       // width of all streams
}

// maxHashedVocab bounds token ids to the integers that a state represents exactly.
const maxHashedVocab = 1 << 24

// ngrams compiles the n-gram part of a block. width is the number of channels of all streams. It
// returns nil if there is none.
func (c *compiler) ngrams(n Node, b *meta.BlockSpec, width int) (g *ngrams, err error) {
	s := b.NGrams
	if s == nil {
		return nil, nil
	}
	if b.Streams == nil || s.Size < 2 || s.Heads < 1 || s.Kernel < 1 || s.Streams < 1 || width%s.Streams != 0 || s.Vocab < 1 || s.Vocab >= maxHashedVocab {
		return nil, at(n.Path, "n-grams of up to %d of %d tokens with %d rows of a table, convolved over %d tokens, for %d streams", s.Size, s.Vocab, s.Heads, s.Kernel, s.Streams)
	}
	c.together("embeddings of n-grams")
	g = &ngrams{path: n.Path, spec: s, earlier: s.Size - 1, width: width}
	g.shifts = make([]float32, g.earlier*s.Size)
	for shift := 1; shift < s.Size; shift++ {
		g.shifts[(shift-1)*s.Size+s.Size-1-shift] = 1
	}
	table, err := c.child(n, "table of n-grams", s.Table)
	if err != nil {
		return nil, err
	}
	if g.table, err = c.embedding(table); err != nil {
		return nil, err
	}
	g.table.number = -1 // its rows are not rows of the pass, so adapters cannot replace it
	if err := c.hashes(n, g); err != nil {
		return nil, err
	}
	rows := g.rows() * g.table.dim
	if g.key, err = c.linearNamed(n, "keys of n-grams", s.Key, rows, width); err != nil {
		return nil, err
	}
	if g.value, err = c.linearNamed(n, "values of n-grams", s.Value, rows, width/s.Streams); err != nil {
		return nil, err
	}
	if err := c.ngramNorms(n, g); err != nil {
		return nil, err
	}
	if g.conv, err = c.convolution(n, s.Conv, width, s.Kernel); err != nil {
		return nil, err
	}
	c.program.asked.taps = max(c.program.asked.taps, s.Size)
	c.program.earlier, c.program.hashes = max(c.program.earlier, g.earlier), max(c.program.hashes, g.rows())
	return g, c.state(n.Path, s.State, g.kept()+(s.Kernel-1)*s.Size*width)
}

// rows returns the number of table rows per token.
func (g *ngrams) rows() int { return g.earlier * g.spec.Heads }

// kept returns the number of elements of the state that are tokens.
func (g *ngrams) kept() int { return g.earlier * g.earlier }

// hashes finds the buffers of g.
func (c *compiler) hashes(n Node, g *ngrams) error {
	s := g.spec
	holder, err := c.child(n, "numbers of the hashes", s.Hashes)
	if err != nil {
		return err
	}
	for _, want := range []struct {
		to   **meta.Buffer
		name string
		n    int
	}{{&g.multipliers, s.Multipliers, s.Size}, {&g.sizes, s.Sizes, g.rows()}, {&g.offsets, s.Offsets, g.rows()}} {
		for _, b := range holder.Module.Buffers {
			if b.Name == want.name && len(b.Shape) == 1 && b.Shape[0] == want.n {
				*want.to = b
			}
		}
		if *want.to == nil {
			return at(holder.Path, "no buffer %q of %d numbers", want.name, want.n)
		}
	}
	return nil
}

func (c *compiler) ngramNorms(n Node, g *ngrams) (err error) {
	for _, want := range []struct {
		to   **norm
		name string
	}{{&g.keyNorm, g.spec.KeyNorm}, {&g.queryNorm, g.spec.QueryNorm}, {&g.outNorm, g.spec.ConvNorm}} {
		if *want.to, err = c.normNamed(n, "norm of n-grams", want.name, g.width); err != nil {
			return err
		}
		if *want.to == nil {
			return at(n.Path, "n-grams without norms of keys, queries and values")
		}
	}
	return nil
}

// addTo adds the entries of the n-grams of the rows' tokens to x.
func (g *ngrams) addTo(c *Context, x tensor.Tensor) {
	b, ok := c.backend.(backend.NGrams)
	if !ok {
		c.fail("%s: embeddings of n-grams cannot be trained or run on this backend", g.path)
	}
	if len(c.in.Tokens) != x.Rows() {
		c.fail("%s: %d tokens for %d rows", g.path, len(c.in.Tokens), x.Rows())
	}
	if c.err != nil {
		return
	}
	mark := c.arena.used
	rows, count, dim := x.Rows(), g.rows(), g.table.dim
	e := c.arena.take(rows, count*dim)
	keys, queries, y := c.arena.take(rows, g.width), c.arena.take(rows, g.width), c.arena.take(rows, g.width)
	value := c.arena.take(rows, g.value.out)
	g.table.lookup(c, matrix(e, rows*count, dim), g.numbers(c, b), 1, "n-gram")
	together := c.collect()
	g.key.compute(together, keys, e, 0)
	g.value.compute(together, value, e, 0)
	c.compute()
	g.keyNorm.forward(c, keys, keys)
	g.queryNorm.forward(c, queries, x)
	weight := c.vector(g.conv.weight)
	if c.err == nil {
		b.GateStreams(keys, value, keys, queries)
		g.outNorm.forward(c, queries, keys)
		b.DilatedConv(y, queries, weight, c.states(g.spec.State, g.kept()), g.spec.Size, meta.ActSiLU)
	}
	c.add(keys, y, 1)
	c.add(x, keys, 1)
	c.arena.used = mark
}

func (g *ngrams) scratch(rows int) int {
	if g == nil {
		return 0
	}
	return floats(rows, g.rows()*g.table.dim) + 3*floats(rows, g.width) + floats(rows, g.value.out) + 2*floats(rows, g.earlier)
}

// hashed is the memory for the table rows of n-grams.
type hashed struct {
	tokens                      []float32 // earlier tokens of each row
	rows                        []int32
	multipliers, sizes, offsets []int64
}

func (h *hashed) init(p *Program, l Limits) {
	if p.hashes > 0 {
		*h = hashed{
			tokens: make([]float32, l.Rows*p.earlier), rows: make([]int32, l.Rows*p.hashes),
			multipliers: make([]int64, p.earlier+1), sizes: make([]int64, p.hashes), offsets: make([]int64, p.hashes),
		}
	}
}

// numbers returns the table rows of the n-grams of each row of the pass.
func (g *ngrams) numbers(c *Context, b backend.NGrams) []int32 {
	h, rows, count := &c.hashed, len(c.in.Tokens), g.rows()
	earlier := g.tokens(c, b)
	multipliers, sizes, offsets := h.multipliers[:g.spec.Size], h.sizes[:count], h.offsets[:count]
	g.integers(c, multipliers, g.multipliers)
	g.integers(c, sizes, g.sizes)
	g.integers(c, offsets, g.offsets)
	if c.err != nil {
		return nil
	}
	for j, size := range sizes {
		if size < 1 || offsets[j] < 0 || offsets[j] > int64(g.table.rows)-size {
			c.fail("%s: hash %d has %d rows from row %d on; the table has %d", g.path, j, size, offsets[j], g.table.rows)
			return nil
		}
	}
	out := h.rows[:rows*count]
	for i, id := range c.in.Tokens {
		g.hash(out[i*count:][:count], int64(id), earlier[i*g.earlier:][:g.earlier], h)
	}
	return out
}

// tokens returns the earlier tokens of each row, the nearest first, as numbers from 1 on; 0 means
// none.
func (g *ngrams) tokens(c *Context, b backend.NGrams) []float32 {
	defer c.arena.pause()()
	mark := c.arena.used
	rows, n := len(c.in.Tokens), g.earlier
	host := c.hashed.tokens[:rows*n]
	for i, id := range c.in.Tokens {
		if id < 0 || int(id) >= g.spec.Vocab {
			c.fail("%s: token %d in row %d; the model has %d", g.path, id, i, g.spec.Vocab)
			return nil
		}
		for j := range n {
			host[i*n+j] = float32(id + 1)
		}
	}
	own, shifted := c.arena.take(rows, n), c.arena.take(rows, n)
	err := c.backend.Copy(own, tensor.Floats(host, rows, n))
	if err == nil {
		b.DilatedConv(shifted, own, tensor.Floats(g.shifts, len(g.shifts)), c.states(g.spec.State, 0), 1, meta.ActNone)
		err = c.backend.Copy(tensor.Floats(host, rows, n), shifted)
	}
	if err != nil {
		c.fail("%s: %w", g.path, err)
	}
	c.arena.used = mark
	return host
}

// hash sets rows to the table rows of the n-grams that end with token id.
func (g *ngrams) hash(rows []int32, id int64, earlier []float32, h *hashed) {
	mixed, ended := id*h.multipliers[0], false
	for shift := 1; shift < g.spec.Size; shift++ {
		before := int64(earlier[shift-1]) - 1
		if ended = ended || before < 0 || before == int64(g.spec.End); ended {
			before = int64(g.spec.End)
		}
		mixed ^= before * h.multipliers[shift]
		for j := (shift - 1) * g.spec.Heads; j < shift*g.spec.Heads; j++ {
			rest := mixed % h.sizes[j]
			if rest < 0 {
				rest += h.sizes[j]
			}
			rows[j] = int32(rest + h.offsets[j])
		}
	}
}

// integers copies the integers of a buffer.
func (g *ngrams) integers(c *Context, to []int64, b *meta.Buffer) {
	t := c.weights.Buffer(b)
	if t.DType != meta.Int64 && t.DType != meta.Int32 || t.Elements() != len(to) || int64(len(t.Data)) < t.Bytes() {
		c.fail("%s: buffer %s of %v %v, wanted %d integers", g.path, b.Name, t.DType, t.Shape(), len(to))
		return
	}
	for i := range to {
		if t.DType == meta.Int32 {
			to[i] = int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
		} else {
			to[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
		}
	}
}
