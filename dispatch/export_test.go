package dispatch

import (
	"context"
	"io/fs"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/residency/policy"
)

// WithCodedGain is o on a machine whose coded weights are so many times as fast as plain ones.
func (o Options) WithCodedGain(gain float64) Options {
	o.codedSpeed = func() float64 { return gain }
	return o
}

// UngrowKV returns the KV cache to the size of the plan, as after some idle time.
func (m *Model) UngrowKV() { m.ungrowKV() }

// Replay returns the number of experts that m has room for, and what a replay of the recording in as
// much memory counts.
func (m *Model) Replay() (slots int, want ExpertCounts) {
	least, most := m.weights.ExpertBytes()
	slots = int(2 * most / max(least, 1))
	trace := m.recording.Trace()
	for i := range trace.Layers {
		trace.Layers[i].Size = 1
	}
	return slots, ExpertCounts(policy.Replay(trace, policy.Forecast, int64(slots), policy.Ahead(slots)))
}

// LRU returns the counts of a replay that evicts the least recently used expert.
func (m *Model) LRU() ExpertCounts {
	slots, _ := m.Replay()
	return ExpertCounts(policy.Replay(m.recording.Trace(), policy.LRU, int64(slots), policy.Ahead(slots)))
}

// Borrowing is o for a model whose long passes borrow activations from the experts' cache.
func (o Options) Borrowing() Options {
	o.borrows = true
	return o
}

// TileTokens is the number of tokens that go through a block together.
func (o Options) TileTokens() int { return min(o.MaxBatchTokens, o.limits().Tile) }

// FollowIn is FollowLimits in a made-up tree that has /proc and /sys.
func (m *Model) FollowIn(ctx context.Context, root fs.FS, changed func(MemoryLimit)) {
	m.follow(ctx, root, changed)
}

// AgeAdapterWaits makes adapters that have no room wait for their turns, as if they had waited long enough.
func (l *Ledger) AgeAdapterWaits() {
	l.adapters.Lock()
	defer l.adapters.Unlock()
	for _, w := range l.adapters.waits {
		w.since = w.since.Add(-loraPatience)
	}
}

// AbandonAdapterTurn ends the time that the adapter whose turn it is has for taking it.
func (l *Ledger) AbandonAdapterTurn() { l.adapters.abandon(l.adapters.waits[0]) }

// FailedRead is the error of a pass in which the disk failed to read a mapped byte of a tensor.
func (m *Model) FailedRead(path string, mapped *byte) error {
	return m.weightError(path, &backend.FaultError{Address: uintptr(unsafe.Pointer(mapped))})
}
