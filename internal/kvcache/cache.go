package kvcache

import (
	"errors"
	"fmt"
	"hash/maphash"
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
}

// Config sizes a cache.
type Config struct {
	Layers     []LayerShape
	DType      meta.DType // of keys and values
	PageTokens int        // tokens in a page; 0 means DefaultPageTokens
	Pages      int        // pages in all, at least one
}

// BytesPerToken is what one token takes over all layers.
func (c Config) BytesPerToken() int64 {
	var n int64
	for _, l := range c.Layers {
		n += c.DType.Bytes(int64(l.KWidth)) + c.DType.Bytes(int64(l.VWidth))
	}
	return n
}

// PageBytes is what one page takes over all layers.
func (c Config) PageBytes() int64 { return c.BytesPerToken() * int64(c.pageTokens()) }

// PagesFor is the number of pages that n tokens take.
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
	case !c.DType.Float():
		return fmt.Errorf("kvcache: keys and values of dtype %v", c.DType)
	}
	for i, l := range c.Layers {
		if l.KWidth < 1 || l.VWidth < 0 {
			return fmt.Errorf("kvcache: layer %d has keys of width %d and values of width %d", i, l.KWidth, l.VWidth)
		}
	}
	return nil
}

// Stats says how full a cache is and what reuse has saved.
type Stats struct {
	Pages  int // in all
	Used   int // held by sequences
	Cached int // held by nobody, with contents that a prompt may reuse
	// Queries counts the tokens of all prompts given to Reuse, Hits those that need
	// not be computed: vLLM's prefix_cache_queries and prefix_cache_hits.
	Queries, Hits int64
}

// A Cache holds the pages of all layers.
type Cache struct {
	config Config
	memory backend.Memory
	layers []backend.KV

	pages  []page
	tokens []int32 // the tokens of each page, PageTokens a page
	free   list    // pages that nobody uses, the next to take first
	unused int     // their number
	serial uint64  // of the last registration
	stats  Stats

	seed    maphash.Seed
	key     []byte  // scratch of the hash
	buckets []int32 // first page of each chain of the table, none if empty
	pool    []*Sequence
}

// A page's links are numbers of pages, so that no list allocates.
type page struct {
	refs       int32
	prev, next int32 // in the list of free pages
	chain      int32 // next page of the same bucket
	hash       uint64
	// serial is that of the registration, 0 if the page cannot be reused; parent is
	// the serial of the page before it in its sequence, 0 for the first.
	serial, parent uint64
	scope          uint64
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
		config: config, memory: memory, seed: maphash.MakeSeed(),
		pages:   make([]page, config.Pages),
		tokens:  make([]int32, config.Pages*config.PageTokens),
		key:     make([]byte, 0, 16+4*config.PageTokens),
		buckets: make([]int32, 1<<bits.Len(uint(config.Pages))),
		free:    list{first: none, last: none},
	}
	for i := range c.buckets {
		c.buckets[i] = none
	}
	for i := range c.pages {
		c.pushBack(int32(i))
	}
	for i, l := range config.Layers {
		kv, err := c.allocate(l)
		c.layers = append(c.layers, kv)
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("kvcache: layer %d: %w", i, err)
		}
	}
	return c, nil
}

func (c *Cache) allocate(l LayerShape) (kv backend.KV, err error) {
	kv.PageTokens = c.config.PageTokens
	if kv.K, err = c.memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, l.KWidth); err != nil {
		return kv, err
	}
	if kv.V = kv.K; l.VWidth == 0 {
		return kv, nil
	}
	kv.V, err = c.memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, l.VWidth)
	return kv, err
}

// tensors are the memory of layer l: keys and perhaps values.
func (c *Cache) tensors(l int) ([2]tensor.Tensor, int) {
	kv := c.layers[l]
	if c.config.Layers[l].VWidth == 0 {
		return [2]tensor.Tensor{kv.K}, 1
	}
	return [2]tensor.Tensor{kv.K, kv.V}, 2
}

// Close frees the memory. The cache and its sequences are not used afterwards.
func (c *Cache) Close() {
	for l := range c.layers {
		all, n := c.tensors(l)
		for _, t := range all[:n] {
			if !t.IsZero() {
				c.memory.Free(t)
			}
		}
	}
	c.layers = nil
}

// Config is what the cache was made with, defaults filled in.
func (c *Cache) Config() Config { return c.config }

// Layers are the keys and values of each layer. The slice is the cache's own.
func (c *Cache) Layers() []backend.KV { return c.layers }

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
