package dispatch

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"unsafe"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/topology"
)

// On is o for a model that is placed as on the machine m.
func (o Options) On(m *topology.Machine) Options {
	o.machine = m
	return o
}

// Intercept is called instead of each read of weights of the models that l counts.
func (l *Ledger) Intercept(f func(read func() error) error) { l.mover.Intercept = f }

// InterceptWrites is called instead of each write of converted weights of the models that l counts.
func (l *Ledger) InterceptWrites(f func(write func() error) error) { l.mover.InterceptWrite = f }

// EvictAtRandom lets a random policy decide which weights of the models that l counts stay in memory, and has
// all guesses of experts read.
func (l *Ledger) EvictAtRandom(seed uint64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 11))
	l.kept.GuessAll = true
	l.kept.Order = func(n int) []int {
		mu.Lock()
		defer mu.Unlock()
		return rng.Perm(n)
	}
	l.kept.Experts = func(layers []policy.Layer, capacity int64, ahead int) *policy.Cache {
		return policy.NewRandom(layers, capacity, ahead, seed)
	}
}

// ErrGPUFull is the error of a GPU of [Options.OnGPUs] that has too little memory.
var ErrGPUFull = errors.New("out of memory")

// OnGPUs is o for a machine with n GPUs, each of which open opens. supports reports which weights they
// can multiply by; nil means all.
func (o Options) OnGPUs(n int, open func(number int, host backend.Backend) (backend.Backend, error), supports func(backend.Matrix) bool) Options {
	var gpus []GPU
	for i := range n {
		gpus = append(gpus, GPU{Number: i, Name: "test", MemoryBytes: 1 << 30, AvailableBytes: 1 << 30})
	}
	o.gpus = &gpuTier{list: func() ([]GPU, string) { return gpus, "" }, open: open, supports: supports,
		noMemory: func(err error) bool { return errors.Is(err, ErrGPUFull) }}
	return o
}

// WithGPUMemory is o of OnGPUs for GPUs with so many bytes each.
func (o Options) WithGPUMemory(bytes int64) Options {
	gpus, _ := o.gpus.list()
	gpus = slices.Clone(gpus)
	for i := range gpus {
		gpus[i].AvailableBytes = bytes
	}
	tier := *o.gpus
	tier.list = func() ([]GPU, string) { return gpus, "" }
	o.gpus = &tier
	return o
}

// WithUnusedGPU is o of OnGPUs for a machine whose GPU 0 is not used, with the reason.
func (o Options) WithUnusedGPU(reason string) Options {
	o = o.WithGPUMemory(0)
	gpus, _ := o.gpus.list()
	gpus[0].Reason = reason
	return o
}

// InTiles is o for a model whose blocks process so many rows together.
func (o Options) InTiles(rows int) Options {
	o.tile = rows
	return o
}

// CodingAll is o for a model that codes matrices of any width.
func (o Options) CodingAll() Options {
	o.Compress, o.codedShare = CompressExact, 1000
	return o
}

// WithCodedGain is o on a machine whose coded weights are so many times as fast as plain ones.
func (o Options) WithCodedGain(gain float64) Options {
	o.codedSpeed = func() float64 { return gain }
	return o
}

// InBands is o for a model whose matrices on the disk all stream in bands of at most so many bytes.
func (o Options) InBands(bytes int64) Options {
	o.band = bytes
	return o
}

// InColumns is o for a model whose matrices of GPTQ and AWQ on the disk stream in bands of so many bytes.
func (o Options) InColumns(bytes int64) Options {
	o.columns, o.columnBand = true, bytes
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

// Copied returns the bytes of weights that m has in memory of its own.
func (m *Model) Copied() int64 { return m.weights.Copied() }

// PassReads is what a pass of m reads from the disk.
func (m *Model) PassReads() residency.PassReads { return m.weights.PassReads() }

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

// StreamsPrompts reports whether m has blocks that stream to a GPU for long prompts.
func (m *Model) StreamsPrompts() bool { return m.stations.streams.from > 0 }

// WithGPUPace is o of OnGPUs for a machine with these speeds, per second: bytes of the host's memory and of the
// link, operations of the host and of a GPU.
func (o Options) WithGPUPace(memory, host, link, device float64) Options {
	tier := *o.gpus
	tier.pace = &pace{Memory: memory, Host: host, Link: link, Device: device}
	o.gpus = &tier
	return o
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

// StationBytes is the memory of a GPU's weights.
func (m *Model) StationBytes(d devicemap.Device) int64 {
	for _, s := range m.stations.list {
		if s.device == d {
			return s.weights.Bytes()
		}
	}
	return 0
}

// WithCrossing is o of WithGPUPace for copies of a row that take so many seconds.
func (o Options) WithCrossing(seconds float64) Options {
	tier, pace := *o.gpus, *o.gpus.pace
	pace.Crossing = seconds
	tier.pace = &pace
	o.gpus = &tier
	return o
}

// FailedRead is the error of a pass in which the disk failed to read a mapped byte of a tensor.
func (m *Model) FailedRead(path string, mapped *byte) error {
	return m.weightError(path, &backend.FaultError{Address: uintptr(unsafe.Pointer(mapped))})
}
