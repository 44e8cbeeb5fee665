package devicemap

import (
	"fmt"
	"slices"
	"strings"
)

// A cut is the first experts of a stack, placed on an accelerator that has no room for all of
// them.
type cut struct {
	unit string // path of the stack
	part unit
}

// stacksAtHome places stacks of experts on the accelerators of their blocks, as far as they fit.
func (f *filler) stacksAtHome(host int) {
	for _, i := range f.free {
		u := &f.units[i]
		if u.hostOnly || !u.onlyExperts() || u.whole < 0 {
			continue
		}
		home := f.index(f.units[u.whole].at)
		if home >= 0 && home != host && f.budgets[home].Device.accelerator() && u.bytes <= f.room[home] {
			u.at = f.budgets[home].Device
			f.room[home] -= u.bytes
		}
	}
}

// cutStacks fills the remaining memory of each accelerator with experts of one stack: preferably
// of a stack whose block is there, otherwise of one whose block is on another accelerator.
func (f *filler) cutStacks(host int) {
	for at := range f.budgets {
		if d := f.budgets[at].Device; !d.accelerator() || at == host {
			continue
		}
		best := -1
		for _, i := range f.free {
			if here := f.cuttable(i); here != "" && (best < 0 || here == f.budgets[at].Device) {
				if best = i; here == f.budgets[at].Device {
					break
				}
			}
		}
		if best < 0 {
			continue
		}
		u := &f.units[best]
		count := u.bytes / u.expert
		if n := min(f.room[at]/u.expert, count-1); n > 0 {
			f.cuts = append(f.cuts, u.cutFirst(int(n), int(count), f.budgets[at].Device))
			f.room[at] -= f.cuts[len(f.cuts)-1].part.bytes
		}
	}
}

// cuttable returns the accelerator of unit i's block if the unit is a stack of experts that can
// be cut, otherwise "".
func (f *filler) cuttable(i int) Device {
	u := &f.units[i]
	if u.hostOnly || !u.onlyExperts() || u.whole < 0 || !f.units[u.whole].at.accelerator() ||
		slices.ContainsFunc(f.cuts, func(c cut) bool { return c.unit == u.path }) ||
		slices.ContainsFunc(f.units, func(o unit) bool {
			return strings.HasPrefix(o.path, u.path+".") || strings.HasPrefix(o.path, u.path+"[") // experts placed by hand
		}) {
		return ""
	}
	return f.units[u.whole].at
}

// cutFirst removes the first n of count experts from u.
func (u *unit) cutFirst(n, count int, d Device) cut {
	part := unit{path: fmt.Sprintf("%s[0:%d]", u.path, n), whole: -1, home: -1, at: d}
	part.load, part.onDisk = u.load.cut(n, count), u.onDisk.cut(n, count)
	return cut{u.path, part}
}

// cut takes n of count experts out of l, which has experts alone.
func (l *load) cut(n, count int) load {
	part := load{expert: l.expert}
	for _, bytes := range [][2]*int64{{&part.bytes, &l.bytes}, {&part.reads, &l.reads}, {&part.expertBytes, &l.expertBytes}, {&part.expertReads, &l.expertReads}} {
		*bytes[0] = *bytes[1] / int64(count) * int64(n)
		*bytes[1] -= *bytes[0]
	}
	return part
}

// insertCuts inserts the cut parts after their stacks.
func insertCuts(units []unit, cuts []cut) []unit {
	for _, c := range cuts {
		at := slices.IndexFunc(units, func(u unit) bool { return u.path == c.unit })
		units = slices.Insert(units, at+1, c.part)
		for i := range units {
			for _, index := range []*int{&units[i].whole, &units[i].home} {
				if *index > at {
					*index++
				}
			}
		}
	}
	return units
}
