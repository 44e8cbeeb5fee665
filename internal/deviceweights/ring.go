package deviceweights

import (
	"fmt"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// ringAlign is the alignment of what a ring holds: kernels load many bytes at once.
const ringAlign = 256

// aligned is the room that n bytes take in a ring.
func aligned(n int64) int64 { return (n + ringAlign - 1) &^ (ringAlign - 1) }

// A ring is memory of a device that is filled from its begin to its end, and around.
type ring struct {
	memory  tensor.Tensor // bytes
	regions []region
	at      int // where the next region begins, if it has room there
}

// A region is a part of a ring that is in use, or was.
type region struct {
	begin, end int
	released   bool
	fence      backend.Fence // behind the last use, if released
}

// newRing allocates a ring of n bytes.
func newRing(memory backend.Memory, n int64) (r ring, err error) {
	if n > 0 {
		r.memory, err = memory.New(meta.Uint8, int(n))
	}
	return r, err
}

// take returns n bytes, and the fence behind the last use of their memory.
func (r *ring) take(n int) (t tensor.Tensor, after backend.Fence, err error) {
	room, size := int(aligned(int64(n))), r.memory.Elements()
	begin := r.at
	if begin+room > size {
		begin = 0
	}
	if room > size || r.used(begin, begin+room) {
		return t, 0, fmt.Errorf("deviceweights: %d bytes do not fit into a ring of %d beside what is in use", n, size)
	}
	end := begin + room
	var behind region // what is left of the region at the end
	kept := r.regions[:0]
	for _, g := range r.regions {
		if g.begin < end && begin < g.end {
			after = max(after, g.fence)
			if g.end > end {
				behind = region{end, g.end, true, g.fence}
			}
			g.end = begin
		}
		if g.begin < g.end {
			kept = append(kept, g)
		}
	}
	if behind.end > 0 {
		kept = append(kept, behind)
	}
	r.regions = append(kept, region{begin: begin, end: end})
	r.at = end
	return r.memory.Slice(begin, begin+n), after, nil
}

// used reports whether bytes from begin to end are in use.
func (r *ring) used(begin, end int) bool {
	for _, g := range r.regions {
		if !g.released && g.begin < end && begin < g.end {
			return true
		}
	}
	return false
}

// release ends the use of all regions.
func (r *ring) release(fence backend.Fence) {
	for i := range r.regions {
		if g := &r.regions[i]; !g.released {
			g.released, g.fence = true, fence
		}
	}
}

// releaseLast ends the use of the n regions that were taken last.
func (r *ring) releaseLast(n int, fence backend.Fence) {
	for i := range r.regions[len(r.regions)-n:] {
		g := &r.regions[len(r.regions)-n+i]
		g.released, g.fence = true, fence
	}
}
