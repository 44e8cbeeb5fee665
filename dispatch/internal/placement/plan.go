package placement

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/gpus"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// planAs is [Planner.Plan] after the decision whether weights are coded. With an error it returns
// what it has.
func (p *Planner) planAs(o Settings) (Placement, error) {
	p.plans++
	program, err := p.compiled()
	if err != nil {
		return Placement{Settings: o}, err
	}
	skeleton := p.skeleton
	o.scratches, o.Threads = newScratches(p.sizers), o.withDefaults(skeleton).Threads
	o.asStored = nil
	a := placer{Planner: p, loaded: o.LoadedBytes(skeleton)}
	a.streamed = o.storedBytes(a.loaded)
	a.bands = o.BandsOf(program, o.StreamedAs(a.loaded))
	if a.adapters, a.gpuAdapters, err = o.adapterBytes(skeleton, program); err != nil {
		return Placement{Settings: o}, err
	}
	base, err := a.place(o)
	if err == nil {
		base, err = a.withColumns(base, &o)
	}
	if err != nil {
		return base, err
	}
	out := a.tighten(a.chooseBatch(base, o), o)
	if o.conversion == 0 {
		if o.conversion = a.roomToConvert(&out.Plan, &o); o.conversion > 0 {
			return p.planAs(o)
		}
	}
	return out, out.finish(skeleton)
}

// finish checks the plan and records the sizes that it chose.
func (d *Placement) finish(skeleton *meta.Model) error {
	o, plan := &d.Settings, &d.Plan
	if o.InMemory {
		o.asStored = o.codedOnDisk(skeleton, plan)
	}
	if plan.BelowLeast && o.StrictMemory {
		return fmt.Errorf("dispatch: the limit of %s on the cpu is less than the minimum of %s: raise the limit (--max-memory, or that of the control group) or lower --max-model-len",
			devicemap.FormatSize(plan.Device(devicemap.CPU).LimitBytes), devicemap.FormatSize(plan.Least))
	}
	if err := checkQuantize(skeleton, plan, o); err != nil {
		return err
	}
	if why := o.ConvertsAgain(plan); why != nil {
		o.CountAgain(skeleton, plan, why)
	}
	for i := range plan.Devices {
		if d := &plan.Devices[i]; d.Device == devicemap.CPU {
			d.ActivationBytes, d.WeightsBytes = d.ActivationBytes-o.conversion, d.WeightsBytes+o.conversion
		}
	}
	host := plan.Device(devicemap.CPU)
	o.StagingBytes, o.RequestBytes = host.StagingBytes, host.RequestBytes
	o.StreamPrompts = plan.StreamPrompts
	return nil
}

// A placer holds what all placements of a plan have in common.
type placer struct {
	*Planner
	loaded      map[*meta.Param]int64
	streamed    map[*meta.Param]int64
	bands       map[*meta.Param]int64
	adapters    int64      // bytes on the host,
	gpuAdapters int64      // and on each GPU
	gpus        []gpus.GPU // those of the machine, used or not
	pace        *pace      // of the host and the GPU that prompts may stream to; nil until it is needed
}

// A Placement says where the weights of a model live, and how much memory everything else gets.
type Placement struct {
	Plan     devicemap.Plan
	Settings Settings // with the sizes that the plan chose
}

// place solves for the limits and the batch size of o.
func (p *placer) place(o Settings) (Placement, error) {
	least := o
	least.leastScratch = true
	kv := newKVRoom(p.skeleton, p.program, &o)
	budgets, err := Budgets(o.MaxMemory)
	if err != nil {
		return Placement{Settings: o}, err
	}
	budgets = p.addGPUs(budgets, &o)
	if b := hostBudget(budgets); b != nil {
		if o.Serving {
			b.Requests = RequestBytes(b.Limit)
		}
		if o.Serving || b.Limit >= runtimeFrom {
			b.Runtime = p.runtimeBytes()
		}
		b.Activations, b.KV = o.activationBytes(p.skeleton, p.program, o.LimitsOf(o.plannedTokens()))+p.adapters+o.conversion, kv.sequence
	}
	policy := o.DeviceMap
	policy.SequenceKV = kv.sequence
	policy.Loaded, policy.Streamed, policy.Bands, policy.ExpertHits = p.loaded, p.streamed, p.bands, o.HitRate()
	policy.Tight = o.tight
	plan, err := p.solve(budgets, policy, kv, &o)
	if err != nil {
		return Placement{plan, o}, p.explainGPU(err, &o)
	}
	if !o.leastScratch {
		if plan.BelowLeast || OnDisk(&plan) { // reads take longer than smaller units cost
			return p.place(least)
		}
		plan.Least -= o.activationBytes(p.skeleton, p.program, o.LimitsOf(o.plannedTokens())) - least.activationBytes(p.skeleton, p.program, o.LimitsOf(o.plannedTokens()))
	}
	plan.Warnings = append(append(plan.Warnings, p.unusedGPUs()...), limitWarnings(o.MaxMemory)...)
	matrices := UnusedByRequests(kv.lendableRequests(&plan), 0) + o.UnusedActivations(p.skeleton, p.program, &plan, o.KeptTokens())
	lent := plan.KeepStreamed(matrices, freeBytes(&plan), kv.unused(&plan))
	if plan.CacheExperts(lent, o.HitRate()); plan.ExpertCacheBytes > 0 {
		plan.ExpertHitsFrom = o.hitsFrom(plan.CachedExpertShare())
	}
	kv.takeFree(&plan)
	kv.size(&plan)
	return Placement{plan, o}, nil
}

// limitWarnings returns the warnings of the limits.
func limitWarnings(limits []devicemap.DeviceMemory) []string {
	var warnings []string
	for _, m := range limits {
		if m.Warning != "" {
			warnings = append(warnings, m.Warning)
		}
	}
	return warnings
}

// hostBudget returns the budget of the cpu tier, or nil if there is none.
func hostBudget(budgets []devicemap.Budget) *devicemap.Budget {
	i := slices.IndexFunc(budgets, func(b devicemap.Budget) bool { return b.Device == devicemap.CPU })
	if i < 0 {
		return nil
	}
	return &budgets[i]
}

// The memory for requests is a share of the limit. It is enough for a prompt that fills a context
// of a few thousand tokens, and up to usualRequest for the largest body. On large machines a
// smaller share continues to grow, for texts that take the tokenizer's maximum memory per byte.
const (
	requestShare = 16
	LeastRequest = 16 << 20
	usualRequest = 144 << 20
	largeShare   = 64
	mostRequest  = 1 << 30
)

// solveBudgets reduces the memory for requests if the limit is otherwise too small, so that Least
// is the minimum.
func (p *placer) solveBudgets(budgets []devicemap.Budget, policy devicemap.Policy) (devicemap.Plan, error) {
	layout, err := p.layout(policy)
	if err != nil {
		return devicemap.Plan{}, err
	}
	plan, err := layout.Solve(budgets, policy)
	var spare int64
	for i := range budgets {
		b := &budgets[i]
		spare += max(0, b.Requests-LeastRequest)
		b.Requests -= max(0, b.Requests-LeastRequest)
	}
	if err != nil || spare == 0 {
		return plan, err
	}
	if plan.BelowLeast {
		return layout.Solve(budgets, policy)
	}
	plan.Least -= spare
	return plan, nil
}

// RequestBytes returns the memory that requests may take under a limit.
func RequestBytes(limit int64) int64 {
	usual := min(max(limit/requestShare, LeastRequest), usualRequest)
	return max(usual, min(limit/largeShare, mostRequest))
}

// Budgets returns the devices with the memory that Heft may take on each. This is the user's
// limit, or for a cpu without a limit the host's available memory.
func Budgets(limits []devicemap.DeviceMemory) ([]devicemap.Budget, error) {
	var list []devicemap.Budget
	host := false
	for _, m := range limits {
		list = append(list, devicemap.Budget{Device: m.Device, Limit: int64(m.Bytes)})
		host = host || m.Device == devicemap.CPU
	}
	if !host {
		available := HostMemory(os.DirFS("/"))
		if available == 0 {
			return nil, errors.New("dispatch: this system does not report its memory: set a limit for the cpu, such as --max-memory cpu=8GiB")
		}
		list = append(list, devicemap.Budget{Device: devicemap.CPU, Limit: available})
	}
	return list, nil
}

// ForModel returns o with defaults, for a model that is opened.
func (o Settings) ForModel(skeleton *meta.Model) Settings {
	o = o.withDefaults(skeleton).withCodes(skeleton)
	o.scratches = newScratches(newSizers())
	return o
}

// PlaceBy returns the placement of a device map that a caller made: its sizes, without limits.
func (o Settings) PlaceBy(skeleton *meta.Model, program *nn.Program, devices devicemap.Map) (Placement, error) {
	const plenty = 1 << 60
	budgets := []devicemap.Budget{{Device: devicemap.CPU, Limit: plenty}}
	for _, d := range devices.Devices() {
		if d != devicemap.CPU && d != devicemap.Disk {
			budgets = append(budgets, devicemap.Budget{Device: d, Limit: plenty})
		}
	}
	host := hostBudget(budgets)
	if HasKV(program) {
		cache := o.KVConfig(program)
		host.KV = int64(cache.Pages) * cache.PageBytes()
	}
	host.Activations = o.activationBytes(skeleton, program, o.Limits())
	loaded := o.LoadedBytes(skeleton)
	plan, err := devicemap.Solve(skeleton, budgets, devicemap.Policy{Kind: devicemap.Manual, Pins: devices, Loaded: loaded,
		Bands: o.BandsOf(program, o.StreamedAs(loaded))})
	o.wholePass = plan.DiskBytesPerToken > plan.ExpertBytesPerToken
	for i := range plan.Devices {
		d := &plan.Devices[i]
		if d.LimitBytes = 0; d.Device == devicemap.CPU {
			d.ActivationBytes = o.activationBytes(skeleton, program, o.Limits())
		}
	}
	return Placement{plan, o}, err
}
