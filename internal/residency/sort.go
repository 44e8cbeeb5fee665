package residency

import (
	"fmt"
	"sync/atomic"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/stored"
	"github.com/heftai/heft/meta"
)

// A unit is a Unit with its place in the ring.
type unit struct {
	Unit
	wants []want
	load  int // id in the ring, or -1
	bytes int64
}

// A want is one parameter of a unit.
type want struct {
	*entry
	shown    *entry // whose parts the unit asks for: the entry, or that of the stored table
	streamed bool
	gather   bool // of a table, of which single rows are read
	convert  bool // to the store's format
	first    int  // index of its first range among the places of the unit's load
}

// An entry is a parameter and the pieces that fill it.
type entry struct {
	path    string
	device  devicemap.Device
	pieces  []stored.Piece
	parts   []backend.Part // what Parts returns: stored, or those of the conversion
	stored  []backend.Part
	present bool // stored show the mapping, or the promoted copy

	warm     atomic.Uint32             // whether Warm brings it
	promoted atomic.Pointer[promotion] // made by the promoter
	taken    bool                      // stored show the promoted copy

	converted atomic.Pointer[conversion]
	gathered  bool // a table too, whose rows are read in place
}

// sort makes units, entries and loads.
func (s *Store) sort(units []Unit) ([]*load, error) {
	var loads []*load
	for _, u := range units {
		out := unit{Unit: u, load: -1}
		for _, n := range u.Experts {
			if err := s.addStack(n); err != nil {
				return nil, err
			}
		}
		var regions []region
		for _, n := range u.Modules {
			for _, m := range n.Module.Walk() {
				if s.stacks[m] != nil {
					continue
				}
				if err := s.addModule(m, &out, &regions); err != nil {
					return nil, err
				}
			}
		}
		if len(regions) > 0 {
			out.load = len(loads)
			l := newLoad(regions)
			l.jobs = s.loadJobs(regions)
			out.bytes = l.read
			loads = append(loads, l)
			s.streamed = append(s.streamed, len(s.units))
		}
		s.units = append(s.units, out)
	}
	return loads, nil
}

func (s *Store) addModule(m *meta.Module, u *unit, regions *[]region) error {
	for _, b := range m.Buffers {
		if t, ok, err := bufferValues(s.binding, b); err != nil {
			return err
		} else if ok {
			s.buffers[b] = t
		}
	}
	for _, p := range m.Params {
		p = p.Resolve()
		e, err := s.entry(p)
		if err != nil {
			return err
		}
		w := want{entry: e, shown: e, first: len(*regions)}
		// A lookup touches a few rows: the mapping brings those and no others.
		w.gather = m.Kind == meta.KindEmbedding
		switch {
		case w.gather || !s.quantizer.takes(p):
		case s.sidecar != nil:
			w.entry = s.convertedEntry(p, e)
		default:
			w.convert = true
			if err := s.quantizer.check(p, e.path, e.device); err != nil {
				return err
			}
		}
		w.streamed = e.device == devicemap.Disk && !w.gather
		e.gathered = e.gathered || w.gather
		if w.streamed {
			for i := range w.pieces {
				*regions = addRegions(*regions, &w.pieces[i])
			}
		}
		u.wants = append(u.wants, w)
	}
	return nil
}

func (s *Store) entry(p *meta.Param) (*entry, error) {
	if e := s.entries[p]; e != nil {
		return e, nil
	}
	e := &entry{path: s.paths[p]}
	var err error
	if e.device, err = s.tier(e.path); err != nil {
		return nil, err
	}
	for _, part := range s.binding.Tensors(p) {
		e.pieces = append(e.pieces, stored.New(part))
	}
	size := e.show()
	if s.quantizer.takes(p) {
		size = s.quantizer.size(p)
	}
	s.tiers[e.device] += size
	s.entries[p] = e
	return e, nil
}

// tier is where the device map places what has a path, the cpu or the disk.
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

// convertedEntry is p as the file of converted weights has it, beside e, which is p as stored.
func (s *Store) convertedEntry(p *meta.Param, e *entry) *entry {
	if made := s.converted[p]; made != nil {
		return made
	}
	made := &entry{path: e.path, device: e.device, pieces: s.sidecar.pieces[sideKey{p, -1}]}
	made.show()
	s.converted[p] = made
	return made
}

// show makes the parts of the pieces, without their bytes, and returns how many these are.
func (e *entry) show() (size int64) {
	e.stored = make([]backend.Part, len(e.pieces))
	for i := range e.pieces {
		e.stored[i] = e.pieces[i].Part
		size += e.pieces[i].Size
	}
	e.parts = e.stored
	return size
}
