package generate

import (
	"container/list"
	"context"
	"crypto/sha256"
	"sync"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/text"
)

// maxGrammars is the maximum memory of compiled grammars that no request uses, in bytes.
const maxGrammars = 8 << 20

// Limits of a quick compilation. One with a longer text or more steps is slow.
const (
	quickText  = 64 << 10
	quickSteps = 4_000_000 // about 20 ms
)

// grammars is a cache of the compiled grammars of a model and its adapters, the most recently used
// first. Each grammar is compiled once, by one of the requests that wait for it. At most one quick
// and one slow grammar are compiled at a time, so that small schemas do not wait for large ones. It
// is safe for concurrent use.
type grammars struct {
	vocabulary sync.Once
	quick      chan struct{} // has an element while a grammar is compiled that may be quick
	slow       chan struct{} // has an element while a slow grammar is compiled

	mu      sync.Mutex
	lib     *grammar.Library // nil: not made yet, or no token has known bytes
	byKey   map[[sha256.Size]byte]*list.Element
	used    list.List // of *cached
	pending map[[sha256.Size]byte]*compiling
	bytes   int // counted so far; see count
}

// compiling is a grammar that one request compiles and others may wait for.
type compiling struct {
	done    chan struct{} // closed when the other fields are set
	grammar *grammar.Grammar
	err     error
	left    bool // there is no result: waiting requests try again
}

func newGrammars() *grammars {
	return &grammars{quick: make(chan struct{}, 1), slow: make(chan struct{}, 1),
		byKey: map[[sha256.Size]byte]*list.Element{}, pending: map[[sha256.Size]byte]*compiling{}}
}

type cached struct {
	key     [sha256.Size]byte
	grammar *grammar.Grammar
}

// grammars returns the cache of m.
func (m *Model) grammars() *grammars {
	m.grammarsOnce.Do(func() {
		if m.compiled == nil {
			m.compiled = newGrammars()
		}
	})
	return m.compiled
}

// encoder encodes texts with a tokenizer as parts of longer texts.
type encoder struct{ *text.Tokenizer }

// EncodeText encodes a text without special tokens.
func (e encoder) EncodeText(s string) []int32 {
	ids, err := e.Encode(s, text.EncodeOptions{SplitSpecialTokens: true})
	if err != nil {
		return nil
	}
	return ids
}

// count updates the memory that c counts in the memory for requests: the vocabulary, the terminals,
// and the grammars. They stay after the request.
func (c *grammars) count(claim *wire.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	if c.lib != nil {
		total = c.lib.Bytes()
	}
	for e := c.used.Front(); e != nil; e = e.Next() {
		total += e.Value.(*cached).grammar.Bytes() //nolint:forcetypeassert // the list has nothing else
	}
	claim.Cache(total - c.bytes)
	c.bytes = total
}

// get returns the grammar of the answer to r. If ctx ends while the request waits, it returns the
// cause of ctx.
func (c *grammars) get(ctx context.Context, m *Model, r *Request) (*grammar.Grammar, error) {
	f := m.frameOf(r)
	key := r.key(f)
	for {
		g, p, first := c.find(key)
		switch {
		case g != nil:
			return g, nil
		case first:
			c.finish(ctx, key, p, func() (*grammar.Grammar, error) { return c.compile(ctx, m, r, f) })
			return p.grammar, p.err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return nil, AsError(context.Cause(ctx), "")
		}
		if !p.left {
			return p.grammar, p.err
		}
	}
}

// find returns the cached grammar of a key, or the compilation that is under way. If first is true,
// the caller has to compile it with finish.
func (c *grammars) find(key [sha256.Size]byte) (g *grammar.Grammar, p *compiling, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		c.used.MoveToFront(e)
		return e.Value.(*cached).grammar, nil, false //nolint:forcetypeassert // the list has nothing else
	}
	if p := c.pending[key]; p != nil {
		return nil, p, false
	}
	p = &compiling{done: make(chan struct{})}
	c.pending[key] = p
	return nil, p, true
}

// finish compiles a grammar for the request of ctx and for those that wait for p. If that request
// ends early or compile panics, the waiting requests try again themselves.
func (c *grammars) finish(ctx context.Context, key [sha256.Size]byte, p *compiling, compile func() (*grammar.Grammar, error)) {
	p.left = true
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pending, key)
		if p.grammar != nil {
			c.byKey[key] = c.used.PushFront(&cached{key, p.grammar})
			c.evict()
		}
		close(p.done)
	}()
	p.grammar, p.err = compile()
	p.left = p.err != nil && ctx.Err() != nil
}

// compile compiles the grammar of the answer to r. A grammar that turns out to be slow is started
// again as a slow one: a partial result would take memory while it waits.
func (c *grammars) compile(ctx context.Context, m *Model, r *Request, f *frame) (*grammar.Grammar, error) {
	lib := c.library(m)
	if lib == nil {
		return nil, wire.Invalidf(r.constrainedBy(), "The tokens of %s have no text of their own: '%s' is not supported.", m.Name, r.constrainedBy())
	}
	if r.Constraint.size()+r.calls.size() <= quickText {
		b := grammar.NewBuilder(lib)
		b.Budget.Steps = quickSteps
		if g, err := c.inTurn(ctx, c.quick, m, r, f, b); b.Budget.Steps >= 0 {
			return g, err
		}
	}
	return c.inTurn(ctx, c.slow, m, r, f, grammar.NewBuilder(lib))
}

// inTurn waits for the only place in turn and compiles a grammar with b.
func (c *grammars) inTurn(ctx context.Context, turn chan struct{}, m *Model, r *Request, f *frame, b *grammar.Builder) (*grammar.Grammar, error) {
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return nil, AsError(context.Cause(ctx), "")
	}
	g, err := m.compile(b, r, f)
	if err != nil {
		return nil, err
	}
	g.Warm()
	return g, nil
}

// library returns the terminals of m's vocabulary, or nil if no token has known bytes. The first
// request makes them.
func (c *grammars) library(m *Model) *grammar.Library {
	c.vocabulary.Do(func() {
		v := vocab.New(encoder{m.Tokenizer}, m.Vocab())
		if v == nil {
			return
		}
		lib := grammar.NewLibrary(v)
		jsonschema.Prepare(lib)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lib = lib
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lib
}

// evict drops the least recently used grammars, but keeps the last one.
func (c *grammars) evict() {
	total := 0
	for e := c.used.Front(); e != nil; {
		next := e.Next()
		entry := e.Value.(*cached) //nolint:forcetypeassert // the list has nothing else
		if total += entry.grammar.Bytes(); total > maxGrammars && e != c.used.Front() {
			c.used.Remove(e)
			delete(c.byKey, entry.key)
		}
		e = next
	}
}
