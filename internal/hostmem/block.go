package hostmem

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrReleased is the error of the second release of a block or mapping.
var ErrReleased = errors.New("hostmem: released before")

// A Block is anonymous memory, filled with zeros at first. It begins on a page boundary. Blocks of
// [HugePage] bytes or more begin on a huge-page boundary.
//
// Goroutines that share a block must synchronise their use of its bytes. One owner releases it after
// all of them.
type Block struct {
	data     []byte // of the requested size
	region   []byte // as mapped, in whole pages
	ledger   *Ledger
	purpose  Purpose
	arena    *Arena // that it is of, or nil
	space    *space
	released atomic.Bool
}

// HugePage is the size of a huge page. Blocks of this size or more use huge pages if the system has
// them.
const HugePage = 2 << 20

// Alloc maps a block of n bytes. It counts n, rounded up to whole pages, for p in l. The caller owns
// the block.
func Alloc(l *Ledger, p Purpose, n int) (*Block, error) {
	if n < 0 || int(p) >= purposes {
		return nil, fmt.Errorf("hostmem: block of %d bytes for %v", n, p)
	}
	b := &Block{ledger: l, purpose: p}
	if n == 0 {
		return b, nil
	}
	region, err := mapAnonymous(n)
	if err != nil {
		return nil, fmt.Errorf("hostmem: %d bytes for %v: %w", n, p, limited(err))
	}
	b.region, b.data = region, region[:n:n]
	l.Add(p, int64(len(region)))
	return b, nil
}

// Bytes returns the block's memory, which is valid until the release.
func (b *Block) Bytes() []byte { return b.data }

// Purpose returns what the block is counted for.
func (b *Block) Purpose() Purpose { return b.purpose }

// Release returns the memory to the system. A second release is ErrReleased and changes nothing.
func (b *Block) Release() error {
	if b.released.Swap(true) {
		return ErrReleased
	}
	region := b.region
	b.region, b.data = nil, nil
	if len(region) == 0 {
		return nil
	}
	b.ledger.Add(b.purpose, -int64(len(region)))
	if b.arena != nil {
		b.arena.release(b.purpose, b.space, region)
		return nil
	}
	return unmap(region)
}

// Align is the alignment of matrices within a block: a cache line, which is also the widest vector of
// the kernels.
const Align = 64

// Up rounds n up to a multiple of align, which must be a power of two.
func Up(n, align int) int { return (n + align - 1) &^ (align - 1) }
