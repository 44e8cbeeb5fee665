package dispatchtest

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/inside"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/topology"
)

// with is o with a change of what only tests may set.
func with(o dispatch.Options, change func(*inside.Options)) dispatch.Options {
	change(inside.Of.Options(&o))
	return o
}

// On is o for a model that is placed as on the machine m.
func On(o dispatch.Options, m *topology.Machine) dispatch.Options {
	return with(o, func(i *inside.Options) { i.Machine = m })
}

// InTiles is o for a model whose blocks process so many rows together.
func InTiles(o dispatch.Options, rows int) dispatch.Options {
	return with(o, func(i *inside.Options) { i.Tile = rows })
}

// InBands is o for a model whose matrices on the disk all stream in bands of at most so many bytes.
func InBands(o dispatch.Options, bytes int64) dispatch.Options {
	return with(o, func(i *inside.Options) { i.Band = bytes })
}

// InColumns is o for a model whose matrices of GPTQ and AWQ on the disk stream in bands of so many bytes.
func InColumns(o dispatch.Options, bytes int64) dispatch.Options {
	return with(o, func(i *inside.Options) { i.ColumnBand = bytes })
}

// CodingAll is o for a model that codes matrices of any width.
func CodingAll(o dispatch.Options) dispatch.Options {
	o.Compress = dispatch.CompressExact
	return with(o, func(i *inside.Options) { i.CodedShare = 1000 })
}

// WithCodedGain is o on a machine whose coded weights are so many times as fast as plain ones.
func WithCodedGain(o dispatch.Options, gain float64) dispatch.Options {
	inside.Of.SetCodedGain(&o, gain)
	return o
}

// Borrowing is o for a model whose long passes borrow activations from the experts' cache.
func Borrowing(o dispatch.Options) dispatch.Options {
	inside.Of.SetBorrows(&o)
	return o
}

// TileTokens is the number of tokens that go through a block together.
func TileTokens(o dispatch.Options) int { return inside.Of.TileTokens(&o) }

// ErrGPUFull is the error of a GPU of [OnGPUs] that has too little memory.
var ErrGPUFull = errors.New("out of memory")

// OnGPUs is o for a machine with n GPUs, each of which open opens. supports reports which weights they
// can multiply by; nil means all.
func OnGPUs(o dispatch.Options, n int, open func(number int, host backend.Backend) (backend.Backend, error), supports func(backend.Matrix) bool) dispatch.Options {
	return with(o, func(i *inside.Options) {
		i.GPUs = &inside.GPUs{Number: n, Available: 1 << 30, Open: open, Supports: supports,
			NoMemory: func(err error) bool { return errors.Is(err, ErrGPUFull) }}
	})
}

// withGPUs is o of [OnGPUs] with a change of its GPUs.
func withGPUs(o dispatch.Options, change func(*inside.GPUs)) dispatch.Options {
	return with(o, func(i *inside.Options) {
		gpus := *i.GPUs
		change(&gpus)
		i.GPUs = &gpus
	})
}

// WithGPUMemory is o of [OnGPUs] for GPUs with so many bytes each.
func WithGPUMemory(o dispatch.Options, bytes int64) dispatch.Options {
	return withGPUs(o, func(g *inside.GPUs) { g.Available = bytes })
}

// Refusing is o of [OnGPUs] for GPUs that cannot run some units, with the reasons by path.
func Refusing(o dispatch.Options, units map[string]string) dispatch.Options {
	return withGPUs(o, func(g *inside.GPUs) { g.Refused = units })
}

// WithUnusedGPU is o of [OnGPUs] for a machine whose GPU 0 is not used, with the reason.
func WithUnusedGPU(o dispatch.Options, reason string) dispatch.Options {
	return withGPUs(o, func(g *inside.GPUs) { g.Available, g.Unused = 0, reason })
}

// WithGPUPace is o of [OnGPUs] for a machine with these speeds, per second: bytes of the host's memory and of the
// link, operations of the host and of a GPU.
func WithGPUPace(o dispatch.Options, memory, host, link, device float64) dispatch.Options {
	return withGPUs(o, func(g *inside.GPUs) {
		g.Pace = &inside.Pace{Memory: memory, Host: host, Link: link, Device: device}
	})
}

// WithCrossing is o of [WithGPUPace] for copies of a row that take so many seconds.
func WithCrossing(o dispatch.Options, seconds float64) dispatch.Options {
	return withGPUs(o, func(g *inside.GPUs) {
		pace := *g.Pace
		pace.Crossing = seconds
		g.Pace = &pace
	})
}

// HideGPUs hides the GPUs of this machine from models whose options are not of [OnHostGPUs] or [OnOneGPUTwice].
func HideGPUs() { inside.HideGPUs = true }

// OnHostGPUs is o for the GPUs of this machine.
func OnHostGPUs(o dispatch.Options) dispatch.Options {
	return with(o, func(i *inside.Options) { i.GPUs = &inside.GPUs{} })
}

// OnOneGPUTwice is o for a machine with one GPU, which is GPU 0 and GPU 1.
func OnOneGPUTwice(o dispatch.Options) dispatch.Options {
	return with(o, func(i *inside.Options) { i.GPUs = &inside.GPUs{Twice: true} })
}

// StreamsPrompts reports whether m has blocks that stream to a GPU for long prompts.
func StreamsPrompts(m *dispatch.Model) bool { return inside.Of.StreamsFrom(m) > 0 }

// StationBytes is the memory of the weights of m on a GPU.
func StationBytes(m *dispatch.Model, d devicemap.Device) int64 { return inside.Of.StationBytes(m, d) }

// Intercept is called instead of each read of weights of the models that l counts.
func Intercept(l *dispatch.Ledger, f func(read func() error) error) { inside.Of.Mover(l).Intercept = f }

// InterceptWrites is called instead of each write of converted weights of the models that l counts.
func InterceptWrites(l *dispatch.Ledger, f func(write func() error) error) {
	inside.Of.Mover(l).InterceptWrite = f
}

// EvictAtRandom lets a random policy decide which weights of the models that l counts stay in memory, and has
// all guesses of experts read.
func EvictAtRandom(l *dispatch.Ledger, seed uint64) {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 11))
	kept := inside.Of.Policy(l)
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

// Copied returns the bytes of weights that m has in memory of its own.
func Copied(m *dispatch.Model) int64 { return inside.Of.Weights(m).Copied() }

// PassReads is what a pass of m reads from the disk.
func PassReads(m *dispatch.Model) residency.PassReads { return inside.Of.Weights(m).PassReads() }

// UngrowKV returns the KV cache of m to the size of the plan, as after some idle time.
func UngrowKV(m *dispatch.Model) { inside.Of.UngrowKV(m) }

// FollowIn is m.FollowLimits in a made-up tree that has /proc and /sys.
func FollowIn(ctx context.Context, m *dispatch.Model, root fs.FS, changed func(dispatch.MemoryLimit)) {
	inside.Of.Follow(m, ctx, root, changed)
}

// FailedRead is the error of a pass in which the disk failed to read a mapped byte of a tensor of a unit.
func FailedRead(m *dispatch.Model, unit string, mapped *byte) error {
	return inside.Of.FailedRead(m, unit, mapped)
}

// SlowReads has models that are opened from now on call before ahead of each read of a page of s.
func SlowReads(s *dispatch.KVStore, before func()) {
	pages, instead := inside.Of.KVStore(s)
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

// AgeAdapterWaits makes adapters that have no room wait for their turns, as if they had waited long enough.
func AgeAdapterWaits(l *dispatch.Ledger) { inside.Of.AgeAdapterWaits(l) }

// AbandonAdapterTurn ends the time that the adapter whose turn it is has for taking it.
func AbandonAdapterTurn(l *dispatch.Ledger) { inside.Of.AbandonAdapterTurn(l) }
