package dispatch

import "github.com/heftai/heft/devicemap"

// SetMemoryShare limits the host's memory of the model to bytes while other models need the rest,
// in addition to its other limits. 0 removes the share. The model releases memory as
// [Model.SetMemoryLimit] describes, but keeps the KV cache of one sequence of the whole context
// and the memory for requests, so that no request fails because of the share. SetMemoryShare
// returns the share: bytes, or the minimum of the model if that is more. Passes continue, and
// results stay bitwise the same. It is safe for concurrent use.
func (m *Model) SetMemoryShare(bytes int64) (share int64) {
	m.limit.Lock()
	defer m.limit.Unlock()
	host := m.plan.Device(devicemap.CPU)
	if bytes > 0 {
		bytes = max(bytes, m.leastOfShare().sum(host))
	}
	m.limit.share = bytes
	target := m.limit.target
	if target == 0 {
		target = max(host.LimitBytes, host.Used())
	}
	m.shrinkTo(target, 0)
	return bytes
}

// leastOfShare returns the minimum parts of a share.
func (m *Model) leastOfShare() shares {
	host, least := m.plan.Device(devicemap.CPU), m.limit.least
	least.requests = host.RequestBytes
	if m.cache != nil {
		least.kv = min(m.cache.Config().SequenceBytes(m.settings.Context, m.settings.MaxBatchTokens), host.KVBytes)
	}
	return least
}
