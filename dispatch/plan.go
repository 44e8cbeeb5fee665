package dispatch

import (
	"errors"
	"fmt"
	"slices"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/meta"
)

// Plan places the weights of skeleton within the limits of o, with room for the KV cache,
// activations and staging. It returns the plan, and o with the sizes that the plan chose, for
// [New]. It allocates no memory and reads no weight.
//
// Before any weight is placed, the KV cache gets the memory of one sequence of o.Context tokens,
// or of at most 4096 tokens if Context is 0. Afterwards it gets a share of the memory that the
// weights leave. If weights stream from the disk and o.MaxBatchTokens is 0, Plan also chooses the
// tokens of a batch.
//
// Plan returns an error if pins do not fit or name unknown paths. With StrictMemory it also
// returns an error if a limit is below the minimum.
func Plan(skeleton *meta.Model, o Options) (devicemap.Plan, Options, error) {
	return NewPlanner(skeleton).Plan(o)
}

// planAs is [Planner.Plan] after the decision whether weights are coded.
func (p *Planner) planAs(o Options) (devicemap.Plan, Options, error) {
	p.plans++
	program, err := p.compiled()
	if err != nil {
		return devicemap.Plan{}, o, err
	}
	skeleton := p.skeleton
	o.scratches, o.Threads = newScratches(p.sizers), o.withDefaults(skeleton).Threads
	o.unkept = nil
	a := placement{Planner: p, loaded: o.loadedBytes(skeleton)}
	a.streamed = o.storedBytes(a.loaded)
	a.bands = o.bandsOf(program, o.streamedAs(a.loaded))
	if a.adapters, a.gpuAdapters, err = o.adapterBytes(skeleton, program); err != nil {
		return devicemap.Plan{}, o, err
	}
	placed, err := a.place(o)
	if err == nil {
		placed, err = a.withColumns(placed, &o)
	}
	if err != nil {
		return placed.plan, placed.options, err
	}
	placed = a.tighten(a.amortise(placed, o), o)
	o, plan := placed.options, &placed.plan
	if o.inMemory {
		o.unkept = o.codedOnDisk(skeleton, plan)
	}
	if plan.BelowLeast && o.StrictMemory {
		return *plan, o, fmt.Errorf("dispatch: the limit of %s on the cpu is less than the minimum of %s: raise the limit (--max-memory, or that of the control group) or lower --max-model-len",
			devicemap.FormatSize(plan.Device(devicemap.CPU).LimitBytes), devicemap.FormatSize(plan.Least))
	}
	if err := checkQuantize(skeleton, plan, &o); err != nil {
		return *plan, o, err
	}
	if o.convertsAgain(plan) {
		o.countAgain(skeleton, plan, errNoFolder)
	}
	host := plan.Device(devicemap.CPU)
	o.StagingBytes, o.RequestBytes = host.StagingBytes, host.RequestBytes
	o.StreamPrompts = plan.StreamPrompts
	o.planned = plan
	return *plan, o, nil
}

// A placement is what all placements of a plan have in common.
type placement struct {
	*Planner
	loaded      map[*meta.Param]int64
	streamed    map[*meta.Param]int64
	bands       map[*meta.Param]int64
	adapters    int64 // bytes on the host,
	gpuAdapters int64 // and on each GPU
	gpus        []GPU // those of the machine, used or not
	pace        *pace // of the host and the GPU that prompts may stream to; nil until it is needed
}

// A placed is a plan with its options, including the sizes of the KV cache.
type placed struct {
	plan    devicemap.Plan
	options Options
}

// place solves for the limits and the batch size of o.
func (p *placement) place(o Options) (placed, error) {
	least := o
	least.leastScratch = true
	kv := newKVRoom(p.skeleton, p.program, &o)
	budgets, err := Budgets(o.MaxMemory)
	if err != nil {
		return placed{options: o}, err
	}
	budgets = p.addGPUs(budgets, &o)
	if b := hostBudget(budgets); b != nil {
		if o.Serving {
			b.Requests = requestBytes(b.Limit)
		}
		if o.Serving || b.Limit >= runtimeFrom {
			b.Runtime = p.runtimeBytes()
		}
		b.Activations, b.KV = o.activationBytes(p.skeleton, p.program, o.limitsOf(o.plannedTokens()))+p.adapters, kv.sequence
	}
	policy := o.DeviceMap
	policy.SequenceKV = kv.sequence
	policy.Loaded, policy.Streamed, policy.Bands, policy.ExpertHits = p.loaded, p.streamed, p.bands, o.expertHits()
	policy.Tight = o.tight
	plan, err := p.solve(budgets, policy, kv, &o)
	if err != nil {
		return placed{plan, o}, p.explainGPU(err, &o)
	}
	if !o.leastScratch {
		if plan.BelowLeast || onDisk(&plan) { // reads take longer than smaller units cost
			return p.place(least)
		}
		plan.Least -= o.activationBytes(p.skeleton, p.program, o.limitsOf(o.plannedTokens())) - least.activationBytes(p.skeleton, p.program, o.limitsOf(o.plannedTokens()))
	}
	plan.Warnings = append(append(plan.Warnings, p.unusedGPUs()...), limitWarnings(o.MaxMemory)...)
	matrices := unusedByRequests(kv.lendableRequests(&plan), 0) + o.unusedActivations(p.skeleton, p.program, &plan, o.keptTokens())
	lent := plan.KeepStreamed(matrices, freeBytes(&plan), kv.unused(&plan))
	if plan.CacheExperts(lent, o.expertHits()); plan.ExpertCacheBytes > 0 {
		plan.ExpertHitsFrom = o.hitsFrom(plan.CachedExpertShare())
	}
	kv.takeFree(&plan)
	kv.size(&plan)
	return placed{plan, o}, nil
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
	leastRequest = 16 << 20
	usualRequest = 144 << 20
	largeShare   = 64
	mostRequest  = 1 << 30
)

// solveBudgets reduces the memory for requests if the limit is otherwise too small, so that Least
// is the minimum.
func (p *placement) solveBudgets(budgets []devicemap.Budget, policy devicemap.Policy) (devicemap.Plan, error) {
	layout, err := p.layout(policy)
	if err != nil {
		return devicemap.Plan{}, err
	}
	plan, err := layout.Solve(budgets, policy)
	var spare int64
	for i := range budgets {
		b := &budgets[i]
		spare += max(0, b.Requests-leastRequest)
		b.Requests -= max(0, b.Requests-leastRequest)
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

// requestBytes returns the memory that requests may take under a limit.
func requestBytes(limit int64) int64 {
	usual := min(max(limit/requestShare, leastRequest), usualRequest)
	return max(usual, min(limit/largeShare, mostRequest))
}

// RequestMemory returns the bytes that a server's plan reserves for requests if the host's memory
// is limited to limit.
func RequestMemory(limit int64) int64 { return requestBytes(limit) }

// usualCurve is the hit rate of an expert cache by the share of all experts that it has room for.
// It is used if no routing of the model was recorded. It is the mean of two routings, replayed
// with Heft's policy: a recording of 200 tokens of a model with 32 experts, 4 per token, in 16
// layers; and a generated routing of 128 experts, 8 per token, in 24 layers, in which 30 % repeat
// the last token's and an eighth of the experts takes 40 %. Both are within 10 points of the
// mean. Uniformly random routing has far fewer hits.
var usualCurve = policy.Trace{Curve: []policy.Point{
	{Share: 0.02, Hits: 0.10}, {Share: 0.04, Hits: 0.20}, {Share: 0.08, Hits: 0.36}, {Share: 0.12, Hits: 0.47}, {Share: 0.16, Hits: 0.545},
	{Share: 0.24, Hits: 0.655}, {Share: 0.33, Hits: 0.735}, {Share: 0.5, Hits: 0.84}, {Share: 0.75, Hits: 0.935}, {Share: 1, Hits: 1}}}

// Budgets returns the devices with the memory that Heft may take on each. This is the user's
// limit, or for a cpu without a limit the host's available memory.
func Budgets(limits []devicemap.DeviceMemory) ([]devicemap.Budget, error) {
	var budgets []devicemap.Budget
	host := false
	for _, m := range limits {
		budgets = append(budgets, devicemap.Budget{Device: m.Device, Limit: int64(m.Bytes)})
		host = host || m.Device == devicemap.CPU
	}
	if !host {
		available := HostMemory()
		if available == 0 {
			return nil, errors.New("dispatch: this system does not report its memory: set a limit for the cpu, such as --max-memory cpu=8GiB")
		}
		budgets = append(budgets, devicemap.Budget{Device: devicemap.CPU, Limit: available})
	}
	return budgets, nil
}
