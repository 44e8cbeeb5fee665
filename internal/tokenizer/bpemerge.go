package tokenizer

import "sync"

// workWord is a word while it is being merged: a doubly linked list of symbols.
type workWord struct {
	syms  []symbol
	queue []candidate
}

// symbol is a token so far. One that was merged into its left neighbour has id -1.
type symbol struct {
	id, size   int32
	prev, next int32 // places in the list, -1 at the ends
	rank       int32 // of the merge with the next symbol, in the simple method
	fused      int32
}

var workWords = sync.Pool{New: func() any { return new(workWord) }}

func (w *workWord) add(id, size int32) {
	n := int32(len(w.syms))
	if n > 0 {
		w.syms[n-1].next = n
	}
	w.syms = append(w.syms, symbol{id: id, size: size, prev: n - 1, next: -1})
}

// first is the place of the first symbol, -1 if there is none. The first symbol is
// never merged into another.
func (w *workWord) first() int32 {
	if len(w.syms) == 0 {
		return -1
	}
	return 0
}

// smallWord is the length up to which searching for the next merge beats a queue.
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
			s.rank, s.fused = rank, fused
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
		w.join(at, w.syms[at].fused)
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
	gone.id = -1
	if s.next >= 0 {
		w.syms[s.next].prev = i
	}
}

// candidate is a merge that may be possible: it is stale if the symbols at its
// place have changed since.
type candidate struct {
	order              uint64 // rank, then place
	left, right, fused int32
}

// mergeQueued takes time n log n in the number of symbols.
func (w *workWord) mergeQueued(merges *pairTable, b *bounds) error {
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
		c := w.pop()
		i := int32(uint32(c.order))
		s := &w.syms[i]
		if s.id != c.left || s.next < 0 || w.syms[s.next].id != c.right {
			continue
		}
		w.join(i, c.fused)
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
	if s.next < 0 {
		return
	}
	right := w.syms[s.next].id
	rank, fused, ok := merges.get(s.id, right)
	if !ok {
		return
	}
	q := append(w.queue, candidate{})
	k := len(q) - 1
	c := candidate{uint64(rank)<<32 | uint64(uint32(i)), s.id, right, fused}
	for k > 0 && q[(k-1)/2].order > c.order {
		q[k] = q[(k-1)/2]
		k = (k - 1) / 2
	}
	q[k] = c
	w.queue = q
}

// pop takes the candidate of the lowest order from the heap.
func (w *workWord) pop() candidate {
	q := w.queue
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	k := 0
	for {
		child := 2*k + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].order < q[child].order {
			child++
		}
		if q[child].order >= last.order {
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
