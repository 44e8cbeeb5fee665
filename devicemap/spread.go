package devicemap

import (
	"cmp"
	"slices"
)

// A class is the set of matrices of one size at the same place of several units, such as the
// up_proj of all layers.
type class struct {
	name    string // path below the unit's path
	bytes   int64
	members []streamed // in the order of the units
}

// spread redistributes the streamed matrices of the units that are read whole, so that each unit
// streams the same share. The disk then reads the next matrices while those in memory compute. If
// memory were filled with the first layers, the disk would be idle while these compute. The bytes
// in memory do not grow. Matrices that several units read stay where they are.
func (f *filler) spread(c choice) choice {
	units := f.dense(c)
	stays := make(map[int]bool, len(c.stay))
	for _, i := range c.stay {
		stays[i] = true
	}
	disk := make(map[streamed]bool, len(c.streams))
	for _, s := range c.streams {
		disk[s] = true
	}
	var need int64 // bytes that stream
	some := false
	for _, i := range units {
		for k, m := range f.units[i].matrices {
			switch on := !stays[i] || disk[streamed{i, k}]; {
			case m.shared():
			case on:
				need += m.bytes
			default:
				some = true
			}
		}
		if !stays[i] {
			need += f.units[i].small()
		}
	}
	if need == 0 || !some {
		return c
	}
	chosen, ok := choose(f.classes(units), need)
	if !ok {
		return c
	}
	of := make(map[int]bool, len(units))
	for _, i := range units {
		if of[i] = true; stays[i] {
			continue
		}
		c.stay = append(c.stay, i)
		for k := range f.units[i].matrices {
			if f.units[i].matrices[k].shared() {
				c.streams = append(c.streams, streamed{i, k})
			}
		}
	}
	c.streams = slices.DeleteFunc(c.streams, func(s streamed) bool { return of[s.unit] && !f.units[s.unit].matrices[s.matrix].shared() })
	c.streams = append(c.streams, chosen...)
	return c
}

// dense returns the free units of which all matrices may stream, in the order of the model.
func (f *filler) dense(c choice) (list []int) {
	for _, i := range f.free {
		u := &f.units[i]
		if u.at != "" || len(u.matrices) == 0 {
			continue
		}
		if f.must(i, c) {
			if n, _ := f.least(i, c); n > 0 {
				continue
			}
		}
		list = append(list, i)
	}
	slices.Sort(list)
	return list
}

// classes returns the matrices of units, the largest first.
func (f *filler) classes(units []int) (list []class) {
	for _, i := range units {
		u := &f.units[i]
		for k, m := range u.matrices {
			if m.shared() {
				continue
			}
			key := m.path[len(u.path):]
			at := slices.IndexFunc(list, func(c class) bool { return c.name == key && c.bytes == m.bytes })
			if at < 0 {
				at = len(list)
				list = append(list, class{name: key, bytes: m.bytes})
			}
			list[at].members = append(list[at].members, streamed{i, k})
		}
	}
	slices.SortStableFunc(list, func(a, b class) int { return cmp.Compare(b.bytes, a.bytes) })
	return list
}

// choose returns matrices of at least need bytes. From each class, the largest first, it takes as
// many as do not exceed need, at equal distances, and finally the smallest matrix that suffices.
// ok is false if all of them are not enough.
func choose(classes []class, need int64) (chosen []streamed, ok bool) {
	var rest []streamed // one of each class that stays, the smallest last
	var bytes []int64
	for _, c := range classes {
		n := int(min(need/c.bytes, int64(len(c.members))))
		for i, m := range c.members {
			if (i+1)*n/len(c.members) > i*n/len(c.members) {
				chosen = append(chosen, m)
			}
		}
		if n < len(c.members) { // the first one stays
			rest, bytes = append(rest, c.members[0]), append(bytes, c.bytes)
		}
		need -= int64(n) * c.bytes
	}
	for k := len(rest) - 1; k >= 0 && need > 0; k-- {
		if bytes[k] >= need {
			return append(chosen, rest[k]), true
		}
	}
	return chosen, need <= 0
}
