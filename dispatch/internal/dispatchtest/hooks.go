package dispatchtest

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/topology"
)

// with returns o with a change of the settings that only tests have.
func with(o dispatch.Options, change func(*testhooks.Options)) dispatch.Options {
	change(testhooks.Of.Options(&o))
	return o
}

// On returns o for a model that is placed as on the machine m.
func On(o dispatch.Options, m *topology.Machine) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.Machine = m })
}

// InTiles returns o for a model whose blocks process the given number of rows together.
func InTiles(o dispatch.Options, rows int) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.Tile = rows })
}

// InBands returns o for a model that streams all matrices on the disk in bands of at most the
// given bytes.
func InBands(o dispatch.Options, bytes int64) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.Band = bytes })
}

// InColumns returns o for a model that streams GPTQ and AWQ matrices on the disk in bands of the
// given bytes.
func InColumns(o dispatch.Options, bytes int64) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.ColumnBand = bytes })
}

// CodingAll returns o for a model that codes matrices of any width.
func CodingAll(o dispatch.Options) dispatch.Options {
	o.Compress = dispatch.CompressExact
	return with(o, func(i *testhooks.Options) { i.CodedShare = 1000 })
}

// WithCodedGain returns o for a machine with the given speedup of coded weights over plain ones.
func WithCodedGain(o dispatch.Options, gain float64) dispatch.Options {
	testhooks.Of.SetCodedGain(&o, gain)
	return o
}

// Borrowing returns o for a model whose long passes borrow activations from the expert cache.
func Borrowing(o dispatch.Options) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.Borrows = true })
}

// TileTokens returns the number of tokens that go through a block together.
func TileTokens(o dispatch.Options) int { return testhooks.Of.TileTokens(&o) }

// ErrGPUFull is the error of a GPU of [OnGPUs] that has too little memory.
var ErrGPUFull = errors.New("out of memory")

// OnGPUs returns o for a machine with n GPUs, which open opens. supports reports which weights
// they can multiply by; nil means all.
func OnGPUs(o dispatch.Options, n int, open func(number int, host backend.Backend) (backend.Backend, error), supports func(backend.Matrix) bool) dispatch.Options {
	return with(o, func(i *testhooks.Options) {
		i.GPUs = &testhooks.GPUs{Number: n, Available: 1 << 30, Open: open, Supports: supports,
			NoMemory: func(err error) bool { return errors.Is(err, ErrGPUFull) }}
	})
}

// withGPUs returns o of [OnGPUs] with a change of its GPUs.
func withGPUs(o dispatch.Options, change func(*testhooks.GPUs)) dispatch.Options {
	return with(o, func(i *testhooks.Options) {
		gpus := *i.GPUs
		change(&gpus)
		i.GPUs = &gpus
	})
}

// WithGPUMemory returns o of [OnGPUs] for GPUs with the given bytes of memory each.
func WithGPUMemory(o dispatch.Options, bytes int64) dispatch.Options {
	return withGPUs(o, func(g *testhooks.GPUs) { g.Available = bytes })
}

// Refusing returns o of [OnGPUs] for GPUs that cannot run some units. units holds the reasons by
// path.
func Refusing(o dispatch.Options, units map[string]string) dispatch.Options {
	return withGPUs(o, func(g *testhooks.GPUs) { g.Refused = units })
}

// WithUnusedGPU returns o of [OnGPUs] for a machine whose GPU 0 is not used for the given reason.
func WithUnusedGPU(o dispatch.Options, reason string) dispatch.Options {
	return withGPUs(o, func(g *testhooks.GPUs) { g.Available, g.Unused = 0, reason })
}

// WithGPUPace returns o of [OnGPUs] for a machine with the given speeds per second: bytes of the
// host's memory and of the link, operations of the host and of a GPU.
func WithGPUPace(o dispatch.Options, memory, host, link, device float64) dispatch.Options {
	return withGPUs(o, func(g *testhooks.GPUs) {
		g.Pace = &testhooks.Pace{Memory: memory, Host: host, Link: link, Device: device}
	})
}

// WithCrossing returns o of [WithGPUPace] with the given seconds for copying a row.
func WithCrossing(o dispatch.Options, seconds float64) dispatch.Options {
	return withGPUs(o, func(g *testhooks.GPUs) {
		pace := *g.Pace
		pace.Crossing = seconds
		g.Pace = &pace
	})
}

// HideGPUs hides the GPUs of this machine from models whose options are not from [OnHostGPUs] or
// [OnOneGPUTwice].
func HideGPUs() { testhooks.HideGPUs = true }

// OnHostGPUs returns o for the GPUs of this machine.
func OnHostGPUs(o dispatch.Options) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.GPUs = &testhooks.GPUs{} })
}

// OnOneGPUTwice returns o for a machine whose only GPU is used as GPU 0 and GPU 1.
func OnOneGPUTwice(o dispatch.Options) dispatch.Options {
	return with(o, func(i *testhooks.Options) { i.GPUs = &testhooks.GPUs{Twice: true} })
}

// StreamsPrompts reports whether m has blocks that stream to a GPU for long prompts.
func StreamsPrompts(m *dispatch.Model) bool { return testhooks.Of.StreamsFrom(m) > 0 }

// StationBytes returns the memory of the weights of m on a GPU.
func StationBytes(m *dispatch.Model, d devicemap.Device) int64 {
	return testhooks.Of.StationBytes(m, d)
}

// Intercept sets a function that is called instead of each read of weights, for the models that l
// counts.
func Intercept(l *dispatch.Ledger, f func(read func() error) error) {
	testhooks.Of.Mover(l).Intercept = f
}

// InterceptWrites sets a function that is called instead of each write of converted weights, for
// the models that l counts.
func InterceptWrites(l *dispatch.Ledger, f func(write func() error) error) {
	testhooks.Of.Mover(l).InterceptWrite = f
}

// EvictAtRandom makes a random policy decide which weights of the models that l counts stay in
// memory. All experts that are predicted are read.
func EvictAtRandom(l *dispatch.Ledger, seed uint64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 11))
	kept := testhooks.Of.Policy(l)
	kept.GuessAll = true
	kept.Order = func(n int) []int {
		mu.Lock()
		defer mu.Unlock()
		return rng.Perm(n)
	}
	kept.Experts = func(layers []policy.Layer, capacity int64, ahead int) *policy.Cache {
		return policy.NewRandom(layers, capacity, ahead, seed)
	}
}

// Copied returns the bytes of the weights that m has copied to its own memory.
func Copied(m *dispatch.Model) int64 { return testhooks.Of.Weights(m).Copied() }

// PassReads returns what a pass of m reads from the disk.
func PassReads(m *dispatch.Model) residency.PassReads { return testhooks.Of.Weights(m).PassReads() }

// UngrowKV shrinks the KV cache of m to the plan's size, as after some idle time.
func UngrowKV(m *dispatch.Model) { testhooks.Of.UngrowKV(m) }

// FollowIn is m.FollowLimits with a simulated /proc and /sys.
func FollowIn(ctx context.Context, m *dispatch.Model, root fs.FS, changed func(dispatch.MemoryLimit)) {
	testhooks.Of.Follow(m, ctx, root, changed)
}

// FailedRead returns the error of a pass for which the disk failed to read a mapped byte of a
// unit's tensor.
func FailedRead(m *dispatch.Model, unit string, mapped *byte) error {
	return testhooks.Of.FailedRead(m, unit, mapped)
}

// SlowReads makes models that are opened from now on call before ahead of each read of a page of
// s.
func SlowReads(s *dispatch.KVStore, before func()) {
	pages, instead := testhooks.Of.KVStore(s)
	*instead = &slowReads{pages, before}
}

type slowReads struct {
	*kvstore.Store
	before func()
}

var _ kvcache.Store = (*slowReads)(nil)

func (s *slowReads) Get(key kvstore.Key, depth int, value []byte) bool {
	s.before()
	return s.Store.Get(key, depth, value)
}

// AgeAdapterWaits makes waits for adapters old enough for their turns.
func AgeAdapterWaits(l *dispatch.Ledger) { testhooks.Of.AgeAdapterWaits(l) }

// AbandonAdapterTurn ends the turn of the adapter whose turn it is.
func AbandonAdapterTurn(l *dispatch.Ledger) { testhooks.Of.AbandonAdapterTurn(l) }
