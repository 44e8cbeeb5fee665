package tokenizer

import (
	"slices"
	"sync"
)

// workWord is a word during merging: a doubly linked list of symbols. A long word takes symbolBytes
// of memory per symbol.
type workWord struct {
	syms  []symbol
	queue []uint64 // a heap of merges that may be possible: rank, then place
	fused [smallWord]int32

	counting bool // add counts only
	count    int
}

// symbolBytes is the memory for a symbol of a long word, with its share of the queue and its final
// id.
const symbolBytes = 20 + 9 + 4

// symbol is a token during merging. One that was merged into its left neighbour has no rank and is
// not in the list.
type symbol struct {
	id, size   int32
	prev, next int32 // places in the list, -1 at the ends
	rank       int32 // of the merge with the next symbol, noRank for none
}

var workWords = sync.Pool{New: func() any { return new(workWord) }}

// release returns w to the pool, unless it has grown large: memory for long words is not kept.
func (w *workWord) release() {
	if cap(w.syms) <= longWord {
		workWords.Put(w)
	}
}

func (w *workWord) add(id, size int32) {
	if w.counting {
		w.count++
		return
	}
	n := int32(len(w.syms))
	if n > 0 {
		w.syms[n-1].next = n
	}
	w.syms = append(w.syms, symbol{id: id, size: size, prev: n - 1, next: -1})
}

// first returns the index of the first symbol, or -1 if there is none. The first symbol is never
// merged into another.
func (w *workWord) first() int32 {
	if len(w.syms) == 0 {
		return -1
	}
	return 0
}

// smallWord is the length up to which a search for the next merge is faster than a queue.
const smallWord = 24

// merge merges neighbours, lowest rank first and leftmost first among equals, until
// no pair has a merge. b may end the work on a long word.
func (w *workWord) merge(merges *pairTable, b *bounds) error {
	if len(w.syms) > smallWord {
		return w.mergeQueued(merges, b)
	}
	w.mergeSmall(merges)
	return b.step()
}

const noRank = 1<<31 - 1

// rate looks up the merge of the symbol at i with the next one.
func (w *workWord) rate(merges *pairTable, i int32) {
	s := &w.syms[i]
	s.rank = noRank
	if s.next >= 0 {
		if rank, fused, ok := merges.get(s.id, w.syms[s.next].id); ok {
			s.rank, w.fused[i] = rank, fused
		}
	}
}

func (w *workWord) mergeSmall(merges *pairTable) {
	for i := range w.syms {
		w.rate(merges, int32(i))
	}
	for {
		best, at := int32(noRank), int32(-1)
		for i := w.first(); i >= 0; i = w.syms[i].next {
			if w.syms[i].rank < best {
				best, at = w.syms[i].rank, i
			}
		}
		if at < 0 {
			return
		}
		w.join(at, w.fused[at])
		w.rate(merges, at)
		if prev := w.syms[at].prev; prev >= 0 {
			w.rate(merges, prev)
		}
	}
}

// join merges the symbol at i with the next one.
func (w *workWord) join(i, fused int32) {
	s := &w.syms[i]
	gone := &w.syms[s.next]
	s.id, s.size, s.next = fused, s.size+gone.size, gone.next
	gone.rank = noRank
	if s.next >= 0 {
		w.syms[s.next].prev = i
	}
}

// mergeQueued takes time n log n in the number of symbols. An entry of the queue is stale
// if the symbol at its place has another rank by now: no two pairs have the same rank, and
// no pair comes back to a place.
func (w *workWord) mergeQueued(merges *pairTable, b *bounds) error {
	if n := len(w.syms); cap(w.queue) < n+n/8+16 {
		w.queue = make([]uint64, 0, n+n/8+16)
	}
	w.queue = w.queue[:0]
	for i := range w.syms {
		if err := b.step(); err != nil {
			return err
		}
		w.offer(merges, int32(i))
	}
	for len(w.queue) > 0 {
		if err := b.step(); err != nil {
			return err
		}
		order := w.pop()
		i := int32(uint32(order))
		s := &w.syms[i]
		if s.rank != int32(order>>32) {
			continue
		}
		_, fused, _ := merges.get(s.id, w.syms[s.next].id)
		w.join(i, fused)
		w.offer(merges, i)
		if s.prev >= 0 {
			w.offer(merges, s.prev)
		}
	}
	return nil
}

// offer queues the merge of the symbol at i with the next one, if there is one.
func (w *workWord) offer(merges *pairTable, i int32) {
	s := &w.syms[i]
	s.rank = noRank
	if s.next < 0 {
		return
	}
	rank, _, ok := merges.get(s.id, w.syms[s.next].id)
	if !ok {
		return
	}
	s.rank = rank
	if len(w.queue) == cap(w.queue) {
		w.dropStale()
	}
	q := append(w.queue, 0)
	k := len(q) - 1
	order := uint64(rank)<<32 | uint64(uint32(i))
	for k > 0 && q[(k-1)/2] > order {
		q[k] = q[(k-1)/2]
		k = (k - 1) / 2
	}
	q[k] = order
	w.queue = q
}

// dropStale makes room in a full queue. There are fewer valid entries than symbols, and each merge
// removes a symbol, so this happens a few times at most.
func (w *workWord) dropStale() {
	q := w.queue[:0]
	for _, order := range w.queue {
		if w.syms[uint32(order)].rank == int32(order>>32) {
			q = append(q, order)
		}
	}
	slices.Sort(q) // a sorted list is a heap
	w.queue = q
}

// pop removes the lowest entry from the heap.
func (w *workWord) pop() uint64 {
	q := w.queue
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	k := 0
	for {
		child := 2*k + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if q[child] >= last {
			break
		}
		q[k] = q[child]
		k = child
	}
	if len(q) > 0 {
		q[k] = last
	}
	w.queue = q
	return top
}
