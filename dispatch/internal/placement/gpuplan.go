package placement

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/nn"
)

// gpuReserve is the GPU memory that plans leave to the driver: its context and the code of
// kernels.
const gpuReserve = 300 << 20

// gpuMargin is the share of a GPU's free memory, 1/gpuMargin, that plans leave free for
// fragmentation.
const gpuMargin = 20

// GPULimit returns the limit of a GPU with the given bytes of free memory.
func GPULimit(free int64) int64 { return max(0, free-free/gpuMargin-gpuReserve) }

// addGPUs adds a budget for each usable GPU, from its free memory. Budgets with a user's limit
// get memory for activations and for the kernels' own use. addGPUs starts the driver.
func (p *placer) addGPUs(budgets []devicemap.Budget, o *Settings) []devicemap.Budget {
	tier := o.GPUs()
	p.gpus, _ = tier.List()
	for _, g := range p.gpus {
		d := devicemap.GPU(g.Number)
		if g.Reason != "" || slices.ContainsFunc(budgets, func(b devicemap.Budget) bool { return b.Device == d }) {
			continue
		}
		budgets = append(budgets, devicemap.Budget{Device: d, Limit: GPULimit(g.AvailableBytes)})
	}
	if !slices.ContainsFunc(budgets, func(b devicemap.Budget) bool { return gpus.Is(b.Device) }) {
		return budgets
	}
	scratch, own := p.program.ScratchBytes(o.Limits()), o.GPUOwnBytes(p.skeleton, p.program)
	for i := range budgets {
		if b := &budgets[i]; gpus.Is(b.Device) {
			b.Activations = min(scratch+p.gpuAdapters, b.Limit)
			b.Runtime = min(own, b.Limit-b.Activations)
		}
	}
	return budgets
}

// solve places the weights. A block runs whole on one device. Blocks that a GPU cannot run, or
// would hold only in part, stay on the cpu tier.
func (p *placer) solve(budgets []devicemap.Budget, policy devicemap.Policy, kv *kvRoom, o *Settings) (devicemap.Plan, error) {
	if !slices.ContainsFunc(budgets, func(b devicemap.Budget) bool { return gpus.Is(b.Device) }) {
		return p.solveBudgets(budgets, policy)
	}
	policy.HostOnly = map[string]bool{}
	tier, convert := o.GPUs(), o.Conversion(p.loaded)
	var refused refusals
	for _, u := range p.program.Units {
		why := tier.Refuses(u, convert)
		if why == "" {
			why = p.program.HostOnly()
		}
		if why != "" {
			addPaths(policy.HostOnly, u)
			refused.add(u, "the GPU has no kernels for "+why)
		}
	}
	if !slices.ContainsFunc(p.program.Units, func(u *nn.Unit) bool { return !policy.HostOnly[u.Path] }) {
		policy.HostOnly[""] = true // buffers outside of units too
	}
	policy.UnitKV = p.unitKV(kv)
	g := gpuPlacer{p, budgets, policy, refused, kv, o}
	if policy.Kind != devicemap.Auto && policy.Kind != "" {
		return g.solve(false)
	}
	return g.chooseExperts()
}

// A gpuPlacer is a placement on GPUs before it is solved: budgets, the policy with the units
// that no GPU can run, and the reasons.
type gpuPlacer struct {
	*placer
	budgets []devicemap.Budget
	policy  devicemap.Policy
	refused refusals
	kv      *kvRoom
	o       *Settings
}

// solve places the weights and leaves g unchanged. If whole is set, routed experts of a block on
// a GPU are on the same GPU.
func (g *gpuPlacer) solve(whole bool) (devicemap.Plan, error) {
	p, kv, o, policy := g.placer, g.kv, g.o, g.policy
	budgets, refused := slices.Clone(g.budgets), g.refused.clone()
	policy.HostOnly = maps.Clone(policy.HostOnly)
	auto := policy.Kind == devicemap.Auto || policy.Kind == ""
	policy.ExpertsApart = auto && !whole
	off := false // see reserveStreams
	for {
		plan, err := p.solveBudgets(budgets, policy)
		if err != nil {
			return plan, err
		}
		if auto && p.refuseDivided(plan.Map, policy.HostOnly, &refused, whole) || p.reserveStreams(&plan, budgets, kv, o, &off) {
			continue
		}
		p.finishStreams(&plan, kv, o)
		plan.Warnings = append(plan.Warnings, refused.warnings()...)
		for i := range plan.Devices {
			if d := &plan.Devices[i]; gpus.Is(d.Device) && d.WeightsBytes == 0 && d.StagingBytes == 0 { // nothing runs there
				d.ActivationBytes, d.RuntimeBytes = 0, 0
			}
		}
		return plan, nil
	}
}

// refusals are the units that stay on the cpu tier although there is a GPU, by reason.
type refusals struct {
	reasons []string // in the order of their first units
	first   map[string]string
	count   map[string]int
}

func (r *refusals) clone() refusals {
	return refusals{slices.Clone(r.reasons), maps.Clone(r.first), maps.Clone(r.count)}
}

func (r *refusals) add(u *nn.Unit, reason string) {
	if r.count == nil {
		r.first, r.count = map[string]string{}, map[string]int{}
	}
	if r.count[reason]++; r.count[reason] == 1 {
		r.reasons = append(r.reasons, reason)
		r.first[reason] = unitName(u)
	}
}

// warnings returns one warning for each reason.
func (r *refusals) warnings() (list []string) {
	for _, reason := range r.reasons {
		switch n := r.count[reason] - 1; n {
		case 0:
			list = append(list, fmt.Sprintf("%s stays on the cpu: %s", r.first[reason], reason))
		case 1:
			list = append(list, fmt.Sprintf("%s and 1 more unit stay on the cpu: %s", r.first[reason], reason))
		default:
			list = append(list, fmt.Sprintf("%s and %d more units stay on the cpu: %s", r.first[reason], n, reason))
		}
	}
	return list
}

// addPaths adds the paths of a unit's modules.
func addPaths(paths map[string]bool, u *nn.Unit) {
	for _, n := range u.Modules {
		paths[n.Path] = true
	}
}

func unitName(u *nn.Unit) string {
	if u.Path == "" {
		return "the model"
	}
	return u.Path
}

// refuseDivided adds the units that GPUs hold only in part to hostOnly and refused. It reports
// whether it added any. If whole is not set, routed experts may be on other devices than their
// block.
func (p *placer) refuseDivided(devices devicemap.Map, hostOnly map[string]bool, refused *refusals, whole bool) bool {
	found := false
	at := bytesOfUnits(p.skeleton.Root, p.program, devices)
	for i, u := range p.program.Units {
		on := at[i].devices()
		if !whole && len(at[i].dense) == 1 && gpus.Is(at[i].home(devices.Devices())) {
			continue
		}
		if len(u.Layers)+len(u.States) > 0 && len(on) > 1 && slices.ContainsFunc(on, gpus.Is) && !hostOnly[u.Path] {
			addPaths(hostOnly, u)
			refused.add(u, "no GPU has room for all of it")
			found = true
		}
	}
	return found
}

// unitKV returns each block's part of the KV cache of one sequence. On a GPU, pages take memory
// even where they only count for states, which have memory of their own.
func (p *placer) unitKV(kv *kvRoom) map[string]int64 {
	out, all, slots := map[string]int64{}, float64(max(kv.cache.BytesPerToken(), 1)), kv.stateSlots()
	for _, u := range p.program.Units {
		config := kv.cache
		config.Layers = nil
		for _, l := range u.Layers {
			config.Layers = append(config.Layers, kv.cache.Layers[l])
		}
		if n := config.BytesPerToken(); n > 0 {
			out[u.Path] += int64(math.Ceil(float64(kv.sequence) * float64(n) / all))
		}
		config.States = nil
		for _, l := range u.States {
			config.States = append(config.States, kv.cache.States[l])
		}
		if n := config.StateBytes(); n > 0 {
			out[u.Path] += slots * n
		}
	}
	return out
}

// usesGPU reports whether a plan has weights on a GPU, permanently or while prompts stream.
func usesGPU(plan *devicemap.Plan) bool {
	return slices.ContainsFunc(plan.Devices, func(d devicemap.DevicePlan) bool {
		return gpus.Is(d.Device) && (d.WeightsBytes > 0 || d.StagingBytes > 0)
	})
}

// takeFreeOfAll grows the KV cache on all devices together, because a page has a part on each.
// The device with the least free memory is the bound. On the cpu the cache takes at most
// 1/kvShare of the limit.
func (k *kvRoom) takeFreeOfAll(plan *devicemap.Plan) {
	growth := float64(k.most) / float64(max(k.sequence, 1))
	for _, d := range plan.Devices {
		if d.KVBytes == 0 {
			continue
		}
		most := d.KVBytes + max(0, d.LimitBytes-d.Used())
		if d.Device == devicemap.CPU {
			most = max(d.KVBytes, min(most, (d.LimitBytes-d.RuntimeBytes-d.RequestBytes)/kvShare))
		}
		growth = min(growth, float64(most)/float64(d.KVBytes))
	}
	if k.asked || growth < 1 {
		growth = 1
	}
	k.spread = int64(growth * float64(k.sequence))
	for i := range plan.Devices {
		d := &plan.Devices[i]
		d.KVBytes = int64(growth * float64(d.KVBytes))
	}
}

// unusedGPUs returns a warning for each GPU that cannot be used, such as one whose memory other
// processes take.
func (p *placer) unusedGPUs() (list []string) {
	for _, g := range p.gpus {
		if g.Reason != "" {
			list = append(list, notUsed(&g))
		}
	}
	return list
}

func notUsed(g *gpus.GPU) string { return fmt.Sprintf("GPU %d is not used: %s", g.Number, g.Reason) }

// explainGPU adds the memory of the GPU to an error of a user's device map, if its limit was not
// set.
func (p *placer) explainGPU(err error, o *Settings) error {
	var placing *devicemap.PlacementError
	if !errors.As(err, &placing) || slices.ContainsFunc(o.MaxMemory, func(m devicemap.DeviceMemory) bool { return m.Device == placing.Device }) {
		return err
	}
	for _, g := range p.gpus {
		switch {
		case devicemap.GPU(g.Number) != placing.Device:
		case g.Reason != "":
			return fmt.Errorf("%w; %s", err, notUsed(&g))
		default:
			return fmt.Errorf("%w; %s of GPU %d's %s are free now, of which plans leave 5 %% and %s to the driver: set a limit with --max-memory %d=SIZE, or place fewer blocks there", err,
				devicemap.FormatSize(g.AvailableBytes), g.Number, devicemap.FormatSize(g.MemoryBytes), devicemap.FormatSize(gpuReserve), g.Number)
		}
	}
	if _, gpu := placing.Device.GPU(); gpu && len(p.gpus) == 0 {
		if _, reason := gpus.List(); reason != "" {
			return fmt.Errorf("%w; there is no GPU: %s", err, reason)
		}
	}
	return err
}
