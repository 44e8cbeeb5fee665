package kvcache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// DefaultPageTokens is the page size that a zero [Config.PageTokens] stands for.
const DefaultPageTokens = 16

// ErrFull says that no page is free or can be evicted. Nothing was taken; the caller
// waits for, or preempts, another sequence.
var ErrFull = errors.New("kvcache: no page is free")

// A LayerShape is the size of one token in one layer, in elements.
type LayerShape struct {
	KWidth int // heads of keys times their dimension
	// VWidth is heads of values times their dimension; 0 where a value is the beginning
	// of its key and takes no memory.
	VWidth int
	// Heads is how many heads of keys, and of values, there are; 0 stands for one. It counts
	// where each is stored in blocks of its own.
	Heads int
	// Window is how many tokens a token sees, itself among them; 0 means all.
	Window int
}

// Config sizes a cache.
type Config struct {
	Layers []LayerShape
	// DType is that of keys and values: of floats, or Int8 for blocks of q8_0, see
	// [backend.KVRow].
	DType      meta.DType
	PageTokens int // tokens in a page; 0 means DefaultPageTokens
	Pages      int // pages in all, at least one
}

// BytesPerToken is what one token that every layer sees takes over all layers.
func (c Config) BytesPerToken() int64 {
	var n int64
	for _, l := range c.Layers {
		n += c.DType.Bytes(int64(c.row(l, l.KWidth) + c.row(l, l.VWidth)))
	}
	return n
}

// TokensBytes is what n tokens of one sequence take over all layers, those with a window counted
// at their window. It leaves pages out of account.
func (c Config) TokensBytes(n int) int64 {
	var total int64
	for _, l := range c.Layers {
		held := n
		if l.Window > 0 {
			held = min(n, l.Window)
		}
		total += int64(held) * c.DType.Bytes(int64(c.row(l, l.KWidth)+c.row(l, l.VWidth)))
	}
	return total
}

// row is the number of stored elements of the keys or values of a token.
func (c Config) row(l LayerShape, width int) int {
	heads := max(l.Heads, 1)
	return backend.KVRow(c.DType, heads, width/heads)
}

// PageBytes is what one page takes, over the layers that share it.
func (c Config) PageBytes() int64 {
	c.Layers = c.layout().slots
	return c.BytesPerToken() * int64(c.pageTokens())
}

// PagesFor is the number of pages that n tokens take in one group of layers.
func (c Config) PagesFor(n int) int { return (n + c.pageTokens() - 1) / c.pageTokens() }

func (c Config) pageTokens() int {
	if c.PageTokens == 0 {
		return DefaultPageTokens
	}
	return c.PageTokens
}

func (c Config) check() error {
	switch {
	case c.Pages < 1 || c.Pages > math.MaxInt32/c.pageTokens():
		return fmt.Errorf("kvcache: %d pages of %d tokens", c.Pages, c.pageTokens())
	case c.PageTokens < 0:
		return fmt.Errorf("kvcache: page of %d tokens", c.PageTokens)
	case !c.DType.Float() && c.DType != meta.Int8:
		return fmt.Errorf("kvcache: keys and values of dtype %v", c.DType)
	}
	for i, l := range c.Layers {
		if heads := max(l.Heads, 1); l.KWidth < 1 || l.VWidth < 0 || l.Window < 0 || l.KWidth%heads != 0 || l.VWidth%heads != 0 {
			return fmt.Errorf("kvcache: layer %d has keys of width %d, values of width %d in %d heads and a window of %d",
				i, l.KWidth, l.VWidth, heads, l.Window)
		}
	}
	return nil
}

// Stats says how full a cache is and what reuse has saved.
type Stats struct {
	Pages  int // in all
	Used   int // held by sequences
	Cached int // without a sequence, with contents that a prompt may reuse
	// Queries counts the tokens of all prompts given to Reuse, Hits those that need
	// not be computed: vLLM's prefix_cache_queries and prefix_cache_hits.
	Queries, Hits int64
}

// A Layer is where one layer keeps keys and values. Its Group says by which of a
// sequence's page tables: [Sequence.Pages], [Sequence.Slots].
type Layer struct {
	backend.KV
	Group int
}

// A Cache holds the pages of all layers.
type Cache struct {
	config Config
	layout layout
	memory backend.Memory
	slots  []backend.KV // the memory of a page's slots
	layers []Layer

	pages  []page
	free   list // unused pages, the next to take first
	unused int  // their number
	stats  Stats

	secret  [16]byte // begins what is hashed, so that no prompt can be made to collide
	text    []byte   // scratch of the hash
	runs    []int    // scratch of Reuse
	buckets []int32  // first page of each chain of the table, none if empty
	pool    []*Sequence
}

// A page's links are numbers of pages, so that no list allocates.
type page struct {
	refs       int32
	prev, next int32 // in the list of free pages
	chain      int32 // next page of the same bucket
	// group and content are those of a registered page.
	group      int32
	registered bool
	content    content
}

const none = int32(-1)

// New allocates a cache in memory, whose pages need not be backed before they are
// written. Close gives it back.
func New(memory backend.Memory, config Config) (*Cache, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.PageTokens = config.pageTokens()
	c := &Cache{
		config: config, layout: config.layout(), memory: memory,
		pages:   make([]page, config.Pages),
		text:    make([]byte, 0, 64+4*config.PageTokens),
		buckets: make([]int32, 1<<bits.Len(uint(config.Pages))),
		free:    list{first: none, last: none},
	}
	_, _ = rand.Read(c.secret[:]) // never fails
	for i := range c.buckets {
		c.buckets[i] = none
	}
	for i := range c.pages {
		c.pushBack(int32(i))
	}
	for i, l := range c.layout.slots {
		kv, err := c.allocate(l)
		c.slots = append(c.slots, kv)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("kvcache: layer %d: %w", i, err)
		}
	}
	for _, at := range c.layout.places {
		c.layers = append(c.layers, Layer{c.slots[at.slot], at.group})
	}
	return c, nil
}

func (c *Cache) allocate(l LayerShape) (kv backend.KV, err error) {
	kv.PageTokens, kv.Heads = c.config.PageTokens, max(l.Heads, 1)
	if kv.K, err = c.memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, c.config.row(l, l.KWidth)); err != nil {
		return kv, err
	}
	if kv.V = kv.K; l.VWidth == 0 {
		return kv, nil
	}
	kv.V, err = c.memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, c.config.row(l, l.VWidth))
	return kv, err
}

// tensors are the memory of slot i: keys and perhaps values.
func (c *Cache) tensors(i int) ([2]tensor.Tensor, int) {
	kv := c.slots[i]
	if c.layout.slots[i].VWidth == 0 {
		return [2]tensor.Tensor{kv.K}, 1
	}
	return [2]tensor.Tensor{kv.K, kv.V}, 2
}

// Close frees the memory. The cache and its sequences are not used afterwards.
func (c *Cache) Close() {
	for i := range c.slots {
		all, n := c.tensors(i)
		for _, t := range all[:n] {
			if !t.IsZero() {
				c.memory.Free(t)
			}
		}
	}
	c.slots, c.layers = nil, nil
}

// Config is what the cache was made with, defaults filled in.
func (c *Cache) Config() Config { return c.config }

// Layers are the keys and values of each layer. The slice is the cache's own.
func (c *Cache) Layers() []Layer { return c.layers }

// Groups is the number of page tables that a sequence has.
func (c *Cache) Groups() int { return len(c.layout.windows) }

// Available is the number of pages that Reserve can still hand out, cached ones
// included.
func (c *Cache) Available() int { return c.unused }

// Stats counts the pages and what reuse has saved.
func (c *Cache) Stats() Stats {
	s := c.stats
	s.Pages = len(c.pages)
	s.Used = len(c.pages) - c.unused
	return s
}
