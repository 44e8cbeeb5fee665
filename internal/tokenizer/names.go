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

// nameSlot has the number of an entry plus 1 in as many bits as it takes to count slots, and in the others bits of
// the hash of its name. 0 marks a free slot.
type nameSlot uint32

// newNames makes a table for n names of size bytes together. It grows beyond.
func newNames(n, size int) *names {
	t := newNameList(n, size)
	t.clear(bits.Len(uint(max(n, 4) * 3 / 2)))
	return t
}

// newNameList makes a table for about n names of size bytes together, all of which add and then index enter.
func newNameList(n, size int) *names {
	t := &names{entries: make([]nameEntry, 0, n), seed: maphash.MakeSeed()}
	t.text.Grow(size)
	return t
}

// clear makes an empty table of 1<<size slots.
func (t *names) clear(size int) { t.slots, t.shift = make([]nameSlot, 1<<size), 64-size }

func (t *names) resize(size int) {
	t.clear(size)
	for i, e := range t.entries {
		if e.id >= 0 { // not removed, and not given twice
			h := maphash.String(t.seed, t.name(i))
			*t.free(h) = t.slot(h, i)
		}
	}
}

// slot returns the slot of an entry whose hash is h.
func (t *names) slot(h uint64, entry int) nameSlot {
	return nameSlot(uint32(h)*uint32(len(t.slots)) + uint32(entry) + 1)
}

// entry returns the entry in a slot, or -1 if its name has another hash than h or the slot is free.
func (t *names) entry(s nameSlot, h uint64) int {
	if e := s - nameSlot(uint32(h)*uint32(len(t.slots))); e < nameSlot(len(t.slots)) {
		return int(e) - 1
	}
	return -1
}

// free returns the slot for another entry whose hash is h.
func (t *names) free(h uint64) *nameSlot {
	for i := h >> t.shift; ; i++ {
		if s := &t.slots[i&uint64(len(t.slots)-1)]; *s == 0 {
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
		if s == 0 {
			return -1
		}
		if entry := t.entry(s, h); entry >= 0 && t.name(entry) == name {
			return entry
		}
	}
}

// findBytes is find for a name in a byte slice, which it does not copy.
func (t *names) findBytes(name []byte, h uint64) int {
	for i := h >> t.shift; ; i++ {
		s := t.slots[i&uint64(len(t.slots)-1)]
		if s == 0 {
			return -1
		}
		if entry := t.entry(s, h); entry >= 0 && t.name(entry) == string(name) {
			return entry
		}
	}
}

// group is how many names are entered or looked up together: a large vocabulary is in slow memory, and the
// operations of a group wait for it at the same time.
const group = 64

// lookup is a name that is looked up in a group.
type lookup struct {
	name []byte
	id   int32 // the result, -1 for none
	hash uint64
	slot nameSlot // the first one that may have name
	text string   // its name
}

// getAll looks up the names of a group.
func (t *names) getAll(list []lookup) {
	for i := range list {
		list[i].hash = maphash.Bytes(t.seed, list[i].name)
	}
	for i := range list {
		list[i].slot = t.slots[list[i].hash>>t.shift]
	}
	for i := range list {
		l := &list[i]
		for at := l.hash>>t.shift + 1; l.slot != 0 && t.entry(l.slot, l.hash) < 0; at++ {
			l.slot = t.slots[at&uint64(len(t.slots)-1)]
		}
	}
	for i := range list {
		l := &list[i]
		if entry := t.entry(l.slot, l.hash); entry >= 0 {
			l.id, l.text = t.entries[entry].id, t.name(entry)
		}
	}
	for i := range list {
		switch l := &list[i]; {
		case l.slot == 0:
			l.id = -1
		case l.text != string(l.name):
			l.id, _ = t.getBytes(l.name)
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
		*t.free(h) = t.slot(h, entry)
	}
	if t.entries[entry].id < 0 {
		t.live++
	}
	t.entries[entry].id = id
	return entry
}

// add appends a name that the table does not have before index is called. There must be room.
func (t *names) add(name []byte, id int32) {
	t.text.Write(name)
	t.entries = append(t.entries, nameEntry{end: uint32(t.text.Len()), id: id})
}

// index enters the names that were added to an empty table. A name that was added twice gets its last id. index
// calls entered with each id, in the order of the calls of add, and the entry of its name.
func (t *names) index(entered func(id int32, entry int)) {
	t.clear(bits.Len(uint(max(len(t.entries), 4) * 3 / 2)))
	var hashes [group]uint64
	for first := 0; first < len(t.entries); first += group {
		entries := t.entries[first:min(first+group, len(t.entries))]
		for i := range entries {
			hashes[i] = maphash.String(t.seed, t.name(first+i))
		}
		t.load(hashes[:len(entries)])
		for i, e := range entries {
			entry := t.find(t.name(first+i), hashes[i])
			if entry < 0 {
				entry = first + i
				*t.free(hashes[i]) = t.slot(hashes[i], entry)
				t.live++
			} else {
				t.entries[first+i].id, t.entries[entry].id = -1, e.id
			}
			entered(e.id, entry)
		}
	}
}

// load makes the processor load the slots of names with these hashes. Its result means nothing.
//
//go:noinline
func (t *names) load(hashes []uint64) (sum nameSlot) {
	for _, h := range hashes {
		sum += t.slots[h>>t.shift]
	}
	return sum
}

// remove takes the id from a name.
func (t *names) remove(name string) {
	if entry := t.find(name, maphash.String(t.seed, name)); entry >= 0 && t.entries[entry].id >= 0 {
		t.entries[entry].id = -1
		t.live--
	}
}
