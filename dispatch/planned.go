package dispatch

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/placement"
)

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
	plan = m.plan.Moved(host, d.Bytes, less, m.settings.HitRate())
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
func (m *Model) RequestBytes() int64 { return m.settings.RequestBytes }

// PlanWith returns the plan with the hit rate of the expert cache that is expected while the
// given number of sequences hold the given number of tokens each. The plan itself expects an
// eighth of the KV cache of one sequence to be in use. PlanWith is safe for concurrent use.
func (m *Model) PlanWith(sequences, tokens int) devicemap.Plan {
	if m.cache == nil || m.settings.KVUsual == 0 {
		return m.plan
	}
	config := m.cache.Config()
	used := int64(sequences)*config.SequenceBytes(tokens, m.settings.MaxBatchTokens) + int64(m.lendStep(config.PageBytes()))*config.PageBytes()
	return m.plan.LendingLess(used-m.settings.KVUsual, m.settings.HitRate())
}

// ExpectedMemory returns the bytes that the plan expects in memory while one request runs,
// without the runtime and the request itself. It includes memory for requests that is lent to
// matrices. It is safe for concurrent use.
func (m *Model) ExpectedMemory() int64 {
	host := m.plan.Device(devicemap.CPU)
	expected := host.Used() - host.RequestBytes - host.RuntimeBytes
	if placement.LendsToMatrices(&m.plan) && m.lends() {
		expected += min(placement.UnusedByRequests(host.RequestBytes, 0), m.plan.Streamed()-m.plan.DiskBytesPerToken)
	}
	return expected
}

// placeBy sets the plan and the settings of a device map: those of the options if they were
// planned for this map, or else the sizes that a map of the caller needs.
func (m *Model) placeBy(devices devicemap.Map) error {
	s := m.options.settings()
	s = s.ForModel(m.skeleton)
	if d := m.options.placed; d != nil && d.Plan.Map.String() == devices.String() {
		m.plan, m.settings = d.Plan, s
		return nil
	}
	d, err := s.PlaceBy(m.skeleton, m.program, devices)
	m.plan, m.settings = d.Plan, d.Settings
	return err
}
