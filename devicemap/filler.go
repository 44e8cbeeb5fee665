package devicemap

import (
	"cmp"
	"math"
	"slices"
)

// A filler places the free units.
type filler struct {
	units   []unit
	budgets []Budget
	room    []int64                     // bytes left for weights, by budget
	free    []int                       // unplaced units, most wanted first
	hits    func(share float64) float64 // see Policy.ExpertHits
	needs   []int64                     // bytes that each unit streams, including parts of it that are pinned to the disk
	streams []streamed                  // matrices on the disk of units that are on the host
	cuts    []cut                       // of stacks of experts
	apart   bool                        // see Policy.ExpertsApart
	tight   bool                        // bands get the minimum window

	// For the choice that is being tried:
	kept  []int64 // what must stay of each unit
	first []int   // number of matrices in kept
}

// newFiller returns a filler for units, some of which are placed.
func newFiller(units []unit, budgets []Budget) *filler {
	f := &filler{units: units, budgets: budgets, room: make([]int64, len(budgets))}
	for i := range budgets {
		f.room[i] = budgets[i].room(budgets[i].KV)
	}
	for _, u := range units {
		if i := f.index(u.at); i >= 0 {
			f.room[i] -= u.bytes
			if u.at.accelerator() {
				f.room[i] -= u.kv
			}
		}
	}
	return f
}

func (f *filler) index(d Device) int {
	return slices.IndexFunc(f.budgets, func(b Budget) bool { return b.Device == d })
}

// rank sorts the free units by the bytes that a token would read from the disk for each of their
// bytes in memory.
func (f *filler) rank() {
	for i, u := range f.units {
		if u.at == "" && u.home < 0 {
			f.free = append(f.free, i)
		}
	}
	slices.SortStableFunc(f.free, func(a, b int) int {
		return cmp.Compare(f.units[b].density(), f.units[a].density())
	})
}

func (u *unit) density() float64 {
	if u.bytes == 0 {
		return 1
	}
	return float64(u.onDisk.reads) / float64(u.bytes)
}

// fillGPUs fills the accelerators one after another. Within units of one density it never returns
// to an earlier one, so that adjacent units share a device.
func (f *filler) fillGPUs(host int) {
	at, density, homed := 0, -1.0, false
	var rest []int
	for _, i := range f.free {
		u := &f.units[i]
		if u.hostOnly {
			rest = append(rest, i)
			continue
		}
		if d := u.density(); d != density {
			at, density = 0, d
		}
		if f.apart && u.onlyExperts() && !homed {
			f.stacksAtHome(host)
			homed = true
		}
		if u.at != "" {
			continue
		}
		for at < len(f.budgets) && f.budgets[at].Device.accelerator() && (u.bytes+u.kv > f.room[at] || at == host) {
			at++
		}
		if at == len(f.budgets) || !f.budgets[at].Device.accelerator() {
			rest = append(rest, i)
			continue
		}
		u.at = f.budgets[at].Device
		f.room[at] -= u.bytes + u.kv
	}
	if f.free = rest; f.apart {
		f.cutStacks(host)
	}
}

// fillHost chooses the units that stay on the host, with the staging size that minimises disk
// reads per token. It reports whether there is a choice that fits.
func (f *filler) fillHost(host int) bool {
	best := choice{}
	for _, c := range f.choices() {
		if c = f.try(f.room[host], c); c.ok && c.better(best) {
			best = c
		}
	}
	if best.ok {
		best = f.spread(best)
	}
	for _, i := range best.stay {
		f.units[i].at = f.budgets[host].Device
	}
	f.streams = best.streams
	return best.ok
}

// choices returns the possible sizes of the staging memory, the smallest first.
func (f *filler) choices() []choice {
	pinned, pinnedExpert := f.pinnedStreams()
	fixed, expert := slices.Max(append(pinned, 0)), pinnedExpert
	var bands passage // of units that may stream
	for i := range f.units {
		if u := &f.units[i]; u.at == Disk {
			bands.addBands(u.passage)
		}
	}
	pinnedBands := bands
	f.needs = make([]int64, len(f.units))
	sizes := []int64{fixed}
	for _, i := range f.free {
		u := &f.units[i]
		f.needs[i] = u.stream
		if u.dense > 0 {
			f.needs[i] += pinned[u.wholeOr(i)]
		}
		bands.addBands(u.passage)
		sizes = append(sizes, max(f.needs[i], fixed))
		for _, size := range u.streamSizes(f.needs[i]) {
			sizes = append(sizes, max(size, fixed))
		}
		expert = max(expert, u.onDisk.expert)
	}
	var list []choice
	for _, size := range distinct(sizes) {
		for _, expert := range distinct([]int64{pinnedExpert, expert}) {
			for _, b := range slices.Compact([]passage{pinnedBands, bands}) {
				list = append(list, choice{stream: size, expert: expert, band: b.band, bands: b.window(f.tight)})
			}
		}
	}
	return list
}

// pinnedStreams returns the bytes that each unit must stream, including its parts, and the size
// of the largest expert that must stream.
func (f *filler) pinnedStreams() (units []int64, expert int64) {
	units = make([]int64, len(f.units))
	for i := range f.units {
		if u := &f.units[i]; u.at == Disk {
			units[u.wholeOr(i)] += u.stream
			expert = max(expert, u.onDisk.expert)
		}
	}
	return units, expert
}

// distinct sorts sizes and removes duplicates. If there are very many, it keeps only some.
func distinct(sizes []int64) []int64 {
	const most = 64
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	for len(sizes) > most {
		half := sizes[:0:0]
		for i := len(sizes) - 1; i >= 0; i -= 2 { // keeps the largest
			half = append(half, sizes[i])
		}
		slices.Reverse(half)
		sizes = half
	}
	return sizes
}

// A choice is one size of the staging memory, with its result.
type choice struct {
	stream, expert int64      // maximum size of a unit and of an expert that may stream
	band, bands    int64      // maximum size of a band that may stream, and the window for bands
	stay           []int      // units on the host
	streams        []streamed // matrices of these units that stream
	reads, disk    int64      // bytes that a token reads from the disk, bytes of the disk tier
	ok             bool
}

// better prefers fewer bytes read per token, then more bytes on the host, then the earlier
// choice, which has the smaller staging memory.
func (c choice) better(o choice) bool {
	return !o.ok || cmp.Or(cmp.Compare(c.reads, o.reads), cmp.Compare(c.disk, o.disk)) < 0
}

// must reports whether unit i is too large to stream.
func (f *filler) must(i int, c choice) bool {
	return f.needs[i] > c.stream || f.units[i].onDisk.expert > c.expert || f.units[i].band > c.band
}

// staging returns the staging memory of the choice.
func (c choice) staging() int64 { return windowBytes(c.stream) + c.bands + 2*c.expert }

// readAheadBytes is additional memory for a large streamed unit, to read ahead while it computes.
const readAheadBytes = 64 << 20

// windowBytes returns the size of the window through which units stream. stream is the size of
// the largest one.
func windowBytes(stream int64) int64 { return stream + min(stream, readAheadBytes) }

// try keeps units on the host that are too large to stream, then all others that fit. Routed
// experts stay if all of them fit. Otherwise all of them stream one by one, and the remaining
// memory caches the most used experts of any layer; whole layers would fill it with rarely used
// experts. Tables come after experts, so they stay only if the experts do.
//
// A unit that is too large to stream keeps its largest matrices on the host, so that the rest can
// stream. A unit that does not fit as a whole keeps the matrices that fit.
func (f *filler) try(room int64, c choice) choice {
	room -= c.staging()
	c.ok = room >= 0
	f.kept, f.first = zeroed(f.kept, len(f.units)), zeroed(f.first, len(f.units))
	kept, first := f.kept, f.first
	for _, i := range f.free {
		u := &f.units[i]
		if !f.must(i, c) {
			continue
		}
		first[i], kept[i] = f.least(i, c)
		room -= kept[i]
		if c.ok = c.ok && room >= 0; kept[i] == u.bytes {
			c.stay = append(c.stay, i)
		}
	}
	cached := false
	var disk load // the experts on the disk
	for n, i := range f.free {
		u := &f.units[i]
		rest := u.bytes - kept[i]
		if rest == 0 && f.must(i, c) {
			continue
		}
		cached = cached || u.onlyExperts() && f.expertBytes(f.free[n:], c) > room
		if rest <= room && (!cached || !u.onlyExperts() && !u.table()) {
			room -= rest
			c.stay = append(c.stay, i)
			continue
		}
		keep, more := u.keepMore(first[i], kept[i], room)
		room -= more
		if kept[i]+more > 0 {
			c.stay = append(c.stay, i)
			for k := range keep {
				if !keep[k] {
					c.streams = append(c.streams, streamed{i, k})
					c.reads += u.matrices[k].onDisk.reads
				}
			}
		} else {
			c.reads += u.onDisk.reads
		}
		c.disk += rest - more
		disk.expertBytes, disk.expertReads = disk.expertBytes+u.onDisk.expertBytes, disk.expertReads+u.onDisk.expertReads
	}
	if f.hits != nil && disk.expertBytes > 0 && c.ok {
		share := cachedShare(2*c.expert+room, disk.expertBytes, c.expert)
		c.reads -= int64(f.hits(share) * float64(disk.expertReads))
	}
	return c
}

// zeroed returns n zeros, reusing the memory of s if it is large enough.
func zeroed[T any](s []T, n int) []T {
	s = slices.Grow(s[:0], n)[:n]
	clear(s)
	return s
}

// least returns the minimum number of matrices, and their bytes, that must stay of unit i, which
// is too large to stream.
func (f *filler) least(i int, c choice) (matrices int, bytes int64) {
	u := &f.units[i]
	if n, bytes, ok := u.keepFirst(f.needs[i] - c.stream); ok && u.onDisk.expert <= c.expert && u.band <= c.band {
		return n, bytes
	}
	return len(u.matrices), u.bytes
}

// onlyExperts reports whether u holds routed experts and nothing else.
func (u *unit) onlyExperts() bool { return u.expert > 0 && u.dense == 0 }

// table reports whether u holds only tables of which single rows are read.
func (u *unit) table() bool { return u.expert == 0 && u.dense == 0 && u.bytes > 0 }

// expertBytes returns the bytes of the experts among units that may stream.
func (f *filler) expertBytes(units []int, c choice) (sum int64) {
	for _, i := range units {
		if f.units[i].onlyExperts() && !f.must(i, c) {
			sum += f.units[i].bytes
		}
	}
	return sum
}

// leastMemory returns the minimum memory for the units outside of accelerators. Units that are
// pinned to the disk stream; all others are free.
func leastMemory(units []unit) int64 {
	f := filler{units: slices.Clone(units), tight: true}
	for i := range f.units {
		switch u := &f.units[i]; {
		case u.at.accelerator():
			u.dense, u.passage, u.onDisk.expert, u.matrices = 0, passage{}, 0, nil
		case u.pin == Disk:
			u.at = Disk
		default:
			f.free = append(f.free, i)
			u.at = ""
		}
	}
	least := int64(math.MaxInt64)
	for _, c := range f.choices() {
		need := c.staging()
		for _, i := range f.free {
			if f.must(i, c) {
				_, bytes := f.least(i, c)
				need += bytes
			}
		}
		least = min(least, need)
	}
	return least
}

// restToDisk places all unplaced units on the disk.
func (f *filler) restToDisk() {
	for _, i := range f.free {
		if f.units[i].at == "" {
			f.units[i].at = Disk
		}
	}
}
