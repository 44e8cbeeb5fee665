package residency

import (
	"fmt"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// A unit is a Unit with its resolved parameters.
type unit struct {
	Unit
	wants []want
	bytes int64 // bytes of its streamed parameters in the window

	borrowed []*segment // from Options.Lender

	activity *unitActivity
}

// A want is one parameter of a unit.
type want struct {
	*segment
	holder   *holder // nil for an expert
	streamed bool
	gather   bool // single rows of a table are read
	group    int  // index among the unit's groups
	first    int  // index of its first range in the group
	bands    bandRange

	from      []stored.Piece // pieces in the late sidecar while it streams from there; otherwise nil
	fromParts []backend.Part // parts of from
}

// streamPieces returns the pieces from which w streams.
func (w *want) streamPieces() []stored.Piece {
	if w.from != nil {
		return w.from
	}
	return w.pieces
}

// A holder is a parameter with its segments, as stored and converted.
type holder struct {
	path              string
	param             *meta.Param
	device            devicemap.Device
	stored, converted *segment // nil if no unit uses it
	shown             *segment // segment that the running unit uses
}

// sort creates units, segments, and the loads of each unit's groups.
func (s *Store) sort(units []Unit) (loads [][]*load, err error) {
	for _, u := range units {
		out := unit{Unit: u}
		out.Experts, out.activity = nil, new(unitActivity)
		s.activity = append(s.activity, out.activity)
		for _, n := range u.Experts {
			if err := s.addStack(n); err != nil {
				return nil, err
			}
			if s.stacks[n.Module] != nil {
				out.Experts = append(out.Experts, n)
			}
		}
		for _, n := range u.Modules {
			for _, m := range n.Module.Walk() {
				if s.stacks[m] != nil {
					continue
				}
				if err := s.addModule(m, &out); err != nil {
					return nil, err
				}
			}
		}
		s.streamStacks(&out)
		loads = append(loads, s.group(&out))
		s.units = append(s.units, out)
	}
	return loads, nil
}

// streamStacks adds the experts of the disk tier to the streamed weights of u, if they stream
// with it.
func (s *Store) streamStacks(u *unit) {
	if !s.whole {
		return
	}
	for _, n := range u.Experts {
		st := s.stacks[n.Module]
		for e := range st.experts {
			if g := &st.experts[e]; g.device == devicemap.Disk {
				s.find(g)
				u.wants = append(u.wants, want{segment: g, streamed: true})
			}
		}
	}
}

// group returns the groups of u's streamed parameters.
func (s *Store) group(u *unit) (list []*load) {
	var all []located
	var banded []*want
	for k := range u.wants {
		w := &u.wants[k]
		if w.streamed && s.bandBytes(w) > 0 {
			banded = append(banded, w)
			continue
		}
		if w.streamed {
			var regions []region
			from := w.streamPieces()
			for i := range from {
				regions = addRegions(regions, &from[i])
			}
			all = append(all, locate(k, regions))
		}
	}
	s.addBands(u, banded)
	for _, g := range groupWants(all) {
		var regions []region
		for _, l := range g {
			u.wants[l.want].group, u.wants[l.want].first = len(list), len(regions)
			regions = append(regions, l.regions...)
		}
		l := newLoad(regions, false)
		l.slot = max(l.slot, blockSize)
		l.jobs, l.unit = s.loadJobs(regions), u.activity
		u.bytes += l.slot
		list = append(list, l)
	}
	return list
}

func (s *Store) addModule(m *meta.Module, u *unit) error {
	for _, b := range m.Buffers {
		if t, ok, err := bufferValues(s.binding, b); err != nil {
			return err
		} else if ok {
			s.buffers[b] = t
		}
	}
	for _, p := range m.Params {
		p = p.Resolve()
		if s.skips(p) {
			continue
		}
		if other, err := s.borrow(p, u); other || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		h, err := s.holder(p)
		if err != nil {
			return err
		}
		// A lookup reads a few rows. The mapping loads these and no others.
		w := want{holder: h, gather: m.Kind == meta.KindEmbedding}
		if w.segment, err = s.segmentOf(p, h, w.gather); err != nil {
			return err
		}
		w.streamed = h.device == devicemap.Disk && !w.gather
		u.wants = append(u.wants, w)
	}
	return nil
}

// skips reports whether the caller of the store manages p.
func (s *Store) skips(p *meta.Param) bool { return s.skip != nil && s.skip(p) }

// holder returns the holder of p. It counts p's bytes once.
func (s *Store) holder(p *meta.Param) (*holder, error) {
	if h := s.holders[p]; h != nil {
		return h, nil
	}
	h := &holder{path: s.paths[p], param: p}
	var err error
	if h.device, err = s.tier(h.path); err != nil {
		return nil, err
	}
	if s.convertsAgain && s.quantizer.selects(p) {
		h.device = devicemap.CPU
	}
	size := s.quantizer.size(p)
	if !s.quantizer.selects(p) {
		size = 0
		for _, part := range s.binding.Tensors(p) {
			size += stored.New(part).Size
		}
	}
	s.count(h.device, size)
	s.holders[p] = h
	return h, nil
}

// segmentOf returns the segment of p that a unit uses: the stored or the converted one.
func (s *Store) segmentOf(p *meta.Param, h *holder, gather bool) (*segment, error) {
	if gather || !s.quantizer.selects(p) {
		if h.stored == nil {
			h.stored = &segment{path: h.path, device: h.device, param: p, gathered: true}
			s.find(h.stored)
		}
		h.stored.gathered = h.stored.gathered && gather
		s.shareMapping(h)
		return h.stored, nil
	}
	if h.converted == nil {
		h.converted = &segment{path: h.path, device: h.device, param: p, convert: s.sidecar == nil}
		if s.sidecar != nil {
			h.converted.pieces = s.sidecar.pieces[sideKey{p, -1}]
		} else if err := s.quantizer.check(p, h.path, h.device); err != nil {
			return nil, err
		}
		s.find(h.converted)
	}
	s.shareMapping(h)
	return h.converted, nil
}

// shareMapping records that lookups of a table use the mapping that its conversion reads.
func (s *Store) shareMapping(h *holder) {
	if h.stored != nil && h.converted != nil {
		h.converted.shared = true
	}
}

// tier returns the tier of a path in the device map, the cpu or the disk.
func (s *Store) tier(path string) (devicemap.Device, error) {
	device, ok := s.devices.Device(path)
	if !ok {
		return "", fmt.Errorf("residency: the device map has no place for %s", path)
	}
	if device != devicemap.CPU && device != devicemap.Disk {
		return "", fmt.Errorf("residency: %s is placed on device %s, which this build cannot run", path, device)
	}
	return device, nil
}
