package residency

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
)

// errDisplaced reports that a segment has to stream but is not in the streams yet.
var errDisplaced = errors.New("displaced")

// displacing says which segments of the cpu tier stream because the budget has no room for copies
// of them.
type displacing struct {
	changed atomic.Bool // since the streams were set, a segment was displaced or has a copy again
	windows windows     // minimum sizes: those of the disk tier
	now     windows
}

// windows are the sizes of the windows of units and of bands, in bytes.
type windows struct{ units, bands int64 }

func (w windows) sum() int64 { return w.units + w.bands }

// canStream reports whether g streams if the budget has no room for its copy. Other segments
// without a copy are used in the mapping, or converted again.
func (s *Store) canStream(g *segment) bool {
	return s.restream && g.device == devicemap.CPU && !g.gathered && g.stack == nil && !g.inProcess() &&
		(!g.converts() || s.quantizer.exact() || s.streamsConverted(g))
}

// displace makes g stream from now on.
func (s *Store) displace(g *segment) {
	s.missed(g)
	if s.canStream(g) && !g.displaced.Swap(true) {
		s.displacing.changed.Store(true)
	}
}

// displaceUncopied makes g stream from now on if it has no copy.
func (s *Store) displaceUncopied(g *segment) {
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	if g.copied.Load() == nil {
		s.displace(g)
	}
}

// replace undoes displace after g got a copy.
func (s *Store) replace(g *segment) {
	if g.displaced.Swap(false) {
		s.displacing.changed.Store(true)
	}
}

// Displacement describes the weights of the cpu tier that stream because they were evicted.
type Displacement struct {
	Bytes  int64    // each weight is counted once
	Window int64    // bytes by which the windows grow for them
	Paths  []string // of the parameters
}

// Displaced returns the present displacement. It is safe for concurrent use.
func (s *Store) Displaced() (d Displacement) {
	for _, g := range s.copies.order { // which never changes
		if !g.displaced.Load() {
			continue
		}
		d.Paths = append(d.Paths, g.path)
		if g.converts() && !s.quantizer.exact() {
			d.Bytes += s.quantizer.bytes[g.param]
		} else {
			d.Bytes += g.size()
		}
	}
	s.copies.mu.Lock()
	defer s.copies.mu.Unlock()
	d.Window = s.copies.window
	return d
}

// restreams reports whether the streams have to be set again before unit i runs. That is so at
// the beginning of a pass, and if a segment of the unit was displaced since they were set.
func (s *Store) restreams(i int) bool {
	if !s.displacing.changed.Load() {
		return false
	}
	if i == 0 {
		return true
	}
	u := &s.units[i]
	for k := range u.wants {
		if w := &u.wants[k]; !w.streamed && !w.gather && w.displaced.Load() {
			return true
		}
	}
	return false
}

// setStreams makes the displaced segments stream together with those of the disk tier, in the
// order of use. Data that was read ahead is dropped. It must be called between units.
func (s *Store) setStreams() error {
	d := &s.displacing
	d.changed.Store(false)
	s.beginLate()
	s.stream.drain()
	s.bands.stream.drain()
	s.bands.list, s.bands.loads = nil, nil
	for i := range s.units {
		u := &s.units[i]
		for k := range u.wants {
			w := &u.wants[k]
			w.bands = bandRange{}
			if w.device == devicemap.CPU && w.holder != nil {
				s.chooseSource(w)
				if w.streamed = !w.gather && w.displaced.Load(); w.streamed && w.place == mapped {
					w.unmap()
				}
			}
		}
		u.bytes = 0
		s.order.loads[i] = s.group(u)
	}
	next := d.windows.or(s.windowsFor(s.streamed(), s.copies.allowed()/4))
	s.copies.setWindow(next.sum() - d.windows.sum())
	s.trim()
	err := s.resizeWindow(&s.window, d.now.units, next.units)
	if err == nil {
		err = s.resizeWindow(&s.bands.window, d.now.bands, next.bands)
	}
	if err != nil {
		d.changed.Store(true)
		return err
	}
	d.now = next
	var loads [][]*load
	for _, i := range s.order.visits {
		loads = append(loads, s.order.loads[i])
	}
	s.stream.restart(loads, bytesOf(s.window))
	s.bands.stream.restart(s.bands.loads, bytesOf(s.bands.window))
	return nil
}

// chooseSource sets the source from which w streams if it is displaced, or records that it can no
// longer stream.
func (s *Store) chooseSource(w *want) {
	if w.from, w.fromParts = nil, nil; !w.displaced.Load() {
		return
	}
	if !s.canStream(w.segment) && !w.gather {
		w.displaced.Store(false)
		return
	}
	if w.from = s.sidePieces(w.segment); w.from != nil {
		w.fromParts = partsOf(w.from)
	}
}

// or returns the maximum of each window size.
func (w windows) or(other windows) windows {
	return windows{max(w.units, other.units), max(w.bands, other.bands)}
}

// windowsFor returns the window sizes for the given streams: wide ones if they fit into room
// bytes.
func (s *Store) windowsFor(n streamed, room int64) windows {
	w := windows{min(n.units, Window(n.unit)), devicemap.BandWindow(n.band, n.bands, false)}
	if w.sum() > room {
		w = windows{min(n.units, n.unit), devicemap.BandWindow(n.band, n.bands, true)}
	}
	return w
}

// resizeWindow replaces an unused window by one of another size.
func (s *Store) resizeWindow(window **hostmem.Block, before, after int64) (err error) {
	if before == after && (*window != nil || after == 0) {
		return nil
	}
	if *window != nil {
		_ = (*window).Release() // released nowhere else
		*window = nil
	}
	if after == 0 {
		return nil
	}
	if *window, err = s.arena.Alloc(hostmem.Staging, int(after)); err != nil {
		err = fmt.Errorf("residency: window: %w", err)
	}
	return err
}

// bytesOf returns the bytes of a block, which may be nil.
func bytesOf(b *hostmem.Block) []byte {
	if b == nil {
		return nil
	}
	return b.Bytes()
}

// leastWindow returns the maximum number of bytes by which the windows grow if all weights of the
// cpu tier that can stream and that may selects do stream.
func (s *Store) leastWindow(may func(*segment) bool) int64 {
	if !s.restream {
		return 0
	}
	const ends = 2 * blockSize // of a direct read
	var n streamed
	for i := range s.units {
		var bytes int64
		for k := range s.units[i].wants {
			w := &s.units[i].wants[k]
			if w.gather || w.device != devicemap.Disk && !may(w.segment) {
				continue
			}
			size := w.size() + int64(len(w.pieces))*ends
			if w.converts() && !s.quantizer.exact() && w.holder != nil { // from the late sidecar
				size = s.quantizer.bytes[w.holder.param] + int64(len(w.pieces))*ends
			}
			if band := s.bandBytes(w); band > 0 {
				n.band, n.bands = max(n.band, min(size, band+int64(hostmem.Up(ends, blockSize)))), n.bands+size
			} else {
				bytes += size
			}
		}
		n.unit, n.units = max(n.unit, bytes), n.units+bytes
	}
	most := s.displacing.windows.or(s.windowsFor(n, 0))
	return most.sum() - s.displacing.windows.sum()
}

// rankCopies sorts the copies of weights that every token reads by how long they stay. Small
// copies stay longest. The others are sorted so that those dropped first are large and spread
// over the units: the disk then reads while the remaining units compute.
func rankCopies(order []*segment, unitOf map[*segment]int) {
	type place struct{ nth, unit int }
	places := make(map[*segment]place, len(order))
	list := slices.Clone(order)
	slices.SortStableFunc(list, func(a, b *segment) int {
		return cmp.Or(cmp.Compare(unitOf[a], unitOf[b]), cmp.Compare(a.size(), b.size()))
	})
	for i, nth := 0, 0; i < len(list); i++ {
		g := list[i]
		if i > 0 && unitOf[g] != unitOf[list[i-1]] {
			nth = 0
		}
		if g.size() < smallGroup {
			continue // the first place
		}
		nth++
		places[g] = place{nth, int(bits.Reverse32(uint32(unitOf[g])))}
	}
	slices.SortStableFunc(order, func(a, b *segment) int {
		return cmp.Or(cmp.Compare(places[a].nth, places[b].nth), cmp.Compare(places[a].unit, places[b].unit))
	})
}
