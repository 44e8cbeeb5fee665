//go:build cuda

package cuda

import "github.com/heftai/heft/internal/backend"

// scratch is GPU memory for intermediate results of one operation at a time.
type scratch struct {
	address uintptr
	size    int64
	limit   int64 // bytes planned for it; 0 if there is no plan
}

// reserve grows the scratch memory to at least n bytes and returns its address.
func (b *Backend) reserve(n int64) uint64 {
	s := &b.scratch
	if n > s.size && b.err == nil {
		size := 2 * n // the scores of a sequence grow in each pass
		if s.limit > 0 {
			size = max(n, min(size, s.limit))
		}
		b.freeScratch()
		p, err := b.allocate(size)
		if err != nil {
			b.fail("allocate %d bytes of scratch: %w", size, err)
			return 0
		}
		b.counters.own.Add(size)
		s.address, s.size = p, size
	}
	return uint64(s.address)
}

func (b *Backend) freeScratch() {
	if s := &b.scratch; s.address != 0 {
		b.check("wait", b.flushed().Wait())
		b.free(s.address, s.size)
		b.counters.own.Add(-s.size)
		s.address, s.size = 0, 0
	}
}

// OwnBytes returns the maximum GPU memory, in bytes, that the work w needs in addition to its
// tensors: the ring of operands and the scratch memory of operations. fast tells whether kernels of
// [Options].Fast may run.
func OwnBytes(w *backend.Work, fast bool) int64 { return ringBytes + scratchOf(w, fast) }

// LimitOwn limits memory reserved in advance to a result of [OwnBytes]. An operation that needs
// more still gets it.
func (b *Backend) LimitOwn(bytes int64) { b.scratch.limit = max(bytes-ringBytes, 1) }

// scratchOf returns the maximum scratch memory that w needs, in bytes.
func scratchOf(w *backend.Work, fast bool) (n int64) {
	for i := range w.Attention {
		a := &w.Attention[i]
		longest := int64(a.Context)
		if a.Window > 0 {
			longest = min(longest, int64(a.Window))
		}
		n = max(n, someRows(4*int64(a.Heads)*longest, a.Tokens)) // as attendSpan
		if fast {
			parts := (longest+partQueries)/partPositions + 2 // as collect
			n = max(n, someRows(4*int64(a.Heads)*int64(a.ValueDim+2)*parts, a.Tokens))
		}
	}
	for i := range w.Products {
		if p := &w.Products[i]; fast {
			n = max(n, roundedBytes(min(p.Tokens, roundedTokens), p.Weight.InCols()))
		}
	}
	return n
}

// someRows returns the bytes of the rows of a launch: at most scratchBytes, but at least one row.
func someRows(each int64, rows int) int64 { return min(each*int64(rows), max(each, scratchBytes)) }
