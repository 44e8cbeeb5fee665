package residency

import (
	"cmp"
	"slices"
)

// smallGroup is the size below which a tensor is read together with adjacent tensors.
const smallGroup = 1 << 20

// A located want is a streamed parameter of a unit with its position in the files.
type located struct {
	want    int // its index in the unit
	regions []region
	path    string
	begin   int64
	end     int64
	size    int64
}

func locate(k int, regions []region) located {
	l := located{want: k, regions: regions}
	for i, r := range regions {
		if i == 0 || r.off < l.begin {
			l.path, l.begin = r.path, r.off
		}
		l.end = max(l.end, r.off+r.size)
		l.size += r.size
	}
	return l
}

// groupWants divides the streamed parameters of a unit into groups, in the order of use. A small
// tensor joins the group of an adjacent tensor of its file. Small tensors without an adjacent one
// form a group of their own.
func groupWants(all []located) [][]located {
	slices.SortStableFunc(all, func(a, b located) int { return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.begin, b.begin)) })
	var groups [][]located
	size := int64(0) // of the last group
	for i, l := range all {
		if i > 0 && l.path != "" && l.path == all[i-1].path && l.begin <= all[i-1].end+readGap && min(size, l.size) < smallGroup {
			last := len(groups) - 1
			groups[last] = append(groups[last], l)
			size += l.size
			continue
		}
		groups, size = append(groups, []located{l}), l.size
	}
	var small []located
	groups = slices.DeleteFunc(groups, func(g []located) bool {
		var n int64
		for _, l := range g {
			n += l.size
		}
		if n < smallGroup {
			small = append(small, g...)
		}
		return n < smallGroup
	})
	if len(small) > 0 {
		groups = append(groups, small)
	}
	use := func(g []located) int {
		return slices.MinFunc(g, func(a, b located) int { return cmp.Compare(a.want, b.want) }).want
	}
	slices.SortFunc(groups, func(a, b []located) int { return cmp.Compare(use(a), use(b)) })
	return groups
}
