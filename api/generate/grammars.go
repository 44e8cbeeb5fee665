package generate

import (
	"container/list"
	"crypto/sha256"
	"sync"

	"github.com/heftai/heft/api/wire"
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/jsonschema"
	"github.com/heftai/heft/internal/grammar/vocab"
	"github.com/heftai/heft/text"
)

// maxGrammars is how much memory compiled grammars take that no request uses, in bytes.
const maxGrammars = 8 << 20

// grammars are the compiled grammars of a model and its adapters, the last used first. One grammar is
// compiled at a time. It is safe for concurrent use.
type grammars struct {
	mu    sync.Mutex
	lib   *grammar.Library // nil: not made yet, or no token has bytes of its own
	made  bool
	byKey map[[sha256.Size]byte]*list.Element
	used  list.List // of *cached
	bytes int       // counted so far, see count
}

type cached struct {
	key     [sha256.Size]byte
	grammar *grammar.Grammar
}

// grammars returns the grammars of m.
func (m *Model) grammars() *grammars {
	m.grammarsOnce.Do(func() {
		if m.compiled == nil {
			m.compiled = &grammars{}
		}
	})
	return m.compiled
}

// encoder says how a tokenizer encodes a text inside another one.
type encoder struct{ *text.Tokenizer }

// EncodeText encodes a text without special tokens.
func (e encoder) EncodeText(s string) []int32 {
	ids, err := e.Encode(s, text.EncodeOptions{SplitSpecialTokens: true})
	if err != nil {
		return nil
	}
	return ids
}

// count counts what c has in the memory for requests: the vocabulary, what its tokens can read, and the
// grammars. They stay after the request.
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

// get returns the grammar of the answer to r.
func (c *grammars) get(m *Model, r *Request) (*grammar.Grammar, error) {
	f := m.frameOf(r)
	key := r.key(f)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.byKey[key]; e != nil {
		c.used.MoveToFront(e)
		return e.Value.(*cached).grammar, nil //nolint:forcetypeassert // the list has nothing else
	}
	if !c.made {
		c.made = true
		if v := vocab.New(encoder{m.Tokenizer}, m.Vocab()); v != nil {
			c.lib = grammar.NewLibrary(v)
			jsonschema.Prepare(c.lib)
		}
	}
	if c.lib == nil {
		return nil, wire.Invalidf(r.constrainedBy(), "The tokens of %s have no text of their own: '%s' is not supported.", m.Name, r.constrainedBy())
	}
	g, err := m.compile(c.lib, r, f)
	if err != nil {
		return nil, err
	}
	g.Warm()
	if c.byKey == nil {
		c.byKey = map[[sha256.Size]byte]*list.Element{}
	}
	c.byKey[key] = c.used.PushFront(&cached{key, g})
	c.evict()
	return g, nil
}

// evict drops the grammars that were not used for longest, but not the last one.
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
