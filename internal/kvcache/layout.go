package kvcache

import (
	"slices"
	"sort"
)

// maxGroups is the maximum number of page tables per sequence.
const maxGroups = 8

// A layout assigns layers to groups that share pages, and to slots within a page.
type layout struct {
	windows []int        // per group; 0 means unlimited
	places  []place      // by layer
	slots   []LayerShape // per slot of a page
}

// place is a layer's group and its slot in the group's pages.
type place struct{ group, slot int }

// layout divides the layers into groups of about equal size, each with a single window, so that a
// page serves any group. Layers of different widths cannot share pages this way. They form one
// group, which keeps the tokens of the widest window.
func (c Config) layout() layout {
	windows := c.windows()
	if len(windows) > 1 && !c.uniform() {
		widest := slices.Max(windows)
		if slices.Contains(windows, 0) {
			widest = 0
		}
		windows = []int{widest}
	}
	if len(windows) <= 1 {
		l := layout{windows: append(windows, 0)[:1], slots: c.Layers}
		for i := range c.Layers {
			l.places = append(l.places, place{0, i})
		}
		return l
	}
	return c.divide(windows)
}

// windows returns the distinct windows of the layers, 0 first.
func (c Config) windows() []int {
	var windows []int
	for _, l := range c.Layers {
		windows = append(windows, l.Window)
	}
	slices.Sort(windows)
	return slices.Compact(windows)
}

func (c Config) uniform() bool {
	for _, l := range c.Layers {
		first := c.Layers[0]
		if l.KWidth != first.KWidth || l.VWidth != first.VWidth || l.Heads != first.Heads {
			return false
		}
	}
	return true
}

// divide splits the layers of each window into groups of equal size.
func (c Config) divide(windows []int) layout {
	count := make([]int, len(windows))
	for _, l := range c.Layers {
		count[slices.Index(windows, l.Window)]++
	}
	size := groupSize(windows, count)
	l := layout{slots: make([]LayerShape, size), places: make([]place, len(c.Layers))}
	for i := range l.slots {
		l.slots[i] = c.Layers[0]
		l.slots[i].Window = 0
	}
	for i, window := range windows {
		first, n := len(l.windows), 0
		for j, shape := range c.Layers {
			if shape.Window == window {
				l.places[j] = place{first + n/size, n % size}
				n++
			}
		}
		for range (count[i] + size - 1) / size {
			l.windows = append(l.windows, window)
		}
	}
	return l
}

// groupSize returns the group size that leaves the smallest share of a page empty, and of several
// such sizes the largest. Groups without a window weigh more because their pages grow with the
// sequence.
func groupSize(windows, count []int) int {
	const all = 8
	best, least := 0, 0
	for size := slices.Max(count); size > 0; size-- {
		groups, waste := 0, 0
		for i, n := range count {
			g := (n + size - 1) / size
			empty := g*size - n
			if windows[i] == 0 {
				empty *= all
			}
			groups, waste = groups+g, waste+empty
		}
		if best == 0 || (groups <= maxGroups && waste < least) {
			best, least = size, waste
		}
	}
	return best
}

// pagesOf returns the maximum number of pages that n tokens of a sequence hold at once in a group
// with the given window, if a pass appends at most pass tokens.
func (c Config) pagesOf(window, n, pass int) int {
	pages := c.PagesFor(n)
	if window > 0 {
		pages = min(pages, c.PagesFor(window+pass)+2)
	}
	return pages
}

// SequencePages returns the maximum number of pages that a sequence of n tokens holds at once, if a
// pass appends at most pass tokens.
func (c Config) SequencePages(n, pass int) int {
	pages := 0
	for _, window := range c.layout().windows {
		pages += c.pagesOf(window, n, pass)
	}
	return pages + heldStates*c.statePages()
}

// SequenceBytes returns the size of [Config.SequencePages] in bytes.
func (c Config) SequenceBytes(n, pass int) int64 {
	return int64(c.SequencePages(n, pass)) * c.PageBytes()
}

// SharedPages returns the maximum number of pages that n tokens hold at once, for any division of
// them among the given number of sequences. For states it assumes sequences of at least
// tokensPerState tokens.
func (c Config) SharedPages(n, sequences, pass int) int {
	pages := 0
	for _, window := range c.layout().windows {
		pages += min(c.PagesFor(n), sequences*c.pagesOf(window, n, pass))
	}
	sequences = min(sequences, (n+tokensPerState-1)/tokensPerState)
	return pages + sequences*heldStates*c.statePages()
}

// SequenceTokens returns the length, up to most, of the longest sequence that fits in pages. It is
// the inverse of [Config.SequencePages].
func (c Config) SequenceTokens(pages, pass, most int) int {
	return largest(most, func(n int) bool { return c.SequencePages(n, pass) <= pages })
}

// SharedTokens is the inverse of [Config.SharedPages], up to most.
func (c Config) SharedTokens(pages, sequences, pass, most int) int {
	return largest(most, func(n int) bool { return c.SharedPages(n, sequences, pass) <= pages })
}

// largest returns the largest number up to most that fits. If a number fits, all smaller ones
// must fit too.
func largest(most int, fits func(int) bool) int {
	return sort.Search(max(most, 0), func(n int) bool { return !fits(n + 1) })
}

// layers returns, for each group, the layer of each slot, or -1.
func (l *layout) layers() [][]int {
	out := make([][]int, len(l.windows))
	for g := range out {
		out[g] = slices.Repeat([]int{-1}, len(l.slots))
	}
	for layer, at := range l.places {
		out[at.group][at.slot] = layer
	}
	return out
}
