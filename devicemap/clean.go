package devicemap

import "strings"

// CleanDeviceMap groups paths by their prefixes, as Accelerate's clean_device_map does. A prefix
// replaces the paths below it if there are at least two and all are on one device. If all paths
// are on one device, they become "". Groups have the order of their first path. An entry for the
// prefix itself is overwritten; [Map.Clean] keeps it.
func CleanDeviceMap(m Map) Map { return clean(m, false) }

// Clean returns the shortest form of the map that does not depend on the tree. It works like
// CleanDeviceMap, but every path keeps its device, whether this comes from its own entry or from
// that of a prefix.
func (m Map) Clean() Map { return clean(m, true) }

// A branch is a prefix with the paths below it.
type branch struct {
	path     string
	entry    int // index of the entry of exactly this path, or -1
	children []*branch
	byName   map[string]*branch
}

func clean(m Map, keep bool) Map {
	root := &branch{entry: -1}
	for i, e := range m.entries {
		path := e.Path
		if parent, _, _, ok := cutRange(path); ok && keep {
			path = parent + "." + path[len(parent):] // prefix of its children
		}
		root.at(path).entry = i
	}
	c := cleaner{from: m, entries: m.Entries(), keep: keep}
	c.group(root)
	return NewMap(c.entries...)
}

// at returns the branch of path and creates it if it is missing.
func (b *branch) at(path string) *branch {
	for end := 0; end < len(path); end++ {
		begin := end
		if dot := strings.IndexByte(path[begin:], '.'); dot >= 0 {
			end = begin + dot
		} else {
			end = len(path)
		}
		name := path[begin:end]
		c := b.byName[name]
		if c == nil {
			c = &branch{path: path[:end], entry: -1}
			if b.byName == nil {
				b.byName = map[string]*branch{}
			}
			b.byName[name] = c
			b.children = append(b.children, c)
		}
		b = c
	}
	return b
}

// below returns the entries strictly below b.
func (b *branch) below(list []int) []int {
	for _, c := range b.children {
		if c.entry >= 0 {
			list = append(list, c.entry)
		}
		list = c.below(list)
	}
	return list
}

// A cleaner rewrites entries in place: all entries of a group become the group's entry.
type cleaner struct {
	from    Map
	entries []Entry
	keep    bool
}

// group replaces the paths below b by b's if there are at least two and all are on one device;
// otherwise it continues below.
func (c *cleaner) group(b *branch) {
	list := b.below(nil)
	if b.path == "" && b.entry >= 0 {
		list = append(list, b.entry)
	}
	if len(list) > 1 && c.oneDevice(list) {
		d := c.entries[list[0]].Device
		covered, ok := c.from.Device(b.path)
		if !c.keep || !ok || covered == d {
			if b.entry >= 0 {
				list = append(list, b.entry)
			}
			for _, i := range list {
				c.entries[i] = Entry{b.path, d}
			}
			return
		}
	}
	for _, child := range b.children {
		c.group(child)
	}
}

func (c *cleaner) oneDevice(list []int) bool {
	for _, i := range list {
		if c.entries[i].Device != c.entries[list[0]].Device {
			return false
		}
	}
	return true
}
