package tokenizer

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
)

// names maps the names of tokens to ids: an open-addressed hash table over one text of all names. It takes
// about 20 bytes for a name besides its text, and no pointers. It may be read by many goroutines while it
// does not change.
type names struct {
	text    strings.Builder // the names of entries, one after another
	entries []nameEntry
	slots   []nameSlot
	shift   int
	seed    maphash.Seed
	live    int // entries that have an id
}

// nameEntry is a name: where it ends in the text, and its id, or -1 for one that was removed.
type nameEntry struct {
	end uint32
	id  int32
}

// nameSlot has the number of an entry plus 1, and bits of its hash.
type nameSlot struct{ tag, entry uint32 }

// newNames makes a table for n names of size bytes together. It grows beyond.
func newNames(n, size int) *names {
	t := &names{entries: make([]nameEntry, 0, n), seed: maphash.MakeSeed()}
	t.text.Grow(size)
	t.resize(bits.Len(uint(max(n, 4) * 3 / 2)))
	return t
}

func (t *names) resize(size int) {
	t.slots, t.shift = make([]nameSlot, 1<<size), 64-size
	for i := range t.entries {
		h := maphash.String(t.seed, t.name(i))
		*t.free(h) = nameSlot{uint32(h), uint32(i) + 1}
	}
}

// free returns the slot for another entry whose hash is h.
func (t *names) free(h uint64) *nameSlot {
	for i := h >> t.shift; ; i++ {
		if s := &t.slots[i&uint64(len(t.slots)-1)]; s.entry == 0 {
			return s
		}
	}
}

// name returns the name of entry i.
func (t *names) name(i int) string {
	begin := uint32(0)
	if i > 0 {
		begin = t.entries[i-1].end
	}
	return t.text.String()[begin:t.entries[i].end]
}

// find returns the entry of a name whose hash is h, or -1.
func (t *names) find(name string, h uint64) int {
	for i := h >> t.shift; ; i++ {
		s := t.slots[i&uint64(len(t.slots)-1)]
		switch {
		case s.entry == 0:
			return -1
		case s.tag == uint32(h) && t.name(int(s.entry)-1) == name:
			return int(s.entry) - 1
		}
	}
}

// findBytes is find for a name in a byte slice, which it does not copy.
func (t *names) findBytes(name []byte, h uint64) int {
	for i := h >> t.shift; ; i++ {
		s := t.slots[i&uint64(len(t.slots)-1)]
		switch {
		case s.entry == 0:
			return -1
		case s.tag == uint32(h) && t.name(int(s.entry)-1) == string(name):
			return int(s.entry) - 1
		}
	}
}

func (t *names) idAt(entry int) (id int32, ok bool) {
	if entry < 0 || t.entries[entry].id < 0 {
		return -1, false
	}
	return t.entries[entry].id, true
}

// get returns the id of name.
func (t *names) get(name string) (id int32, ok bool) {
	return t.idAt(t.find(name, maphash.String(t.seed, name)))
}

func (t *names) getBytes(name []byte) (id int32, ok bool) {
	return t.idAt(t.findBytes(name, maphash.Bytes(t.seed, name)))
}

// room reports whether size more bytes of names fit.
func (t *names) room(size int) bool { return size <= math.MaxInt32-t.text.Len() }

// set enters a name with its id, which is not negative, and returns the entry. There must be room.
func (t *names) set(name []byte, id int32) (entry int) {
	h := maphash.Bytes(t.seed, name)
	if entry = t.findBytes(name, h); entry < 0 {
		if len(t.entries) >= len(t.slots)*3/4 {
			t.resize(65 - t.shift)
		}
		t.text.Write(name)
		t.entries = append(t.entries, nameEntry{end: uint32(t.text.Len()), id: -1})
		entry = len(t.entries) - 1
		*t.free(h) = nameSlot{uint32(h), uint32(entry) + 1}
	}
	if t.entries[entry].id < 0 {
		t.live++
	}
	t.entries[entry].id = id
	return entry
}

// remove takes the id from a name.
func (t *names) remove(name string) {
	if entry := t.find(name, maphash.String(t.seed, name)); entry >= 0 && t.entries[entry].id >= 0 {
		t.entries[entry].id = -1
		t.live--
	}
}
