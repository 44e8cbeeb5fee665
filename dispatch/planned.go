package dispatch

import "github.com/heftai/heft/devicemap"

// Plan returns the plan of the model: where its weights live, what each device holds, and
// warnings, such as a limit below the minimum. For a model of [New] with a map of your own, it
// lists the sizes for that map, and devices have no limits. It is safe for concurrent use.
func (m *Model) Plan() devicemap.Plan { return m.plan }

// PlanNow returns the plan as it is now, and reports whether it differs from [Model.Plan]. It
// differs while a lower memory limit, another model or requests take memory from weights. The
// host then has its present limit and shares, and evicted weights count as weights on the disk.
// The map and DiskBytesPerToken include the weights that stream now. They do not include experts
// of the cpu tier, which are used in place in the mapping of their file. It is safe for
// concurrent use.
func (m *Model) PlanNow() (plan devicemap.Plan, differs bool) {
	host, to := m.plan.Device(devicemap.CPU), m.limit.shares.Load()
	limit := m.memoryLimit()
	if to == nil || *to == (shares{host.WeightsBytes, host.StagingBytes, host.KVBytes, host.RequestBytes}) && limit == host.LimitBytes {
		return m.plan, false
	}
	less := host.StagingBytes - to.staging
	d := m.weights.Displaced()
	host.LimitBytes, host.WeightsBytes, host.StagingBytes = limit, min(host.WeightsBytes, max(to.weights-d.Window, 0)), to.staging+d.Window
	host.KVBytes, host.RequestBytes = to.kv, to.requests
	plan = m.plan.Moved(host, d.Bytes, less, m.options.expertHits())
	if len(d.Paths) > 0 {
		now := devicemap.NewMap(m.plan.Map.Entries()...)
		for _, path := range d.Paths {
			now.Set(path, devicemap.Disk)
		}
		plan.Map = now.Clean()
	}
	return plan, true
}

// RequestBytes returns the bytes that the plan reserves for requests; see [Options].Serving. 0
// means none.
func (m *Model) RequestBytes() int64 { return m.options.RequestBytes }

// PlanWith returns the plan with the hit rate of the expert cache that is expected while the
// given number of sequences hold the given number of tokens each. The plan itself expects an
// eighth of the KV cache of one sequence to be in use. PlanWith is safe for concurrent use.
func (m *Model) PlanWith(sequences, tokens int) devicemap.Plan {
	if m.cache == nil || m.options.kvUsual == 0 {
		return m.plan
	}
	config := m.cache.Config()
	used := int64(sequences)*config.SequenceBytes(tokens, m.options.MaxBatchTokens) + int64(m.lendStep(config.PageBytes()))*config.PageBytes()
	return m.plan.LendingLess(used-m.options.kvUsual, m.options.expertHits())
}

// ExpectedMemory returns the bytes that the plan expects in memory while one request runs,
// without the runtime and the request itself. It includes memory for requests that is lent to
// matrices. It is safe for concurrent use.
func (m *Model) ExpectedMemory() int64 {
	host := m.plan.Device(devicemap.CPU)
	expected := host.Used() - host.RequestBytes - host.RuntimeBytes
	if lendsToMatrices(&m.plan) && m.lends() {
		expected += min(unusedByRequests(host.RequestBytes, 0), m.plan.Streamed()-m.plan.DiskBytesPerToken)
	}
	return expected
}

// planOf returns the plan of a device map that the user made.
func (m *Model) planOf(devices devicemap.Map) (devicemap.Plan, error) {
	if p := m.options.planned; p != nil && p.Map.String() == devices.String() {
		return *p, nil
	}
	const plenty = 1 << 60
	budgets := []devicemap.Budget{{Device: devicemap.CPU, Limit: plenty}}
	for _, d := range devices.Devices() {
		if d != devicemap.CPU && d != devicemap.Disk {
			budgets = append(budgets, devicemap.Budget{Device: d, Limit: plenty})
		}
	}
	var kv int64
	if remembers(m.program) {
		cache := m.options.cache(m.program)
		kv = int64(cache.Pages) * cache.PageBytes()
	}
	for i := range budgets {
		if b := &budgets[i]; b.Device == devicemap.CPU {
			b.KV, b.Activations = kv, m.options.activationBytes(m.skeleton, m.program, m.options.limits())
		}
	}
	loaded := m.options.loadedBytes(m.skeleton)
	plan, err := devicemap.Solve(m.skeleton, budgets, devicemap.Policy{Kind: devicemap.Manual, Pins: devices, Loaded: loaded,
		Bands: m.options.bandsOf(m.program, m.options.streamedAs(loaded))})
	m.options.wholePass = plan.DiskBytesPerToken > plan.ExpertBytesPerToken
	for i := range plan.Devices {
		d := &plan.Devices[i]
		if d.LimitBytes = 0; d.Device == devicemap.CPU {
			d.ActivationBytes = m.options.activationBytes(m.skeleton, m.program, m.options.limits())
		}
	}
	return plan, err
}
