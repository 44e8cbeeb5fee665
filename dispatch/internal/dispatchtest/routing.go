package dispatchtest

import (
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/residency/policy"
)

// Replay returns the number of experts that m has room for, and the counts of a replay of its
// recording with that room.
func Replay(m *dispatch.Model) (slots int, want dispatch.ExpertCounts) {
	slots = expertSlots(m)
	trace := testhooks.Of.Recording(m)
	for i := range trace.Layers {
		trace.Layers[i].Size = 1
	}
	return slots, dispatch.ExpertCounts(policy.Replay(trace, policy.Forecast, int64(slots), policy.Ahead(slots)))
}

// ReplayLRU returns the counts of a replay that evicts the least recently used expert.
func ReplayLRU(m *dispatch.Model) dispatch.ExpertCounts {
	slots := expertSlots(m)
	return dispatch.ExpertCounts(policy.Replay(testhooks.Of.Recording(m), policy.LRU, int64(slots), policy.Ahead(slots)))
}

// expertSlots returns the number of experts that m has room for.
func expertSlots(m *dispatch.Model) int {
	least, most := testhooks.Of.Weights(m).ExpertBytes()
	return int(2 * most / max(least, 1))
}
