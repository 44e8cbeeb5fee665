package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// Routed experts may be on other devices than their block. The block runs at its station, the
// station of its other weights; each expert runs where the device map places it. The outputs of
// experts are copied to the block's station and added there in the order of the experts, so that
// the placement does not change a bit. Long prompts may copy host experts to a GPU instead; see
// streams.go.

// dividedExperts is a stack of experts that are not all on the device where their block runs.
type dividedExperts struct {
	unit     int
	of       []*station // of each expert, nil for the host
	places   nn.ExpertPlaces
	streamed nn.ExpertPlaces // for long prompts; no places if they do the same
}

// host reports whether some of the experts are on the host.
func (d *dividedExperts) host() bool { return slices.Contains(d.of, nil) }

// divideExperts records the devices of unit i's experts if not all of them are where the unit
// runs. It opens the GPUs that hold some.
func (m *Model) divideExperts(i int, tier gpus.Tier) error {
	home := m.stations.of[i]
	for _, n := range m.program.Units[i].Experts {
		of := make([]*station, expertsOf(n.Module))
		divided := false
		for e := range of {
			if d, _ := m.devices.Device(fmt.Sprintf("%s.%d", n.Path, e)); gpus.Is(d) {
				s, err := m.station(d, tier)
				if err != nil {
					return err
				}
				of[e] = s
			}
			divided = divided || of[e] != home
		}
		if divided {
			if m.stations.experts == nil {
				m.stations.experts = map[*meta.Module]*dividedExperts{}
			}
			m.stations.experts[n.Module] = &dividedExperts{unit: i, of: of}
		}
	}
	return nil
}

// expertsOf returns the number of experts in a stack.
func expertsOf(stack *meta.Module) int {
	if len(stack.Params) == 0 {
		return 0
	}
	return stack.Params[0].Resolve().Shape[0]
}

// addUnit allocates memory at the stations for their weights of unit i.
func (m *Model) addUnit(i int) error {
	u, home := m.program.Units[i], m.stations.of[i]
	for _, s := range m.stations.list {
		has := func(stack *meta.Module, e int) bool {
			if d := m.stations.experts[stack]; d != nil {
				return d.of[e] == s
			}
			return s == home
		}
		list := placement.Modules(u.Experts)
		some := slices.ContainsFunc(list, func(stack *meta.Module) bool {
			d := m.stations.experts[stack]
			return d != nil && slices.Contains(d.of, s)
		})
		if s == home {
			list, some = placement.Modules(u.Modules), true
		}
		if !some {
			continue
		}
		if err := s.weights.Add(i, u.Path, list, placement.Modules(u.Experts), has); err != nil {
			return m.noRoom(s, "the weights that the device map places there", "", err)
		}
	}
	return nil
}

// away reports whether an expert is on a GPU while its unit or other experts of its stack are on
// the host.
func (m *Model) away(stack *meta.Module, expert int) bool {
	d := m.stations.experts[stack]
	return d != nil && d.of[expert] != nil
}

// dividedIn returns a stack of unit u whose experts are divided, or nil.
func (m *Model) dividedIn(u *nn.Unit) *dividedExperts {
	for _, n := range u.Experts {
		if d := m.stations.experts[n.Module]; d != nil {
			return d
		}
	}
	return nil
}

// hostHasExperts reports whether the host has experts of a unit that runs at a station.
func (m *Model) hostHasExperts(u *nn.Unit) bool {
	for _, n := range u.Experts {
		if d := m.stations.experts[n.Module]; d != nil && m.stations.of[d.unit] != nil && d.host() {
			return true
		}
	}
	return false
}

// startExperts creates the places of divided experts. All stations must have their contexts.
func (m *Model) startExperts() {
	if m.stations.experts == nil {
		return
	}
	m.stations.places = m.expertPlaces
	for _, d := range m.stations.experts {
		d.places = d.at(m.run)
		if t := m.stations.streams.experts; t != nil && t[d.unit] != nil && d.host() {
			d.streamed = d.at(t[d.unit].run)
		}
	}
}

// at returns the places of the experts. Those of the host run in the context host.
func (d *dividedExperts) at(host *nn.Context) (p nn.ExpertPlaces) {
	var list []*station
	for _, s := range d.of {
		if s != nil && !slices.Contains(list, s) {
			list = append(list, s)
			p.At = append(p.At, s.run)
		}
	}
	if d.host() { // last, so that GPUs compute meanwhile
		list, p.At = append(list, nil), append(p.At, host)
	}
	for _, s := range d.of {
		p.Of = append(p.Of, uint8(slices.Index(list, s)))
	}
	return p
}

// expertPlaces returns the places of a stack's experts in this pass. It returns nil if all of
// them are where their unit runs.
func (m *Model) expertPlaces(stack *meta.Module) *nn.ExpertPlaces {
	d := m.stations.experts[stack]
	switch {
	case d == nil:
		return nil
	case m.stations.streams.long && d.streamed.At != nil:
		return &d.streamed
	case d.host():
		d.places.At[len(d.places.At)-1] = m.run // which changes with the size of passes
	}
	return &d.places
}

// expertStream returns the station to which the host experts of unit i stream in this pass, or
// nil.
func (m *Model) expertStream(i int) *station {
	if st := &m.stations.streams; st.long && st.experts != nil {
		return st.experts[i]
	}
	return nil
}

// runStreamedExperts runs unit i, whose host experts stream to s.
func (m *Model) runStreamedExperts(i int, u *nn.Unit, run *nn.Context, s *station) error {
	s.weights.experts = true
	before := s.weights.stream.Copied()
	s.weights.stream.Begin()
	err := m.runUnit(i, u, run)
	s.weights.stream.End()
	s.weights.experts = false
	s.meter.streamed.Add(s.weights.stream.Copied() - before)
	return err
}

// peerError returns the error of another device that computed experts for a unit. It returns nil
// if err is the unit's own.
func (m *Model) peerError(path string, err error) error {
	var peer *nn.PeerError
	if !errors.As(err, &peer) {
		return nil
	}
	if s := m.stationOf(peer.Context); s != nil {
		return s.failed(path, peer.Err)
	}
	return m.weightError(path, peer.Err)
}
