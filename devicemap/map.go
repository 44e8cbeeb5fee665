package devicemap

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// An Entry places the module or tensor at Path, and everything below it, on Device.
type Entry struct {
	Path   string
	Device Device
}

// A Map says on which device each module is placed: an ordered list of paths with their devices.
// A name has the device of the longest path that is a prefix of it; the path "" is the whole
// model.
//
// Two forms of a path go beyond the module tree, and do not exist in Accelerate:
//
//	PATH.N     child N of PATH, also if PATH is a leaf that stacks experts
//	PATH[a:b]  the children a to b-1 of PATH, as if each had its own entry
//
// PATH.N takes precedence over a range that holds N, a narrow range over a wide one, and the
// first of two ranges of equal width.
//
// The zero value is an empty map. A Map that is no longer changed is safe for concurrent use.
type Map struct {
	entries []Entry
	at      map[string]int
	ranges  map[string][]span // by PATH
}

// A span is an entry of the form PATH[a:b].
type span struct{ begin, end, entry int }

// NewMap returns a map of entries. If two entries have the same path, the last device counts, at
// the position of the first.
func NewMap(entries ...Entry) Map {
	var m Map
	for _, e := range entries {
		m.Set(e.Path, e.Device)
	}
	return m
}

// Set places path on d. An existing entry keeps its position; a new one is appended.
func (m *Map) Set(path string, d Device) {
	if i, ok := m.at[path]; ok {
		m.entries[i].Device = d
		return
	}
	if m.at == nil {
		m.at = map[string]int{}
	}
	m.at[path] = len(m.entries)
	if parent, begin, end, ok := cutRange(path); ok {
		if m.ranges == nil {
			m.ranges = map[string][]span{}
		}
		spans := append(m.ranges[parent], span{begin, end, len(m.entries)})
		slices.SortStableFunc(spans, func(a, b span) int { return (a.end - a.begin) - (b.end - b.begin) })
		m.ranges[parent] = spans
	}
	m.entries = append(m.entries, Entry{path, d})
}

// Len returns the number of entries.
func (m Map) Len() int { return len(m.entries) }

// Entries returns a copy of the entries in order.
func (m Map) Entries() []Entry { return slices.Clone(m.entries) }

// All yields the entries in order.
func (m Map) All() iter.Seq2[string, Device] {
	return func(yield func(string, Device) bool) {
		for _, e := range m.entries {
			if !yield(e.Path, e.Device) {
				return
			}
		}
	}
}

// Get returns the device of the entry for path. It ignores other entries.
func (m Map) Get(path string) (Device, bool) {
	i, ok := m.at[path]
	if !ok {
		return "", false
	}
	return m.entries[i].Device, true
}

// Device returns the device of the module or tensor at path: that of the longest entry that is a
// prefix of it. ok is false if no entry covers it.
func (m Map) Device(path string) (d Device, ok bool) {
	i, _, ok := m.match(path)
	if !ok {
		return "", false
	}
	return m.entries[i].Device, true
}

// match returns the index of the longest entry that is a prefix of path, and the length of that
// prefix: for PATH[a:b] it is that of PATH.N.
func (m Map) match(path string) (entry, length int, ok bool) {
	for {
		if i, ok := m.at[path]; ok {
			return i, len(path), true
		}
		dot := strings.LastIndexByte(path, '.')
		if len(m.ranges) > 0 {
			parent := path[:max(dot, 0)]
			if n, ok := index(path[dot+1:]); ok {
				for _, s := range m.ranges[parent] {
					if s.begin <= n && n < s.end {
						return s.entry, len(path), true
					}
				}
			}
		}
		if dot < 0 {
			i, ok := m.at[""]
			return i, 0, ok
		}
		path = path[:dot]
	}
}

// Devices returns the devices of the map in Accelerate's order.
func (m Map) Devices() []Device {
	var list []Device
	for _, e := range m.entries {
		if !slices.Contains(list, e.Device) {
			list = append(list, e.Device)
		}
	}
	slices.SortStableFunc(list, compareDevices)
	return list
}

// String returns the map on one line, in the form that ParsePolicy accepts:
// "PATH=DEVICE,PATH=DEVICE".
func (m Map) String() string {
	var b strings.Builder
	for i, e := range m.entries {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(e.Path)
		b.WriteByte('=')
		b.WriteString(string(e.Device))
	}
	return b.String()
}

// cutRange splits PATH[a:b].
func cutRange(path string) (parent string, begin, end int, ok bool) {
	open := strings.LastIndexByte(path, '[')
	if open < 0 || !strings.HasSuffix(path, "]") {
		return "", 0, 0, false
	}
	from, to, colon := strings.Cut(path[open+1:len(path)-1], ":")
	begin, ok1 := index(from)
	end, ok2 := index(to)
	return path[:open], begin, end, colon && ok1 && ok2 && begin < end
}

// index parses a child's number: digits without a leading zero.
func index(name string) (int, bool) {
	if name == "" || len(name) > 9 || name[0] == '0' && len(name) > 1 {
		return 0, false
	}
	for i := 0; i < len(name); i++ {
		if !isDigit(name[i]) {
			return 0, false
		}
	}
	n, err := strconv.Atoi(name)
	return n, err == nil
}
