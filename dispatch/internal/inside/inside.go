// Package inside is how tests of package dispatch, which are packages of their own, reach what dispatch does not export.
//
// Options are settings that only tests have: another machine, made-up GPUs, sizes that follow from memory otherwise. Package
// dispatch reads them, and registers an [Access] for what is behind its models and ledgers. Package dispatchtest has the
// functions that tests call. Nothing else uses this package.
package inside

import (
	"context"
	"io/fs"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/kvstore"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/topology"
)

// Options are settings of a model for tests. The zero value changes nothing.
type Options struct {
	Machine    *topology.Machine // the machine that the model is placed on; nil: this one
	GPUs       *GPUs             // the GPUs of the machine; nil: those of this one, unless HideGPUs is set
	Tile       int               // rows that blocks process together
	Band       int64             // the size of bands of all matrices, in bytes
	ColumnBand int64             // the size of bands of outputs, in bytes
	CodedShare float64           // instead of meta.CodedShare
}

// HideGPUs hides the GPUs of this machine from models whose Options do not ask for them.
var HideGPUs bool

// GPUs are the GPUs of a machine.
type GPUs struct {
	Number int // made-up GPUs; 0: those of this machine
	// Twice makes GPU 0 of this machine GPU 1 too.
	Twice     bool
	Available int64  // free bytes of each made-up GPU
	Unused    string // why made-up GPU 0 is not used; "": it is used

	// Open opens a made-up GPU. host computes what stays on the host.
	Open func(number int, host backend.Backend) (backend.Backend, error)
	// Supports reports whether made-up GPUs have kernels for weights stored as m is. nil means all.
	Supports func(m backend.Matrix) bool
	// NoMemory reports whether an error of Open or of a backend says that a made-up GPU has too little memory.
	NoMemory func(err error) bool
	Refused  map[string]string // why made-up GPUs cannot run units, by their paths
	Pace     *Pace             // the speeds of the machine; nil: they are measured
}

// Pace is the speed of a machine with a GPU: bytes of the host's memory and of the link, operations of the host and of the
// GPU, all per second, and the seconds in which a row is copied to the GPU or back.
type Pace struct{ Memory, Host, Link, Device, Crossing float64 }

// Access returns and changes parts of public values of package dispatch. Arguments of type any are pointers to the type that
// the parameter names, such as *dispatch.Options. Each function may be called whenever the public methods of its value may.
type Access struct {
	Options func(options any) *Options
	Mover   func(ledger any) *residency.Mover
	Policy  func(ledger any) *residency.Policy
	Weights func(model any) *residency.Store
	// StreamsFrom returns the length in tokens from which prompts stream a Model's blocks to a GPU, 0 for none.
	StreamsFrom func(model any) int
	// StationBytes returns the memory of the weights that a Model has on a GPU.
	StationBytes func(model any, gpu devicemap.Device) int64

	// SetCodedGain is for a machine whose coded weights are so many times as fast as plain ones.
	SetCodedGain func(options any, gain float64)
	// SetBorrows has long passes borrow activations from the experts' cache, whatever the plan gains by that.
	SetBorrows func(options any)
	// TileTokens returns the number of tokens that go through a block together.
	TileTokens func(options any) int
	// Recording returns what Model.RecordRouting has recorded so far. It must not be called during a pass.
	Recording func(model any) *policy.Trace
	// UngrowKV returns the KV cache to the size of the plan, as after some idle time.
	UngrowKV func(model any)
	// Follow is Model.FollowLimits in a made-up tree that has /proc and /sys. changed is a func(dispatch.MemoryLimit).
	Follow func(model any, ctx context.Context, root fs.FS, changed any)
	// FailedRead returns the error of a pass in which the disk failed to read a mapped byte of a tensor of a unit.
	FailedRead func(model any, unit string, mapped *byte) error
	// KVStore returns the store of pages, and what is used in its place by models that are opened once it is set.
	KVStore func(store any) (pages *kvstore.Store, instead *kvcache.Store)

	// AgeAdapterWaits makes adapters that have no room wait for their turns, as if they had waited long enough.
	AgeAdapterWaits func(ledger any)
	// AbandonAdapterTurn ends the time that the adapter whose turn it is has for taking it.
	AbandonAdapterTurn func(ledger any)
}

// Of is set by package dispatch.
var Of Access
