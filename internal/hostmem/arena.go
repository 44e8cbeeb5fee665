package hostmem

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"unsafe"
)

// An Arena allocates blocks from one region of huge pages, which the models of a process share. The
// region is address space of the system, which takes memory when blocks are written. Blocks are whole small
// pages. Those of weights lie next to each other, so that small ones share huge pages and large ones do
// not waste the rest of their last one. Other blocks of HugePage bytes or more begin on a huge-page
// boundary. The memory of a released block returns to the system at once.
//
// The zero value is ready. Any goroutine may use it. On systems other than Linux each block
// is memory of its own, as from [Alloc].
type Arena struct {
	// Ledger counts the blocks. nil counts nothing. It must be set before the first block.
	Ledger *Ledger
	// Size is the address space of the region in bytes; 0 means 1 GiB. The arena adds a region when
	// the first one is full. It must be set before the first block.
	Size int64

	mu     sync.Mutex
	spaces []*space
	blocks int // of spaces
	failed bool
}

const (
	// defaultSpace is the address space of an arena that has no Size.
	defaultSpace = 1 << 30
	// readyStep is by how much the usable part of a space grows.
	readyStep = 32 << 20
	// clearedSize is the size below which a released block is filled with zeros. Larger ones return
	// their pages to the system.
	clearedSize = 128 << 10
)

// A space is a region of an arena. All memory in it that is free contains zeros.
type space struct {
	memory []byte   // reserved address space, from a huge-page boundary on
	ready  int      // bytes from the begin on that may be used
	free   []extent // of all of memory, by begin; no two are adjacent
	used   []int32  // allocated bytes of each huge page
}

// An extent is a range of a space.
type extent struct{ begin, end int }

// Alloc allocates a block of n bytes, filled with zeros, and counts it for p, rounded up to whole pages.
// The block begins on a page boundary. The caller owns it.
func (a *Arena) Alloc(p Purpose, n int) (*Block, error) {
	if n < 0 || int(p) >= purposes {
		return nil, fmt.Errorf("hostmem: block of %d bytes for %v", n, p)
	}
	if n == 0 {
		return &Block{ledger: a.Ledger, purpose: p}, nil
	}
	size, align := Up(n, os.Getpagesize()), 1
	if size >= HugePage && p != Weights && p != Staging {
		align = HugePage
	}
	a.mu.Lock()
	s, at, err := a.take(size, align)
	a.mu.Unlock()
	if errors.Is(err, errors.ErrUnsupported) {
		return Alloc(a.Ledger, p, n)
	}
	if err != nil {
		return nil, fmt.Errorf("hostmem: %d bytes for %v: %w", n, p, limited(err))
	}
	b := &Block{ledger: a.Ledger, purpose: p, arena: a, space: s, region: s.memory[at : at+size : at+size]}
	b.data = b.region[:n:n]
	a.Ledger.Add(p, int64(size))
	return b, nil
}

// take allocates size bytes, a multiple of the page size, at a multiple of align. It fails with errors.ErrUnsupported if the
// system has no address space for a region.
func (a *Arena) take(size, align int) (*space, int, error) {
	for _, s := range a.spaces {
		if at, err := s.take(size, align); at >= 0 {
			a.count(1)
			return s, at, nil
		} else if err != nil {
			return nil, 0, err
		}
	}
	if a.failed {
		return nil, 0, errors.ErrUnsupported
	}
	want := a.Size
	if want <= 0 {
		want = defaultSpace
	}
	memory, err := reserve(Up(max(size, int(want)), HugePage))
	if err != nil {
		a.failed = true
		return nil, 0, errors.ErrUnsupported
	}
	s := &space{memory: memory, free: []extent{{0, len(memory)}}}
	a.spaces = append(a.spaces, s)
	at, err := s.take(size, align)
	if err != nil {
		a.count(0)
		return nil, 0, err
	}
	a.count(1)
	return s, at, nil
}

// count adds n blocks. It unmaps the regions when the last block is gone.
func (a *Arena) count(n int) {
	if a.blocks += n; a.blocks == 0 {
		for _, s := range a.spaces {
			_ = unmap(s.memory) // nothing uses it
		}
		a.spaces, a.failed = nil, false
	}
}

// take allocates size bytes from the first extent that has room. It returns -1 if there is none.
func (s *space) take(size, align int) (int, error) {
	for i := range s.free {
		e := &s.free[i]
		at := Up(e.begin, align)
		end := at + size
		if end > e.end {
			continue
		}
		if end > s.ready {
			ready := min(Up(end, readyStep), len(s.memory))
			if err := commit(s.memory[s.ready:ready]); err != nil {
				return -1, err
			}
			s.ready = ready
			s.used = append(s.used, make([]int32, ready/HugePage-len(s.used))...)
		}
		before := extent{e.begin, at}
		if e.begin = end; e.begin == e.end {
			s.free = slices.Delete(s.free, i, i+1)
		}
		if before.begin < before.end {
			s.free = slices.Insert(s.free, i, before)
		}
		s.count(at, end, 1)
		return at, nil
	}
	return -1, nil
}

// count adds the bytes of [begin, end), times sign, to those of the huge pages.
func (s *space) count(begin, end, sign int) {
	for begin < end {
		next := min(end, (begin/HugePage+1)*HugePage)
		s.used[begin/HugePage] += int32(sign * (next - begin))
		begin = next
	}
}

// release frees a block's region. A large one returns its pages to the system, a small one only if its
// huge page has no other block, as the system would have to split that.
func (a *Arena) release(p Purpose, s *space, region []byte) {
	if p == KV {
		adviseHuge(region) // SmallPages may have changed it
	}
	begin := s.offset(region)
	end := begin + len(region)
	if len(region) < clearedSize || discard(region) != nil {
		clear(region)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.count(begin, end, -1)
	for _, page := range []int{begin / HugePage, (end - 1) / HugePage} {
		if s.used[page] == 0 {
			_ = discard(s.memory[page*HugePage:][:HugePage]) // its free memory contains zeros already
		}
	}
	s.put(extent{begin, end})
	a.count(-1)
}

// offset returns where a region begins in s.
func (s *space) offset(region []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(region))) - uintptr(unsafe.Pointer(unsafe.SliceData(s.memory))))
}

// put adds an extent to the free ones.
func (s *space) put(e extent) {
	i := sort.Search(len(s.free), func(i int) bool { return s.free[i].begin > e.begin })
	before, behind := i > 0 && s.free[i-1].end == e.begin, i < len(s.free) && s.free[i].begin == e.end
	switch {
	case before && behind:
		s.free[i-1].end = s.free[i].end
		s.free = slices.Delete(s.free, i, i+1)
	case before:
		s.free[i-1].end = e.end
	case behind:
		s.free[i].begin = e.begin
	default:
		s.free = slices.Insert(s.free, i, e)
	}
}

// ArenaStats describe the memory of an [Arena].
type ArenaStats struct {
	Blocks    int   // allocated ones
	Bytes     int64 // of these
	HugePages int   // that have a part of a block
	Reserved  int64 // bytes of address space
}

// Stats returns the state of the arena.
func (a *Arena) Stats() ArenaStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := ArenaStats{Blocks: a.blocks}
	for _, s := range a.spaces {
		out.Reserved += int64(len(s.memory))
		for _, n := range s.used {
			if n > 0 {
				out.HugePages++
				out.Bytes += int64(n)
			}
		}
	}
	return out
}

// IntoHugePage returns the number of bytes from the huge-page boundary before b to b.
func IntoHugePage(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (HugePage - 1))
}
