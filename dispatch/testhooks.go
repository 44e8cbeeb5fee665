package dispatch

import (
	"context"
	"io/fs"
	"time"
	"unsafe"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
)

func init() {
	testhooks.Of = testhooks.Access{
		Options:      func(o any) *testhooks.Options { return &o.(*Options).test },
		Mover:        func(l any) *residency.Mover { return &l.(*Ledger).mover },
		Policy:       func(l any) *residency.Policy { return &l.(*Ledger).kept },
		Weights:      func(m any) *residency.Store { return m.(*Model).weights },
		StreamsFrom:  func(m any) int { return m.(*Model).stations.streams.from },
		StationBytes: func(m any, gpu devicemap.Device) int64 { return m.(*Model).stations.bytes(gpu) },

		SetCodedGain: func(o any, gain float64) { o.(*Options).found.CodedSpeed = func() float64 { return gain } },
		TileTokens: func(o any) int {
			s := o.(*Options).settings()
			return min(s.MaxBatchTokens, s.Limits().Tile)
		},
		Recording: func(m any) *policy.Trace { return m.(*Model).recording.Trace() },
		UngrowKV:  func(m any) { m.(*Model).ungrowKV() },
		Follow: func(m any, ctx context.Context, root fs.FS, changed any) {
			m.(*Model).follow(ctx, root, changed.(func(MemoryLimit)))
		},
		FailedRead: func(m any, path string, mapped *byte) error {
			return m.(*Model).weightError(path, &backend.FaultError{Address: uintptr(unsafe.Pointer(mapped))})
		},
		KVStore: func(s any) (*kvstore.Store, *kvcache.Store) { return s.(*KVStore).store, &s.(*KVStore).instead },

		AgeAdapterWaits:    func(l any) { l.(*Ledger).adapters.age(loraPatience) },
		AbandonAdapterTurn: func(l any) { l.(*Ledger).adapters.abandon(l.(*Ledger).adapters.waits[0]) },
	}
}

// age makes waits that much longer, as if the time had passed.
func (p *adapterPool) age(by time.Duration) {
	p.Lock()
	defer p.Unlock()
	for _, w := range p.waits {
		w.since = w.since.Add(-by)
	}
}

// bytes returns the memory of the weights on a GPU.
func (s *stations) bytes(gpu devicemap.Device) int64 {
	for _, s := range s.list {
		if s.device == gpu {
			return s.weights.Bytes()
		}
	}
	return 0
}
