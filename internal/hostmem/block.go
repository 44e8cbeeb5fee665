package hostmem

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrReleased is what the second release of a block or mapping returns.
var ErrReleased = errors.New("hostmem: released before")

// A Block is anonymous memory, filled with zeros at first. It begins on a page
// boundary, or on a huge-page boundary from [HugePage] bytes on.
//
// Bytes may be read and written by many goroutines under their own rules. One owner
// releases it, when none of them does any more.
type Block struct {
	data     []byte // what was asked for
	region   []byte // what is mapped
	ledger   *Ledger
	purpose  Purpose
	released atomic.Bool
}

// HugePage is the size from which blocks are backed by huge pages where the system
// has them.
const HugePage = 2 << 20

// Alloc maps a block of n bytes and counts it for p in l. What is counted is what is
// mapped: n rounded up to whole pages. The caller owns the block.
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
		return nil, fmt.Errorf("hostmem: %d bytes for %v: %w", n, p, err)
	}
	b.region, b.data = region, region[:n:n]
	l.Add(p, int64(len(region)))
	return b, nil
}

// Bytes is the block's memory. It is valid until the release.
func (b *Block) Bytes() []byte { return b.data }

// Release unmaps the memory. A second release is ErrReleased and changes nothing.
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
	return unmap(region)
}

// Align is the alignment of the pieces that a block is divided into: a cache line,
// and a whole vector of the widest kernels.
const Align = 64

// Up rounds n up to a multiple of align, a power of two.
func Up(n, align int) int { return (n + align - 1) &^ (align - 1) }
