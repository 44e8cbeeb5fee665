package devicemap

import (
	"cmp"
	"slices"
	"strings"
)

// A matrix is a module of a unit, without submodules, that may stream while the rest of the unit
// stays in memory.
type matrix struct {
	path    string
	load         // in memory; see unit
	onDisk  load // see unit
	passage      // see unit
}

// shared reports whether later units also read m.
func (m *matrix) shared() bool { return m.again > 0 }

// smallMatrix is the share of a unit, 1/smallMatrix, below which a module, such as a norm, does
// not stream by itself.
const smallMatrix = 64

// A streamed matrix belongs to a unit that otherwise stays on the host.
type streamed struct{ unit, matrix int }

// findMatrices lists the matrices of unit whole, those of which a token reads most first. dense
// are the nodes of its tensors.
func (d *divider) findMatrices(whole int, dense []int32) {
	u := &d.units[whole]
	var list []matrix
	for len(dense) > 0 {
		module := d.moduleOf(dense[0])
		n := 1
		for n < len(dense) && d.moduleOf(dense[n]) == module {
			n++
		}
		if d.nodes[module].path != u.path && d.holdsOnly(module, dense[:n]) {
			m := matrix{path: d.nodes[module].path}
			for _, c := range dense[:n] {
				m.load.add(d.nodes[c].size, d.shares[c])
				m.onDisk.add(d.nodes[c].onDisk, d.shares[c])
				m.passage.weigh(int64(d.nodes[c].onDisk), d.bandOf(c))
			}
			list = append(list, m)
		}
		dense = dense[n:]
	}
	list = slices.DeleteFunc(list, func(m matrix) bool { return m.bytes == 0 || m.bytes < u.dense/smallMatrix })
	slices.SortStableFunc(list, func(a, b matrix) int { return cmp.Compare(b.onDisk.reads, a.onDisk.reads) })
	u.matrices = list
}

// moduleOf returns the module of tensor c, or c itself if the unit is a single tensor.
func (t *table) moduleOf(c int32) int32 {
	path := t.nodes[c].path
	parent := path[:max(0, strings.LastIndexByte(path, '.'))]
	for m := c - 1; m >= 0; m-- {
		if t.nodes[m].module != nil && t.nodes[m].path == parent {
			return m
		}
	}
	return c
}

// holdsOnly reports whether the tensors at and below a module are exactly tensors, apart from
// empty ones. An entry of the map for the module then moves only these. A tied tensor belongs to
// its first name.
func (d *divider) holdsOnly(module int32, tensors []int32) bool {
	for c := module + 1; c < d.nodes[module].end; c++ {
		if d.nodes[c].module == nil && d.nodes[c].size > 0 && !slices.Contains(tensors, c) {
			return false
		}
	}
	return true
}

// small returns the bytes of the unit that stay if any of its matrices stays.
func (u *unit) small() int64 {
	small := u.bytes
	for _, m := range u.matrices {
		small -= m.bytes
	}
	return small
}

// smallStream returns the part of small that streams together. Tables of which single rows are
// read do not.
func (u *unit) smallStream() int64 {
	n := u.stream
	for _, m := range u.matrices {
		n -= m.stream
	}
	return n
}

// keepFirst returns how many of the largest matrices must stay so that the unit streams excess
// bytes less, and the bytes that stay. ok is false if all of them are not enough.
func (u *unit) keepFirst(excess int64) (n int, bytes int64, ok bool) {
	if excess <= 0 {
		return 0, 0, true
	}
	if len(u.matrices) == 0 {
		return 0, 0, false
	}
	bytes = u.small()
	less := u.smallStream()
	for ; n < len(u.matrices) && less < excess; n++ {
		bytes += u.matrices[n].bytes
		less += u.matrices[n].stream
	}
	return n, bytes, less >= excess
}

// keepMore returns which of the matrices from first on also fit into room, and the bytes that
// stay. kept is what stays without them.
func (u *unit) keepMore(first int, kept, room int64) (keep []bool, bytes int64) {
	keep = make([]bool, len(u.matrices))
	if kept == 0 && len(keep) > 0 {
		bytes = u.small()
	}
	more := false
	for k, m := range u.matrices {
		if keep[k] = k < first; !keep[k] && bytes+m.bytes <= room {
			keep[k], more = true, true
			bytes += m.bytes
		}
	}
	if !more {
		bytes = 0
	}
	return keep, bytes
}

// streamSizes returns the sizes that the unit may stream, from whole down, with more and more of
// its largest matrices kept.
func (u *unit) streamSizes(whole int64) []int64 {
	if len(u.matrices) == 0 || u.banded > 0 {
		return nil
	}
	whole -= u.smallStream()
	sizes := []int64{whole}
	for _, m := range u.matrices[:len(u.matrices)-1] {
		whole -= m.stream
		sizes = append(sizes, whole)
	}
	return sizes
}

// subtract removes the bytes of a matrix.
func (l *load) subtract(m *load) {
	l.bytes, l.reads, l.again = l.bytes-m.bytes, l.reads-m.reads, l.again-m.again
}

// splitUnits makes streamed matrices units of their own, after the units to which they belong.
func splitUnits(units []unit, list []streamed) []unit {
	if len(list) == 0 {
		return units
	}
	slices.SortFunc(list, func(a, b streamed) int {
		return cmp.Or(cmp.Compare(a.unit, b.unit), cmp.Compare(a.matrix, b.matrix))
	})
	var out []unit
	moved := make([]int, len(units)) // old index → new
	for i, u := range units {
		moved[i] = len(out)
		out = append(out, u)
		for ; len(list) > 0 && list[0].unit == i; list = list[1:] {
			m := u.matrices[list[0].matrix]
			whole := &out[moved[i]]
			whole.load.subtract(&m.load)
			whole.onDisk.subtract(&m.onDisk)
			whole.dense, whole.stream, whole.banded = whole.dense-m.bytes, whole.stream-m.stream, whole.banded-m.banded
			out = append(out, unit{path: m.path, load: m.load, onDisk: m.onDisk, dense: m.bytes, passage: m.passage, whole: i, home: -1, at: Disk})
		}
	}
	for i := range out {
		if u := &out[i]; u.whole >= 0 {
			u.whole = moved[u.whole]
		}
		if u := &out[i]; u.home >= 0 {
			u.home = moved[u.home]
		}
	}
	return out
}
