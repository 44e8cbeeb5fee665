package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/deviceweights"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// Routed experts may be on other devices than their block: the block runs at its station, and each expert where the
// device map has it. The station of a block is that of its other weights. What an expert computes of a token crosses
// to the block's station, where results are added in the order of the experts, so that no bit depends on the division.
// Long prompts may copy experts of the host to a GPU instead; see streams.go.

// dividedExperts are the experts of a stack, which are not all where their block runs.
type dividedExperts struct {
	unit     int
	of       []*station // of each expert, nil for the host
	places   nn.ExpertPlaces
	streamed nn.ExpertPlaces // for long prompts; no places if they do the same
}

// host reports whether the host has some of the experts.
func (d *dividedExperts) host() bool { return slices.Contains(d.of, nil) }

// divideExperts notes where the experts of unit i are, if not all are where it runs, and opens the GPUs that have some.
func (m *Model) divideExperts(i int, tier gpuTier) error {
	home := m.stations.of[i]
	for _, n := range m.program.Units[i].Experts {
		of := make([]*station, expertsOf(n.Module))
		divided := false
		for e := range of {
			if d, _ := m.devices.Device(fmt.Sprintf("%s.%d", n.Path, e)); isGPU(d) {
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

// expertsOf is the number of experts of a stack.
func expertsOf(stack *meta.Module) int {
	if len(stack.Params) == 0 {
		return 0
	}
	return stack.Params[0].Resolve().Shape[0]
}

// addUnit allocates memory of the stations for what they have of unit i.
func (m *Model) addUnit(i int) error {
	u, home := m.program.Units[i], m.stations.of[i]
	for _, s := range m.stations.list {
		has := func(stack *meta.Module, e int) bool {
			if d := m.stations.experts[stack]; d != nil {
				return d.of[e] == s
			}
			return s == home
		}
		list := modules(u.Experts)
		some := slices.ContainsFunc(list, func(stack *meta.Module) bool {
			d := m.stations.experts[stack]
			return d != nil && slices.Contains(d.of, s)
		})
		if s == home {
			list, some = modules(u.Modules), true
		}
		if !some {
			continue
		}
		if err := s.weights.Add(i, u.Path, list, modules(u.Experts), has); err != nil {
			return m.noRoom(s, "the weights that the device map places there", "", err)
		}
	}
	return nil
}

// away reports whether a GPU has an expert of a stack whose unit, or other experts, the host has.
func (m *Model) away(stack *meta.Module, expert int) bool {
	d := m.stations.experts[stack]
	return d != nil && d.of[expert] != nil
}

// dividedIn returns some stack of unit u whose experts are divided, nil for none.
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

// startExperts makes the places of divided experts, when all stations have their contexts.
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

// at returns the places of experts where those of the host run in a context.
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

// expertPlaces returns the places of the experts of a stack in this pass, nil if they are all where their unit runs.
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

// expertStream returns the station to which unit i's experts of the host stream in this pass, nil if none do.
func (m *Model) expertStream(i int) *station {
	if st := &m.stations.streams; st.long && st.experts != nil {
		return st.experts[i]
	}
	return nil
}

// runStreamedExperts runs unit i, whose experts of the host stream to s.
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

// peerError is the error of a unit whose experts a peer has computed, nil if err is of the unit itself.
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

// unitBytes are the bytes of weights that a unit has on each device.
type unitBytes struct {
	dense, experts map[devicemap.Device]int64 // experts are the routed ones
}

// home returns the device at which the unit runs: the one that has most of its weights, but routed experts.
func (b *unitBytes) home(devices []devicemap.Device) (home devicemap.Device) {
	bytes := b.dense
	if len(bytes) == 0 {
		bytes = b.experts
	}
	for _, d := range devices { // in the order of the map, so that ties have one result
		if home == "" || bytes[d] > bytes[home] {
			home = d
		}
	}
	return home
}

// devices returns the devices that have some of the unit.
func (b *unitBytes) devices() (list []devicemap.Device) {
	for d := range b.dense {
		list = append(list, d)
	}
	for d := range b.experts {
		if !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// expertsOnHost returns the bytes of routed experts that no GPU has.
func (b *unitBytes) expertsOnHost() (n int64) {
	for d, bytes := range b.experts {
		if !isGPU(d) {
			n += bytes
		}
	}
	return n
}

// expertsOnGPUs reports whether GPUs have some of the routed experts.
func (b *unitBytes) expertsOnGPUs() bool {
	for d := range b.experts {
		if isGPU(d) {
			return true
		}
	}
	return false
}

// unitDevices returns the device at which each unit runs.
func unitDevices(root *meta.Module, program *nn.Program, devices devicemap.Map) []devicemap.Device {
	out := make([]devicemap.Device, len(program.Units))
	for i, bytes := range bytesOfUnits(root, program, devices) {
		out[i] = bytes.home(devices.Devices())
	}
	return out
}

// bytesOfUnits returns the bytes of weights that each unit has on each device.
func bytesOfUnits(root *meta.Module, program *nn.Program, devices devicemap.Map) []unitBytes {
	paths := map[*meta.Param]string{}
	for path, p := range root.AllParams() {
		if p.SameAs == nil {
			paths[p] = path
		}
	}
	out := make([]unitBytes, len(program.Units))
	for i, u := range program.Units {
		bytes := unitBytes{map[devicemap.Device]int64{}, map[devicemap.Device]int64{}}
		stacked := map[*meta.Param]bool{}
		for _, n := range u.Experts {
			for _, p := range n.Module.Params {
				p = p.Resolve()
				stacked[p] = true
				for e := range p.Shape[0] {
					d, _ := devices.Device(fmt.Sprintf("%s.%d", n.Path, e))
					bytes.experts[d] += p.Bytes() / int64(p.Shape[0])
				}
			}
		}
		for _, p := range unitParams(u) {
			if d, ok := devices.Device(paths[p]); ok && !stacked[p] {
				bytes.dense[d] += p.Bytes()
			}
		}
		out[i] = bytes
	}
	return out
}

// A streamedUnit is a unit that streams to a GPU for long prompts, or the experts alone of one that runs there.
type streamedUnit struct {
	*nn.Unit
	experts bool
}

// modules returns the modules that stream, and the stacks among them.
func (u *streamedUnit) modules() [2][]*meta.Module {
	if u.experts {
		return [2][]*meta.Module{modules(u.Experts), modules(u.Experts)}
	}
	return [2][]*meta.Module{modules(u.Modules), modules(u.Experts)}
}

// streamSize is the memory of the rings for units. loaded has the sizes of parameters that are converted.
func streamSize(units []streamedUnit, loaded map[*meta.Param]int64) deviceweights.StreamSize {
	var list [][2][]*meta.Module
	for i := range units {
		list = append(list, units[i].modules())
	}
	return deviceweights.StreamSizeOf(list, loaded)
}
