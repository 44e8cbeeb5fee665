package residency

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/hostmem"
)

// startStreams allocates the windows of units and of bands, and the slots of experts.
func (s *Store) startStreams(loads [][]*load, o *Options) error {
	n := s.streamed()
	window, bands, slots := n.divide(o.Staging)
	if o.UnitWindow > 0 {
		window = min(n.units, max(n.unit, o.UnitWindow))
	}
	s.displacing.windows = windows{window, bands}
	s.displacing.now = s.displacing.windows
	err := s.resizeWindow(&s.window, 0, window)
	if err == nil {
		err = s.resizeWindow(&s.bands.window, 0, bands)
	}
	if err != nil {
		return err
	}
	if window > 0 || s.restream {
		s.stream = s.newStream(loads, s.window)
		s.order = newOrder(loads)
	}
	if bands > 0 || s.restream {
		s.bands.stream = s.newStream(s.bands.loads, s.bands.window)
	}
	if slots > 0 {
		all := s.expertLoads()
		size := slotSizes{planned: slots, lent: max(0, min(n.experts-slots, int(o.Lent/n.expert))), bytes: int(n.expert)}
		s.later, s.requested = make([]int32, 0, all), make([]int, 0, all)
		if s.experts, err = newExpertSlots(make([]*load, all), s.expertCache(slots), s.arena, size); err != nil {
			return err
		}
		s.experts.mover, s.experts.reader, s.experts.wake.rouse = s.mover, s, s.rouse
	}
	return nil
}

// StagingBytes returns the memory of the windows and of the slots of experts. Call it before the first pass.
func (s *Store) StagingBytes() int64 {
	_, experts := s.ExpertBytes()
	return s.displacing.windows.sum() + experts
}

// streamed returns the sizes of the weights that stream.
func (s *Store) streamed() (n streamed) {
	for i := range s.units {
		n.unit = max(n.unit, s.units[i].bytes)
		n.units += s.units[i].bytes
	}
	for _, b := range s.bands.loads {
		n.band = max(n.band, b[0].slot)
		n.bands += b[0].slot
	}
	n.expert, n.experts = s.largestExpert()
	return n
}

// newStream returns a stream for units with the given groups.
func (s *Store) newStream(units [][]*load, window *hostmem.Block) *stream {
	st := newStream(units, bytesOf(window), s.mover, s)
	st.wake.rouse = s.rouse
	if s.keep {
		st.keep.arena = s.arena
	}
	s.streams = append(s.streams, st)
	return st
}

// readAheadBytes is the size of a window beyond the largest unit. It lets the disk read while
// that unit computes.
const readAheadBytes = 64 << 20

// Window returns the size of the window through which units stream, in bytes. largest is the size
// of the largest unit.
func Window(largest int64) int64 { return largest + min(largest, readAheadBytes) }

// streamed holds sizes of the weights that stream, in bytes: the largest unit and all units, the
// largest band and all bands, and the largest expert and the number of experts.
type streamed struct {
	unit, units, band, bands, expert int64
	experts                          int
}

// divide divides the staging memory. Units get the largest unit and room to read ahead. Bands get
// their window, as far as there is room. Experts get the rest, because they are often reused.
// Without experts, units get the rest, up to the size of all units.
func (n *streamed) divide(staging int64) (window, bands int64, slots int) {
	window = min(n.units, Window(n.unit))
	tight, loose := devicemap.BandWindow(n.band, n.bands, true), devicemap.BandWindow(n.band, n.bands, false)
	bands = max(tight, min(loose, staging-window-leastSlots*n.expert)) // reads of whole blocks may take more than planned
	if n.experts > 0 {
		return window, bands, min(n.experts, max(leastSlots, int((staging-window-bands)/n.expert)))
	}
	return max(window, min(n.units, staging-bands)), bands, 0
}
