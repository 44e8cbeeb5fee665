package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/meta"
)

// StreamChosen is the value of Settings.StreamPrompts with which a plan chooses the length from
// the measured speeds of the host and the GPU.
const StreamChosen = -1

// streamStep is the granularity of chosen lengths, in tokens.
const streamStep = 16

// streamable returns the host's units that can stream to a GPU under a device map.
func (p *placer) streamable(devices devicemap.Map, o *Settings) (units []StreamedUnit) {
	if p.program.HostOnly() != "" || o.Coded {
		return nil
	}
	tier, convert := o.GPUs(), o.Conversion(p.loaded)
	at := bytesOfUnits(p.skeleton.Root, p.program, devices)
	for i, u := range p.program.Units {
		switch home := at[i].home(devices.Devices()); {
		case tier.Refuses(u, convert) != "":
		case gpus.Is(home):
			if at[i].expertsOnHost() > 0 {
				units = append(units, StreamedUnit{Unit: u, OnlyExperts: true})
			}
		case len(u.Layers)+len(u.States) > 0 && !at[i].expertsOnGPUs():
			units = append(units, StreamedUnit{Unit: u})
		}
	}
	return units
}

// streamTarget returns the GPU to which a plan streams: the last one with weights, or else the
// last one.
func streamTarget(plan *devicemap.Plan) (target devicemap.Device, ok bool) {
	var any bool
	for _, d := range plan.Devices {
		if gpus.Is(d.Device) && (d.WeightsBytes > 0 || !any) {
			target, ok = d.Device, true
			any = any || d.WeightsBytes > 0
		}
	}
	return target, ok
}

// reserveStreams reserves GPU memory for streams if the plan has some. It reports whether it
// changed a budget, so that the caller has to plan again. It sets off if the GPU has too little
// memory for streams even after other weights are moved.
func (p *placer) reserveStreams(plan *devicemap.Plan, budgets []devicemap.Budget, kv *kvRoom, o *Settings, off *bool) bool {
	target, ok := streamTarget(plan)
	if !ok || o.StreamPrompts == 0 || *off {
		return false
	}
	units := p.streamable(plan.Map, o)
	i := slices.IndexFunc(budgets, func(b devicemap.Budget) bool { return b.Device == target })
	if len(units) == 0 || i < 0 || p.streamFrom(target, units, o) == 0 {
		return false
	}
	rings, pages := StreamSize(units, p.loaded).Bytes(), p.layerKV(kv)
	b := &budgets[i]
	reserved := int64(0) // of pages
	if b.Staging > 0 {
		reserved = pages
	}
	switch {
	case rings <= b.Staging:
		return false
	case b.Activations+b.Runtime+rings+b.KV-reserved+pages > b.Limit:
		*off = true
		rings, pages = 0, 0
	}
	changed := b.Staging != rings
	b.Staging, b.KV = rings, b.KV-reserved+pages
	return changed
}

// layerKV returns the largest part of the KV cache that one unit has.
func (p *placer) layerKV(kv *kvRoom) (most int64) {
	for _, n := range p.unitKV(kv) {
		most = max(most, n)
	}
	return most
}

// finishStreams records in a plan which prompts stream, and releases reserved memory that is not
// needed.
func (p *placer) finishStreams(plan *devicemap.Plan, kv *kvRoom, o *Settings) {
	target, _ := streamTarget(plan)
	units := p.streamable(plan.Map, o)
	for i := range plan.Devices {
		d := &plan.Devices[i]
		if !gpus.Is(d.Device) || d.StagingBytes == 0 {
			continue
		}
		if d.Device == target && len(units) > 0 {
			plan.StreamPrompts, plan.StreamDevice = p.streamFrom(target, units, o), target
			continue
		}
		d.StagingBytes, d.KVBytes = 0, d.KVBytes-p.layerKV(kv)
	}
	if o.StreamPrompts > 0 && plan.StreamPrompts == 0 {
		why := "the plan has no GPU"
		if len(units) == 0 {
			why = "no block of the cpu and the disk can"
		} else if target != "" {
			why = fmt.Sprintf("GPU %s has no room for %s", target, devicemap.FormatSize(StreamSize(units, p.loaded).Bytes()))
		}
		plan.Warnings = append(plan.Warnings, "no prompts stream to a GPU: "+why)
	}
}

// streamFrom returns the minimum prompt length, in tokens, that streams units to a GPU, or 0 for
// none.
func (p *placer) streamFrom(target devicemap.Device, units []StreamedUnit, o *Settings) int {
	if o.StreamPrompts >= 0 {
		return o.StreamPrompts
	}
	return p.rates(target, o).from(units, p.loaded, o.plannedTokens())
}

// A pace holds the rates that bound the time of a unit on the host, and on a GPU to which it
// streams. 0 means unknown.
type pace struct {
	Memory float64 `json:"memory_bytes_per_second"`    // reads of the host
	Host   float64 `json:"host_operations_per_second"` // multiply-adds of the host
	Link   float64 `json:"link_bytes_per_second"`      // from host memory to GPU memory
	Device float64 `json:"device_operations_per_second"`
	// Crossing is the time of copying a row to the GPU or back, in seconds.
	Crossing float64 `json:"crossing_seconds,omitempty"`
}

// from returns the minimum number of tokens, up to most, with which units are faster on the GPU,
// or 0 for none. Weights from the disk take the same time to reach either device.
func (c *pace) from(units []StreamedUnit, loaded map[*meta.Param]int64, most int) int {
	if c.Memory <= 0 || c.Host <= 0 || c.Link <= 0 || c.Device <= 0 {
		return 0
	}
	var bytes, weights float64
	for i := range units {
		b, w := unitCost(&units[i], loaded)
		bytes, weights = bytes+b, weights+w
	}
	for n := streamStep; n <= most; n += streamStep {
		operations := 2 * weights * float64(n)
		if max(bytes/c.Link, operations/c.Device) < max(bytes/c.Memory, operations/c.Host) {
			return n
		}
	}
	return 0
}

// unitCost returns the bytes of a unit, and the number of weights that each token is multiplied
// by.
func unitCost(u *StreamedUnit, loaded map[*meta.Param]int64) (bytes, weights float64) {
	stacked := map[*meta.Param]float64{}
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			if spec, ok := m.Spec.(*meta.MoESpec); ok && spec.Count > 0 {
				for _, e := range u.Experts {
					for _, p := range e.Module.Params {
						stacked[p.Resolve()] = math.Min(1, float64(spec.TopK)/float64(spec.Count))
					}
				}
			}
		}
	}
	for _, p := range gpus.UnitParams(u.Unit) {
		share, ok := stacked[p]
		if u.OnlyExperts && !ok {
			continue
		}
		bytes += float64(cmp.Or(loaded[p], p.Bytes()))
		if len(p.Shape) > 1 {
			if !ok {
				share = 1
			}
			weights += share * float64(p.Elements())
		}
	}
	return bytes, weights
}
