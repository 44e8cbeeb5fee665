package placement

import (
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/deviceweights"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// unitBytes holds the bytes of a unit's weights on each device.
type unitBytes struct {
	dense, experts map[devicemap.Device]int64 // experts are the routed ones
}

// home returns the device at which the unit runs: the one with most of its weights other than
// routed experts.
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

// devices returns the devices that hold weights of the unit.
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

// expertsOnHost returns the bytes of the routed experts that no GPU holds.
func (b *unitBytes) expertsOnHost() (n int64) {
	for d, bytes := range b.experts {
		if !gpus.Is(d) {
			n += bytes
		}
	}
	return n
}

// expertsOnGPUs reports whether GPUs hold some of the routed experts.
func (b *unitBytes) expertsOnGPUs() bool {
	for d := range b.experts {
		if gpus.Is(d) {
			return true
		}
	}
	return false
}

// UnitDevices returns the device at which each unit runs.
func UnitDevices(root *meta.Module, program *nn.Program, devices devicemap.Map) []devicemap.Device {
	out := make([]devicemap.Device, len(program.Units))
	for i, bytes := range bytesOfUnits(root, program, devices) {
		out[i] = bytes.home(devices.Devices())
	}
	return out
}

// bytesOfUnits returns the bytes of each unit's weights on each device.
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
		for _, p := range gpus.UnitParams(u) {
			if d, ok := devices.Device(paths[p]); ok && !stacked[p] {
				bytes.dense[d] += p.Bytes()
			}
		}
		out[i] = bytes
	}
	return out
}

// A StreamedUnit is a unit that streams to a GPU for long prompts. If the unit itself runs on the
// GPU, only its experts stream.
type StreamedUnit struct {
	*nn.Unit
	OnlyExperts bool
}

// modules returns the modules that stream, and their stacks of experts.
func (u *StreamedUnit) modules() [2][]*meta.Module {
	if u.OnlyExperts {
		return [2][]*meta.Module{Modules(u.Experts), Modules(u.Experts)}
	}
	return [2][]*meta.Module{Modules(u.Modules), Modules(u.Experts)}
}

// StreamSize returns the memory of the rings through which units stream. loaded has the sizes of
// converted parameters.
func StreamSize(units []StreamedUnit, loaded map[*meta.Param]int64) deviceweights.StreamSize {
	var list [][2][]*meta.Module
	for i := range units {
		list = append(list, units[i].modules())
	}
	return deviceweights.StreamSizeOf(list, loaded)
}

func Modules(nodes []nn.Node) (out []*meta.Module) {
	for _, n := range nodes {
		out = append(out, n.Module)
	}
	return out
}
