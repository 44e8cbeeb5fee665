package vocab

import "math/bits"

// Bits is a set of ids: bit id%64 of word id/64.
type Bits []uint64

// Set adds id.
func (b Bits) Set(id int32) { b[id>>6] |= 1 << (id & 63) }

// Clear removes id.
func (b Bits) Clear(id int32) { b[id>>6] &^= 1 << (id & 63) }

// Has reports whether id is in b.
func (b Bits) Has(id int32) bool {
	return id >= 0 && int(id>>6) < len(b) && b[id>>6]>>(id&63)&1 != 0
}

// Or adds the ids of a set of the same length.
func (b Bits) Or(other Bits) {
	for i, w := range other {
		b[i] |= w
	}
}

// Count returns the number of ids.
func (b Bits) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// Only returns the one id that b has; ok is false if there are none or more.
func (b Bits) Only() (id int32, ok bool) {
	id = -1
	for i, w := range b {
		if w == 0 {
			continue
		}
		if id >= 0 || w&(w-1) != 0 {
			return -1, false
		}
		id = int32(i<<6 + bits.TrailingZeros64(w))
	}
	return id, id >= 0
}
