package tokenizer

import "math/bits"

// pairTable maps pairs of ids to what they merge to: an open-addressed hash table
// that is read without a lock.
type pairTable struct {
	slots []pairSlot
	shift int
}

type pairSlot struct {
	key         uint64 // left<<32 | right, plus one; 0 marks a free slot
	rank, fused int32
}

// newPairTable makes a table for n pairs.
func newPairTable(n int) *pairTable {
	size := bits.Len(uint(max(n, 4) * 3 / 2))
	return &pairTable{slots: make([]pairSlot, 1<<size), shift: 64 - size}
}

func pairKey(left, right int32) uint64 { return uint64(left)<<32 | uint64(right) + 1 }

func pairHash(key uint64, shift int) uint64 { return key * 0x9e3779b97f4a7c15 >> shift }

func (t *pairTable) slot(left, right int32) (*pairSlot, uint64) {
	key := pairKey(left, right)
	for i := pairHash(key, t.shift); ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.key == key || s.key == 0 {
			return s, key
		}
	}
}

// set stores a pair; a later one replaces an earlier.
func (t *pairTable) set(left, right, rank, fused int32) {
	s, key := t.slot(left, right)
	*s = pairSlot{key, rank, fused}
}

// load makes the processor load the slots of merges at the same time. Its result means nothing.
//
//go:noinline
func (t *pairTable) load(merges []merge) (sum int32) {
	for _, m := range merges {
		sum += t.slots[pairHash(pairKey(m.left, m.right), t.shift)].rank
	}
	return sum
}

// get returns a pair's rank (low ranks merge first) and the id it becomes.
func (t *pairTable) get(left, right int32) (rank, fused int32, ok bool) {
	s, key := t.slot(left, right)
	return s.rank, s.fused, s.key == key
}

// grown returns a table with the same pairs and twice the room.
func (t *pairTable) grown() *pairTable {
	big := &pairTable{slots: make([]pairSlot, 2*len(t.slots)), shift: t.shift - 1}
	for _, s := range t.slots {
		if s.key != 0 {
			k := s.key - 1
			big.set(int32(k>>32), int32(uint32(k)), s.rank, s.fused)
		}
	}
	return big
}
