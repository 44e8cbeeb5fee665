package kvcache

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// A Backing is a store for full pages and snapshots of states. Pages and snapshots are offered to
// it when they are registered and when they are reused. The cache copies them to it in the
// background, if they are still registered then.
type Backing struct {
	Store Store
	// Secret identifies everything that keys, values and states depend on, apart from tokens,
	// scope, salt and the cache's Layers, DType, PageTokens and States.
	Secret [32]byte
	// Memory holds two buffers, of [Config.BackingBytes] bytes in total.
	Memory backend.Memory
}

// A Store stores values by key, such as [*kvstore.Store]. All methods but Offer may take long.
type Store interface {
	Offer(key kvstore.Key, depth int, from kvstore.Source)
	Forget(from kvstore.Source)
	Flush(ctx context.Context) error
	Has(key kvstore.Key, length int) bool
	Get(key kvstore.Key, depth int, value []byte) bool
}

// secretOf returns the secret of a cache's contents. Caches share pages only if their secrets are
// equal.
func (b *Backing) secretOf(c *Config) [sha256.Size]byte {
	return sha256.Sum256(fmt.Appendf(nil, "%x %v %v %v %v", b.Secret, c.Layers, c.DType, c.PageTokens, c.States))
}

// statePart is the part of a key for a state. Other parts are the group of a page.
const statePart = int32(-1)

// flushWait is the maximum time that Close waits for pages to be written.
const flushWait = 10 * time.Second

// backing is the state of a cache's Backing.
type backing struct {
	*Backing
	out, in tensor.Tensor // buffers of bytes that the store writes, and that a restoration reads
	layers  [][]int       // by group: the layer of each slot, or -1

	// The cache's lock guards the fields below.
	closed  bool
	queue   []*restoration // waiting for their turn
	reading bool           // the goroutine of restorations is running
	reader  sync.WaitGroup
}

// BackingBytes returns the size of the buffers of a Backing.
func (c Config) BackingBytes() int64 {
	return 2 * max(c.PageBytes(), c.StateBytes())
}

func (c *Cache) newBacking() error {
	from := c.config.Backing
	if from == nil {
		return nil
	}
	c.backing = &backing{Backing: from, layers: c.layout.layers()}
	n := int(c.config.BackingBytes() / 2)
	for _, t := range []*tensor.Tensor{&c.backing.out, &c.backing.in} {
		var err error
		if *t, err = from.Memory.New(meta.Uint8, n); err != nil {
			return fmt.Errorf("kvcache: buffers: %w", err)
		}
	}
	return nil
}

// closeBacking waits, for a limited time, until offered pages are written, and for a page that is
// being read. It then frees the buffers.
func (c *Cache) closeBacking() {
	b := c.backing
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	_ = b.Store.Flush(ctx) // pages that are not written are computed again
	c.mu.Lock()
	b.closed = true
	c.mu.Unlock()
	b.reader.Wait()
	b.Store.Forget(c)
	for _, t := range []tensor.Tensor{b.out, b.in} {
		if !t.IsZero() {
			b.Memory.Free(t)
		}
	}
	c.backing = nil
}

// offer offers a registered page of a group, or a state, to the store. depth is the index of the
// page in its sequence.
func (c *Cache) offer(at *content, part int32, depth int) {
	if c.backing != nil {
		c.backing.Store.Offer(kvstore.Key{ID: *at, Part: part}, depth, c)
	}
}

// Value implements [kvstore.Source]. It holds the cache's lock while it copies.
func (c *Cache) Value(key kvstore.Key) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, at := c.backing, content(key.ID)
	if b == nil || b.closed {
		return nil, false
	}
	index := none
	if key.Part == statePart {
		if id, found := c.snapshots[at]; found {
			index = id.slot()
		}
	} else {
		index = c.find(int(key.Part), &at)
	}
	if index == none {
		return nil, false
	}
	data := b.out.Data[:c.partBytes(key.Part)]
	return data, c.copyPart(key.Part, index, data, false) == nil
}

// partBytes returns the size of a page or of a state.
func (c *Cache) partBytes(part int32) int {
	if part == statePart {
		return int(c.config.StateBytes())
	}
	return int(c.PageBytes())
}

// copyPart copies a page of a group, or a state, to data, or from data if in is set. Device
// memory is copied by its backend.Memory, which is safe for concurrent use. copyPart calls no
// operation of a backend, because the backend may be computing.
func (c *Cache) copyPart(part, index int32, data []byte, in bool) error {
	one := func(memory backend.Memory, all tensor.Tensor) error {
		t := all.Index(int(index))
		host := t
		host.Address, host.Data, data = 0, data[:t.Bytes()], data[t.Bytes():]
		switch {
		case t.Data != nil && in:
			copy(t.Data[:t.Bytes()], host.Data)
		case t.Data != nil:
			copy(host.Data, t.Data)
		case in:
			return memory.Copy(t, host)
		default:
			return memory.Copy(host, t)
		}
		return nil
	}
	if part == statePart {
		for i, t := range c.stateMemory {
			if err := one(c.memoryOfState(i), t); err != nil {
				return err
			}
		}
		return nil
	}
	for slot, layer := range c.backing.layers[part] {
		if layer < 0 { // the group has no layer in this slot
			n := c.slotBytes(slot)
			if !in {
				clear(data[:n])
			}
			data = data[n:]
			continue
		}
		kv, memory := &c.layers[layer], c.memoryOfLayer(layer)
		if err := one(memory, kv.K); err != nil {
			return err
		}
		if c.layout.slots[slot].VWidth == 0 {
			continue
		}
		if err := one(memory, kv.V); err != nil {
			return err
		}
	}
	return nil
}

// slotBytes returns the size of a slot in a page.
func (c *Cache) slotBytes(slot int) int64 {
	config := c.config
	config.Layers = c.layout.slots[slot : slot+1]
	return config.pageBytes()
}
