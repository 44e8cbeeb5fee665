package residency

import (
	"fmt"
	"slices"
	"sync"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
)

// ChangingOptions configure a [Changing].
type ChangingOptions struct {
	// Arena provides the memory of segments, and Mover reads and writes them. A process shares
	// them. nil means a new one for this Changing.
	Arena *hostmem.Arena
	Mover *Mover
	// Limit is the maximum memory of segments, in bytes. Segments that are acquired at the same
	// time may exceed it. 0 means no limit.
	Limit int64
	// Dir is the folder of the scratch file. The file takes about the size of the changed
	// segments that do not fit into memory.
	Dir string
	// MaxDisk is the maximum size of the scratch file in bytes. A write beyond it fails like one
	// to a full disk. 0 means no limit.
	MaxDisk int64
}

// Changing holds mutable segments, such as the trained parameters of a model, within a memory
// limit. A segment is in its source, in memory, or in a scratch file. Acquire loads it into
// memory and evicts others if necessary. A changed segment is written to the scratch file before
// it is evicted. If segments are acquired in an order that repeats, as in the steps of training,
// the next ones are read ahead, and the one that is needed last is evicted; otherwise the least
// recently used one is evicted.
//
// If a write to the scratch file fails, Acquire returns the error and the changed segment stays
// in memory. Nothing is lost, and the next Acquire tries again. A Changing is safe for concurrent
// use.
type Changing struct {
	arena *hostmem.Arena
	mover *Mover
	limit int64

	scratch *scratch

	mu     sync.Mutex
	moved  sync.Cond // a segment was loaded or evicted
	list   []*Changed
	clock  int64
	stats  ChangingStats
	closed bool
	moving int

	forecast forecast // of indices of list
	ahead    bool     // a goroutine is reading ahead
	full     bool     // the last write failed: nothing is read ahead
}

// ChangingStats holds the counters of a [Changing], in bytes.
type ChangingStats struct {
	Size          int64 // of all segments
	Held, Peak    int64 // in memory now, and the maximum
	Read, Written int64 // from and to the scratch file
	Ahead         int64 // part of Read that was read before it was needed
	Used, Hit     int64 // acquired, and the part of it that was in memory by then
}

// NewChanging returns a Changing without segments. It removes scratch files that killed processes
// have left in Dir.
func NewChanging(o ChangingOptions) *Changing {
	c := &Changing{arena: o.Arena, mover: o.Mover, limit: o.Limit, scratch: newScratch(o.Dir, o.MaxDisk)}
	if c.arena == nil {
		c.arena = new(hostmem.Arena)
	}
	if c.mover == nil {
		c.mover = new(Mover)
	}
	c.mover.open()
	c.moved.L = &c.mu
	return c
}

// A Changed is a mutable segment.
type Changed struct {
	all    *Changing
	number int // index in the list
	name   string
	size   int64
	fill   func(to []byte) error // its source; nil for zeros

	place   place // inFile, coming, inMemory or leaving
	block   *hostmem.Block
	pins    int
	used    int64 // clock of the last release
	early   bool  // read ahead and not used yet
	unread  bool  // reading ahead failed, and g was not acquired since
	dirty   bool
	stays   bool // not evicted while it is in memory
	written bool // the scratch file holds it; otherwise its source does
	off     int64
	sum     uint32
}

// Add adds a segment of size bytes. fill writes its initial values whenever they are needed; nil
// means zeros. Add reads nothing. The name appears in errors.
func (c *Changing) Add(name string, size int64, fill func(to []byte) error) *Changed {
	g := &Changed{all: c, name: name, size: size, fill: fill, off: -1}
	c.mu.Lock()
	g.number = len(c.list)
	c.list = append(c.list, g)
	c.stats.Size += size
	c.mu.Unlock()
	return g
}

// SetLimit changes the memory limit. Segments are evicted when others are loaded.
func (c *Changing) SetLimit(bytes int64) {
	c.mu.Lock()
	c.limit = bytes
	c.mu.Unlock()
}

// SetMaxDisk changes the maximum size of the scratch file, for segments that are not in it yet.
func (c *Changing) SetMaxDisk(bytes int64) {
	c.scratch.mu.Lock()
	c.scratch.most = bytes
	c.scratch.mu.Unlock()
}

// Stats returns the counters.
func (c *Changing) Stats() ChangingStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Close frees the memory of all segments and removes the scratch file. No segment may be
// acquired.
func (c *Changing) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	for c.moving > 0 {
		c.moved.Wait()
	}
	for _, g := range c.list {
		if g.block != nil {
			_ = g.block.Release() // released nowhere else
			g.block, g.place = nil, inFile
		}
	}
	c.stats.Held = 0
	c.mu.Unlock()
	c.mover.close()
	c.scratch.close()
}

// Acquire returns the bytes of g, which do not move until Release. Calls nest. It returns an
// error if g cannot be read, if its bytes differ from those that were written, or if a segment
// that has to be evicted cannot be written.
func (g *Changed) Acquire() ([]byte, error) {
	c := g.all
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Used += g.size
	if g.place == inMemory {
		c.stats.Hit += g.size
	}
	for g.place == coming || g.place == leaving {
		c.moved.Wait()
	}
	if c.closed {
		return nil, errClosed
	}
	if g.pins == 0 {
		c.forecast.used(g.number)
	}
	if g.place != inMemory {
		if err := c.bring(g, 0); err != nil {
			return nil, fmt.Errorf("residency: %w", err)
		}
	}
	g.pins++
	g.early, g.unread = false, false
	c.readAhead()
	return g.block.Bytes()[:g.size], nil
}

// MarkDirty records that the acquired bytes of g are changed. Call it before Release.
func (g *Changed) MarkDirty() {
	g.all.mu.Lock()
	g.dirty = true
	g.leave()
	g.all.mu.Unlock()
}

// leave frees the place of g in the scratch file, whose bytes are outdated. The caller holds mu.
func (g *Changed) leave() {
	if g.off >= 0 {
		g.all.scratch.leave(g.off, roomOf(g))
		g.off, g.written = -1, false
	}
}

// Stay keeps g in memory once it is loaded, whatever the limit is.
func (g *Changed) Stay() {
	g.all.mu.Lock()
	g.stays = true
	g.all.mu.Unlock()
}

// Drop sets the values of g to zeros and frees its memory. It writes nothing. g must not be
// acquired.
func (g *Changed) Drop() {
	c := g.all
	c.mu.Lock()
	defer c.mu.Unlock()
	for g.place == coming || g.place == leaving {
		c.moved.Wait()
	}
	g.leave()
	g.fill, g.dirty, g.early = nil, false, false
	if g.block == nil {
		return
	}
	c.hold(-int64(len(g.block.Bytes())))
	_ = g.block.Release() // released nowhere else
	g.block, g.place = nil, inFile
}

// Resize drops the values of g and changes its size.
func (g *Changed) Resize(size int64) {
	g.Drop()
	g.all.mu.Lock()
	g.all.stats.Size += size - g.size
	g.size = size
	g.all.mu.Unlock()
}

// Release ends one Acquire.
func (g *Changed) Release() {
	c := g.all
	c.mu.Lock()
	c.clock++
	g.pins--
	g.used = c.clock
	c.readAhead()
	c.mu.Unlock()
}

// Resident returns the bytes of g if it is acquired, otherwise nil.
func (g *Changed) Resident() []byte {
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	if g.pins == 0 {
		return nil
	}
	return g.block.Bytes()[:g.size]
}

// Size returns the size of g in bytes.
func (g *Changed) Size() int64 { return g.size }

// bring loads g into memory. use is the predicted use that g is read ahead for, or 0. The caller
// holds mu, which bring unlocks while it reads.
func (c *Changing) bring(g *Changed, use int) (err error) {
	g.place, g.early = coming, use > 0
	c.moving++
	defer func() {
		if g.place = inMemory; err != nil {
			g.place, g.early = inFile, false
		}
		c.moving--
		c.moved.Broadcast()
	}()
	n := roomOf(g)
	if err := c.makeRoom(n, use); err != nil {
		return err
	}
	c.hold(n)
	c.mu.Unlock()
	block, err := c.read(g, int(n))
	c.mu.Lock()
	if err != nil {
		c.hold(-n)
		return fmt.Errorf("%s: %w", g.name, err)
	}
	g.block = block
	if g.written {
		c.stats.Read += n
		if use > 0 {
			c.stats.Ahead += n
		}
	}
	return nil
}

// roomOf returns the memory that g takes.
func roomOf(g *Changed) int64 { return int64(hostmem.Up(int(max(g.size, 1)), blockSize)) }

func (c *Changing) hold(n int64) {
	c.stats.Held += n
	c.stats.Peak = max(c.stats.Peak, c.stats.Held)
}

// read returns the bytes of g in newly allocated memory.
func (c *Changing) read(g *Changed, n int) (*hostmem.Block, error) {
	block, err := c.arena.Alloc(hostmem.Weights, n)
	if err != nil {
		return nil, err
	}
	data := block.Bytes()
	switch {
	case g.written:
		if err = c.scratch.run(c.mover, data, g.off, false); err == nil && checksum(data[:g.size]) != g.sum {
			err = fmt.Errorf("%s: byte %d: what was read is not what was written: the disk has failed or the file was changed", c.scratch.file.Path(), g.off)
		}
	case g.fill != nil:
		err = g.fill(data[:g.size])
	}
	if err != nil {
		_ = block.Release() // the error tells more
		return nil, err
	}
	return block, nil
}

// makeRoom evicts segments until n bytes fit, or until all others are acquired. For a read ahead
// (use > 0), it does not wait and fails if there is no room. The caller holds mu.
func (c *Changing) makeRoom(n int64, use int) error {
	for c.limit > 0 && c.stats.Held+n > c.limit {
		leaves := slices.ContainsFunc(c.list, func(g *Changed) bool { return g.place == leaving || g.place == coming && g.early })
		victim := c.victim(use)
		switch {
		case victim != nil:
			if err := c.evict(victim); err != nil {
				return err
			}
		case use > 0:
			return errTooEarly
		case leaves:
			c.moved.Wait()
		default:
			return nil
		}
	}
	return nil
}

// evict frees the memory of g. If g is dirty, it is first written to the scratch file; if that
// fails, g stays in memory. The caller holds mu, which evict unlocks while it writes.
func (c *Changing) evict(g *Changed) error {
	n := int64(len(g.block.Bytes()))
	if g.dirty {
		g.place = leaving
		c.moving++
		c.mu.Unlock()
		err := c.write(g)
		c.mu.Lock()
		c.moving--
		c.moved.Broadcast()
		g.place, c.full = inMemory, err != nil
		if err != nil {
			if atomicfile.IsFull(err) {
				err = fmt.Errorf("%w: free space there, use a folder on another disk, or a larger memory limit", err)
			}
			return fmt.Errorf("%s was changed and cannot leave memory: %w", g.name, err)
		}
		g.dirty, g.written = false, true
		c.stats.Written += n
	}
	_ = g.block.Release() // released nowhere else
	g.block, g.place, g.early = nil, inFile, false
	c.hold(-n)
	return nil
}

// write writes g to the scratch file.
func (c *Changing) write(g *Changed) error {
	if err := c.scratch.open(); err != nil {
		return err
	}
	data := g.block.Bytes()
	if g.off < 0 {
		off, err := c.scratch.place(int64(len(data)))
		if err != nil {
			return err
		}
		g.off = off
	}
	g.sum = checksum(data[:g.size])
	return c.scratch.run(c.mover, data, g.off, true)
}
