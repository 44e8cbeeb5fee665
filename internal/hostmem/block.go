package hostmem

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrReleased is what a release of memory that nobody holds any more returns.
var ErrReleased = errors.New("hostmem: released more often than retained")

// A Block is anonymous memory, filled with zeros at first. It begins on a page
// boundary, or on a huge-page boundary from [HugePage] bytes on.
//
// Bytes may be read and written by many goroutines under their own rules; Retain and
// Release may be called from any.
type Block struct {
	data    []byte // what was asked for
	region  []byte // what is mapped
	ledger  *Ledger
	purpose Purpose
	uses    atomic.Int32
}

// HugePage is the size from which blocks are backed by huge pages where the system
// has them.
const HugePage = 2 << 20

// Alloc maps a block of n bytes and counts it for p in l. What is counted is what is
// mapped: n rounded up to whole pages. The caller holds the block's one use.
func Alloc(l *Ledger, p Purpose, n int) (*Block, error) {
	if n < 0 || int(p) >= purposes {
		return nil, fmt.Errorf("hostmem: block of %d bytes for %v", n, p)
	}
	b := &Block{ledger: l, purpose: p}
	b.uses.Store(1)
	if n == 0 {
		return b, nil
	}
	region, err := mapAnonymous(n)
	if err != nil {
		return nil, fmt.Errorf("hostmem: %d bytes for %v: %w", n, p, err)
	}
	b.region, b.data = region, region[:n:n]
	l.Add(p, int64(len(region)))
	return b, nil
}

// Bytes is the block's memory. It is valid until the last release.
func (b *Block) Bytes() []byte { return b.data }

// Size is the bytes that the ledger counts for the block.
func (b *Block) Size() int64 { return int64(len(b.region)) }

// Retain adds a user. It must be called by one who knows the block is held.
func (b *Block) Retain() { b.uses.Add(1) }

// Release lets go of one use; the last one unmaps the memory. A release too many is
// ErrReleased and changes nothing.
func (b *Block) Release() error {
	last, err := release(&b.uses)
	if !last {
		return err
	}
	region := b.region
	b.region, b.data = nil, nil
	if len(region) == 0 {
		return nil
	}
	b.ledger.Add(b.purpose, -int64(len(region)))
	return unmap(region)
}

// Uses is the number of uses that are held.
func (b *Block) Uses() int { return int(b.uses.Load()) }

// release takes one use off and reports whether it was the last.
func release(uses *atomic.Int32) (last bool, err error) {
	for {
		n := uses.Load()
		if n <= 0 {
			return false, ErrReleased
		}
		if uses.CompareAndSwap(n, n-1) {
			return n == 1, nil
		}
	}
}

// Align is the boundary on which [Arena.Take] puts every slice: a cache line, and a
// whole vector of the widest kernels.
const Align = 64

// An Arena hands out slices of one block, one after another. It is not safe for
// concurrent use. The slices live as long as the block.
type Arena struct {
	block *Block
	used  int
}

// NewArena makes an arena over all of b's bytes.
func NewArena(b *Block) *Arena { return &Arena{block: b} }

// Take is the next n bytes on an [Align] boundary. It fails where the block is full.
func (a *Arena) Take(n int) ([]byte, error) {
	begin := Up(a.used, Align)
	if n < 0 || begin > len(a.block.data) || n > len(a.block.data)-begin {
		return nil, fmt.Errorf("hostmem: arena of %d bytes cannot give %d more after %d", len(a.block.data), n, a.used)
	}
	a.used = begin + n
	return a.block.data[begin:a.used:a.used], nil
}

// Used is the bytes handed out, gaps included.
func (a *Arena) Used() int { return a.used }

// Reset lets the block's bytes be handed out again, as they are.
func (a *Arena) Reset() { a.used = 0 }

// Up rounds n up to a multiple of align, a power of two.
func Up(n, align int) int { return (n + align - 1) &^ (align - 1) }
