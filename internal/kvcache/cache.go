package kvcache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// DefaultPageTokens is the page size used if [Config.PageTokens] is zero.
const DefaultPageTokens = 16

// ErrFull is returned if no page is free and none can be evicted. The failed call takes no pages.
// The caller waits for another sequence or preempts one.
var ErrFull = errors.New("kvcache: no page is free")

// A LayerShape is the size of one token in one layer's cache, in elements.
type LayerShape struct {
	KWidth int // number of key heads times their dimension
	// VWidth is the number of value heads times their dimension. It is 0 if the values are the
	// leading elements of the keys and take no memory of their own. If they are and VWidth is not
	// 0, it is the width of a second vector per token, such as the key of an indexer for sparse
	// attention.
	VWidth int
	// Heads is the number of key heads, which equals that of value heads; 0 means 1. Block
	// formats need it, because they store each head in blocks of its own.
	Heads int
	// Window is the number of tokens that a token attends to, including itself; 0 means all.
	Window int
}

// Config sizes a cache.
type Config struct {
	Layers []LayerShape
	// DType is the data type of keys and values: a floating-point type, or Int8 for q8_0 blocks
	// (see [backend.KVRow]).
	DType      meta.DType
	PageTokens int // tokens per page; 0 means DefaultPageTokens
	Pages      int // total number of pages, at least 1
	// Start is the number of pages that are usable at first; 0 means all. Resize changes the
	// number. A single sequence may always take that many.
	Start int
	// States is, for each layer that has a state instead of keys and values, the number of
	// float32 values in the state of one sequence. StateSlots is the maximum number of states at
	// a time; a sequence in use has up to three.
	States     []int
	StateSlots int
	// Backing stores full pages and snapshots of states beyond the life of the cache; nil stores
	// none.
	Backing *Backing
	// LayerMemory and StateMemory return the memory of a layer's keys and values, and of a
	// layer's states, by index in Layers and States. If they are nil, all are in the memory given
	// to New. With a Backing, device memory must allow copies from any goroutine while operations
	// run.
	LayerMemory, StateMemory func(i int) backend.Memory
}

// BytesPerToken returns the memory of one token over all layers, ignoring windows.
func (c Config) BytesPerToken() int64 {
	var n int64
	for _, l := range c.Layers {
		n += c.DType.Bytes(int64(c.row(l, l.KWidth) + c.row(l, l.VWidth)))
	}
	return n
}

// TokensBytes returns the memory of n tokens of one sequence over all layers, with windowed
// layers limited to their window, and of its states. It does not round up to whole pages.
func (c Config) TokensBytes(n int) int64 { return c.rowsBytes(n) + heldStates*c.StateBytes() }

// ReadBytes returns the bytes that a pass of one token reads and writes if n tokens of its sequence
// are cached: their keys and values within the windows, and the states. Sparse attention reads less.
func (c Config) ReadBytes(n int) int64 { return c.rowsBytes(n) + 2*c.StateBytes() }

// rowsBytes returns the memory of the keys and values of n tokens, limited to the windows.
func (c Config) rowsBytes(n int) (total int64) {
	for _, l := range c.Layers {
		held := n
		if l.Window > 0 {
			held = min(n, l.Window)
		}
		total += int64(held) * c.DType.Bytes(int64(c.row(l, l.KWidth)+c.row(l, l.VWidth)))
	}
	return total
}

// row returns the number of stored elements of a token's keys or values.
func (c Config) row(l LayerShape, width int) int {
	heads := max(l.Heads, 1)
	return backend.KVRow(c.DType, heads, width/heads)
}

// PageBytes returns the size of a page, including all layers that share it.
func (c Config) PageBytes() int64 {
	c.Layers = c.layout().slots
	return c.pageBytes()
}

// pageBytes returns the size of a page whose slots are the given layers.
func (c Config) pageBytes() int64 {
	if len(c.Layers) == 0 && len(c.States) > 0 {
		return leastPage
	}
	return c.BytesPerToken() * int64(c.pageTokens())
}

// PagesFor returns the number of pages that n tokens take in one group of layers.
func (c Config) PagesFor(n int) int { return (n + c.pageTokens() - 1) / c.pageTokens() }

func (c Config) pageTokens() int {
	if c.PageTokens == 0 {
		return DefaultPageTokens
	}
	return c.PageTokens
}

// start returns Start, or the number of all pages if Start is 0.
func (c Config) start() int {
	if c.Start == 0 {
		return c.Pages
	}
	return c.Start
}

// Holds reports whether a cache can have this dtype: those that attention supports.
func Holds(dtype meta.DType) bool {
	switch dtype {
	case meta.Float32, meta.BFloat16, meta.Float16, meta.Int8:
		return true
	}
	return false
}

func (c Config) check() error {
	switch {
	case c.Pages < 1 || c.Pages > math.MaxInt32/c.pageTokens():
		return fmt.Errorf("kvcache: got %d pages of %d tokens, want at least 1 page and fewer than 2^31 tokens", c.Pages, c.pageTokens())
	case c.Start < 0 || c.Start > c.Pages:
		return fmt.Errorf("kvcache: got %d pages at the start, want at most %d", c.Start, c.Pages)
	case c.PageTokens < 0:
		return fmt.Errorf("kvcache: got a page size of %d tokens, want a positive number", c.PageTokens)
	case !Holds(c.DType):
		return fmt.Errorf("kvcache: got the dtype %v, want float32, bfloat16, float16 or int8", c.DType)
	}
	for i, l := range c.Layers {
		if heads := max(l.Heads, 1); l.KWidth < 1 || l.VWidth < 0 || l.Window < 0 || l.KWidth%heads != 0 || l.VWidth%heads != 0 {
			return fmt.Errorf("kvcache: layer %d: invalid shape: key width %d, value width %d, %d heads, window %d",
				i, l.KWidth, l.VWidth, heads, l.Window)
		}
	}
	for i, elements := range c.States {
		if elements < 1 {
			return fmt.Errorf("kvcache: state %d has %d elements, want at least 1", i, elements)
		}
	}
	return nil
}

// Stats holds counts of pages and of reused prompt tokens.
type Stats struct {
	Pages  int // total number of pages
	Used   int // pages held by sequences
	Cached int // registered pages without references, available for reuse
	// Queries counts the tokens of all prompts passed to Reuse. Hits counts those found in the
	// cache. They correspond to vLLM's prefix_cache_queries and prefix_cache_hits.
	Queries, Hits int64
}

// A Layer is the cache memory of one layer. Its Group selects the page table of a sequence for
// [Sequence.Pages] and [Sequence.Slots].
type Layer struct {
	backend.KV
	Group int
}

// A Cache holds the pages of all layers.
type Cache struct {
	config Config
	layout layout
	memory backend.Memory
	slots  []slotMemory
	layers []Layer

	mu       sync.Mutex // guards the fields below, which Resize changes from another goroutine
	pages    []page
	free     list    // pages without references; the first is taken next
	unused   int     // their number
	withheld []int32 // free pages that Resize has made unusable
	stats    Stats

	secret  [32]byte // hashed first, so that clients cannot construct prompts that collide
	text    []byte   // scratch of the hash
	runs    []int    // scratch of Reuse
	buckets []int32  // first page of each chain of the table, none if empty
	pool    []*Sequence

	statePages  int             // number of pages that count for one state
	stateMemory []tensor.Tensor // of each layer with a state: [states, elements]
	states      []state
	freeStates  []stateID // unused; the last is taken next
	snapshots   map[content]stateID

	backing *backing // nil without Config.Backing
}

// A slotMemory is the memory of one slot of all pages on one device. Layers that share a slot and
// are on different devices have one each.
type slotMemory struct {
	backend.KV
	slot   int
	memory backend.Memory
}

// A page's links are page numbers, so that lists do not allocate.
type page struct {
	refs       int32
	prev, next int32 // in the list of free pages
	chain      int32 // next page of the same bucket
	// group and content are set while the page is registered.
	group      int32
	registered bool
	content    content
	state      stateID // the snapshot for which the page counts
}

const none = int32(-1)

// New allocates a cache in memory. Pages are not touched before they are written. Close frees the
// memory.
func New(memory backend.Memory, config Config) (*Cache, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	config.PageTokens = config.pageTokens()
	c := &Cache{
		config: config, layout: config.layout(), memory: memory,
		pages:   make([]page, config.Pages),
		text:    make([]byte, 0, 128+4*config.PageTokens),
		buckets: make([]int32, 1<<bits.Len(uint(config.Pages))),
		free:    list{first: none, last: none},
	}
	if b := config.Backing; b != nil {
		c.secret = b.secretOf(&config)
	} else {
		_, _ = rand.Read(c.secret[:]) // never fails
	}
	for i := range c.buckets {
		c.buckets[i] = none
	}
	for i := range config.start() {
		c.pushBack(int32(i))
	}
	for i := config.Pages - 1; i >= config.start(); i-- { // the last one becomes usable first
		c.withheld = append(c.withheld, int32(i))
	}
	for i, at := range c.layout.places {
		if _, err := c.slotOf(i, at.slot); err != nil {
			c.Close()
			return nil, fmt.Errorf("kvcache: layer %d: %w", i, err)
		}
	}
	c.smallPages()
	if err := c.newStates(); err != nil {
		c.Close()
		return nil, err
	}
	if err := c.newBacking(); err != nil {
		c.Close()
		return nil, err
	}
	for i, at := range c.layout.places {
		kv, _ := c.slotOf(i, at.slot)
		c.layers = append(c.layers, Layer{kv, at.group})
	}
	return c, nil
}

// slotOf returns a slot in the memory of a layer. The first layer that uses the slot allocates
// it.
func (c *Cache) slotOf(layer, slot int) (backend.KV, error) {
	m := slotMemory{slot: slot, memory: c.memoryOfLayer(layer)}
	for _, s := range c.slots {
		if s.slot == slot && s.memory == m.memory {
			return s.KV, nil
		}
	}
	var err error
	m.KV, err = c.allocate(m.memory, c.layout.slots[slot])
	c.slots = append(c.slots, m)
	return m.KV, err
}

func (c *Cache) allocate(memory backend.Memory, l LayerShape) (kv backend.KV, err error) {
	kv.PageTokens, kv.Heads = c.config.PageTokens, max(l.Heads, 1)
	if kv.K, err = memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, c.config.row(l, l.KWidth)); err != nil {
		return kv, err
	}
	if kv.V = kv.K; l.VWidth == 0 {
		return kv, nil
	}
	kv.V, err = memory.New(c.config.DType, c.config.Pages, c.config.PageTokens, c.config.row(l, l.VWidth))
	return kv, err
}

// memoryOfLayer returns the memory of a layer's keys and values.
func (c *Cache) memoryOfLayer(i int) backend.Memory {
	if c.config.LayerMemory == nil {
		return c.memory
	}
	return c.config.LayerMemory(i)
}

// memoryOfState returns the memory of a layer's states.
func (c *Cache) memoryOfState(i int) backend.Memory {
	if c.config.StateMemory == nil {
		return c.memory
	}
	return c.config.StateMemory(i)
}

// tensors returns the memory of c.slots[i]: the keys and, if stored separately, the values, and
// their number.
func (c *Cache) tensors(i int) ([2]tensor.Tensor, int) {
	kv := c.slots[i]
	if c.layout.slots[kv.slot].VWidth == 0 {
		return [2]tensor.Tensor{kv.K}, 1
	}
	return [2]tensor.Tensor{kv.K, kv.V}, 2
}

// Close frees the memory. The cache and its sequences must not be used afterwards.
func (c *Cache) Close() {
	c.closeBacking()
	for i := range c.slots {
		all, n := c.tensors(i)
		for _, t := range all[:n] {
			if !t.IsZero() {
				c.slots[i].memory.Free(t)
			}
		}
	}
	for i, t := range c.stateMemory {
		c.memoryOfState(i).Free(t)
	}
	c.slots, c.layers, c.stateMemory = nil, nil, nil
}

// Config returns the configuration with defaults filled in.
func (c *Cache) Config() Config { return c.config }

// PageBytes is [Config.PageBytes] without allocations on the Go heap.
func (c *Cache) PageBytes() int64 {
	config := c.config
	config.Layers = c.layout.slots
	return config.pageBytes()
}

// Layers returns the cache memory of each layer. The caller must not modify the slice.
func (c *Cache) Layers() []Layer { return c.layers }

// Groups returns the number of page tables per sequence.
func (c *Cache) Groups() int { return len(c.layout.windows) }

// Available returns the number of pages that Reserve can still take, including cached pages.
func (c *Cache) Available() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unused
}

// Stats returns the current page counts and the reuse counters.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Pages = len(c.pages)
	s.Used = c.used()
	return s
}
