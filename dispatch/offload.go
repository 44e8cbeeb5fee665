package dispatch

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// CPUOffload binds a model with all weights on the cpu tier, used in place (Accelerate's
// cpu_offload). It reads no weight.
func CPUOffload(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options) (*Model, error) {
	return New(skeleton, checkpoint, everywhere(devicemap.CPU), o)
}

// DiskOffload binds a model with all weights on the disk tier (Accelerate's disk_offload).
// Weights take the memory of the largest block, and up to 64 MiB to read ahead. DiskOffload reads
// no weight and writes nothing.
func DiskOffload(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options) (*Model, error) {
	return New(skeleton, checkpoint, everywhere(devicemap.Disk), o)
}

func everywhere(d devicemap.Device) devicemap.Map {
	return devicemap.NewMap(devicemap.Entry{Device: d})
}

// Warm starts to read the weights of the cpu tier in the background, in the order of use. Then,
// while no pass runs, it fills the cache of experts of the disk tier. It stops when ctx ends.
// It also touches the memory that a first prompt needs. Passes do not wait for it. A
// second call does nothing. It is safe for concurrent use.
func (m *Model) Warm(ctx context.Context) {
	if !m.settings.Lazy && !m.closed.Load() && m.warmed.CompareAndSwap(false, true) {
		m.weights.Warm(ctx)
		m.touchFirst(ctx)
	}
}

// Promote starts to copy the weights of the cpu tier to aligned memory in the background, and
// releases their mapped pages. If a checkpoint's tensors cross cache lines, kernels read aligned
// memory 20 to 35 % faster. The cpu tier takes no more memory than before, and results stay
// bitwise the same. Promote begins when Warm is done. A second call does nothing. It is safe for
// concurrent use.
func (m *Model) Promote(ctx context.Context) {
	if !m.settings.Lazy && !m.closed.Load() && m.promoted.CompareAndSwap(false, true) {
		m.weights.Promote(ctx)
	}
}

// Status describes what a model holds and has read.
type Status struct {
	// Loading is the progress of Warm.
	Loading Loading
	// Promoted reports whether Promote is done. PromoteErr is the error that stopped it; the other
	// weights are then used in place.
	Promoted   bool
	PromoteErr error
	// TierBytes holds the bytes of the weights on each tier, TierReadBytes the bytes read from
	// the disk tier so far, and Stall the time that passes have waited for them.
	TierBytes     map[devicemap.Device]int64
	TierReadBytes int64
	Stall         time.Duration
	// Tiers holds the counters of the cpu and the disk tier.
	Tiers map[devicemap.Device]TierStatus
	// Reads counts the reads from the disk tier of all models that share the ledger.
	Reads ReadStatus
	// MemoryLimit is the current limit of the host's memory in bytes; 0 means unknown.
	MemoryLimit int64
	// Experts counts requests for routed experts of the disk tier.
	Experts ExpertCounts
	// Held is the memory in the ledger, in bytes by purpose.
	Held map[string]int64
	// Predicted is the speed that [Model.Expect] set, and Measured the result of
	// [Model.Measured].
	Predicted, Measured ModelSpeed
	// Devices is the result of [Model.DeviceUse].
	Devices []DeviceUse
}

// TierStatus counts hits and misses of the weights of a tier.
type TierStatus struct {
	// Hits and Misses count uses of parameters, units or experts. On the cpu tier a hit was in
	// private memory; a miss was used in the mapping of its file, or converted for this use. On
	// the disk tier a hit was still in memory, and a miss was read.
	Hits   int64 `json:"hits"`
	Misses int64 `json:"misses"`
	// Evictions counts weights that were evicted, for other weights or for a lower limit.
	Evictions    int64   `json:"evictions"`
	StallSeconds float64 `json:"stall_seconds"` // time that passes have waited
}

// ReadStatus counts direct reads.
type ReadStatus struct {
	Reads    int64 // of parts of weights
	Repeats  int64 // repeated after an error
	InFlight int   // in flight now
	Depth    int   // maximum in flight, as measured for the disk
	// Latency is the sum over all reads. Busy is the time with at least one read in flight.
	Latency, Busy time.Duration
	// Buckets are upper bounds of latency. Within counts the reads of each bucket. Slower reads
	// are in no bucket.
	Buckets []time.Duration
	Within  []int64
}

// ExpertCounts counts requests for routed experts of the disk tier: experts that were in memory,
// experts that were read, and experts that were evicted for others.
type ExpertCounts struct {
	Hits, Misses, Evictions int64
	// Early counts the misses whose reads were requested before the router had chosen them,
	// because the router was predicted to choose them.
	Early int64
}

// Loading is the progress of [Model.Warm].
type Loading struct {
	BlocksDone  int     `json:"blocks_done"`
	BlocksTotal int     `json:"blocks_total"`
	BytesDone   int64   `json:"bytes_done"`
	BytesTotal  int64   `json:"bytes_total"`
	SecondsLeft float64 `json:"seconds_left"`
	Started     bool    `json:"-"`
	Done        bool    `json:"-"`
	// Filled reports that the cache of experts was filled too, as far as passes allowed it.
	Filled bool  `json:"-"`
	Err    error `json:"-"`
}

// Active reports whether weights are being read ahead.
func (l Loading) Active() bool { return l.Started && !l.Done && l.Err == nil }

// String describes the progress, as in "loading 12 of 40 blocks, 3.0 of 10.0 GiB, 28 s left".
func (l Loading) String() string {
	unit, name := 1<<20, "MiB"
	if l.BytesTotal >= 1<<30 {
		unit, name = 1<<30, "GiB"
	}
	s := fmt.Sprintf("loading %d of %d blocks, %.1f of %.1f %s", l.BlocksDone, l.BlocksTotal,
		float64(l.BytesDone)/float64(unit), float64(l.BytesTotal)/float64(unit), name)
	if l.SecondsLeft > 0 {
		s += fmt.Sprintf(", %.0f s left", math.Ceil(l.SecondsLeft))
	}
	return s
}

// Status returns the counters. It is safe for concurrent use.
func (m *Model) Status() Status {
	st, p := m.weights.Stats(), m.weights.Warming()
	promoted, promoteErr := m.weights.Promoted()
	if broken := m.changed.Load(); broken != nil {
		p.Err = *broken
	}
	predicted, measured := m.speeds()
	tier := func(t residency.TierStats) TierStatus {
		return TierStatus{Hits: t.Hits, Misses: t.Misses, Evictions: t.Evictions, StallSeconds: t.Stall.Seconds()}
	}
	return Status{
		Predicted: predicted, Measured: measured, Devices: m.DeviceUse(),
		Tiers: map[devicemap.Device]TierStatus{devicemap.CPU: tier(st.CPU), devicemap.Disk: tier(st.Disk)},
		Reads: ReadStatus{Reads: st.Mover.Reads, Repeats: st.Mover.Repeats, InFlight: st.Mover.Flight, Depth: st.Depth,
			Latency: st.Mover.Latency, Busy: st.Mover.Busy, Buckets: residency.LatencyBuckets[:], Within: st.Mover.Within[:]},
		MemoryLimit: m.memoryLimit(),
		Loading: Loading{BlocksDone: p.UnitsDone, BlocksTotal: p.UnitsTotal, BytesDone: p.BytesDone,
			BytesTotal: p.BytesTotal, SecondsLeft: p.SecondsLeft, Started: p.Started, Done: p.Done, Filled: p.Filled, Err: p.Err},
		Promoted: promoted, PromoteErr: promoteErr, TierBytes: st.TierBytes, TierReadBytes: st.ReadBytes, Stall: st.Stall, Experts: ExpertCounts(st.Experts), Held: m.options.Ledger.Held(),
	}
}
