// Package testhooks lets the tests of package dispatch, which are packages of their own, reach
// unexported parts of dispatch.
//
// Options are settings that only tests have: another machine, simulated GPUs, fixed sizes.
// Package dispatch reads them, and registers an [Access] to the internals of its models and
// ledgers. Package dispatchtest has the functions that tests call. Nothing else uses this
// package.
package testhooks

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
	Machine    *topology.Machine // the machine that the model is placed on; nil means this one
	GPUs       *GPUs             // the GPUs of the machine; nil means those of this one, unless HideGPUs is set
	Tile       int               // rows that a block processes together
	Band       int64             // size of the bands of all matrices, in bytes
	ColumnBand int64             // size of bands of outputs, in bytes
	CodedShare float64           // replaces meta.CodedShare
	// Borrows makes long passes borrow activations from the expert cache, even if the plan does not
	// gain by it.
	Borrows bool
}

// HideGPUs hides the GPUs of this machine from models whose Options do not ask for them.
var HideGPUs bool

// GPUs are the GPUs of a machine.
type GPUs struct {
	Number int // number of simulated GPUs; 0 means those of this machine
	// Twice makes GPU 0 of this machine also GPU 1.
	Twice     bool
	Available int64  // free bytes of each simulated GPU
	Unused    string // why simulated GPU 0 is not used; "" if it is used

	// Open opens a simulated GPU. host runs the operations that stay on the host.
	Open func(number int, host backend.Backend) (backend.Backend, error)
	// Supports reports whether simulated GPUs have kernels for weights stored like m. nil means
	// that all are supported.
	Supports func(m backend.Matrix) bool
	// NoMemory reports whether an error of Open or of a backend says that a simulated GPU has too
	// little memory.
	NoMemory func(err error) bool
	Refused  map[string]string // why simulated GPUs cannot run units, by path
	Pace     *Pace             // the speeds of the machine; nil means that they are measured
}

// Pace holds the speeds of a machine with a GPU: bytes of the host's memory and of the link,
// operations of the host and of the GPU, all per second, and the seconds of copying a row to the
// GPU or back.
type Pace struct{ Memory, Host, Link, Device, Crossing float64 }

// Access returns and changes parts of public values of package dispatch. Arguments of type any are pointers to the type that
// the parameter names, such as *dispatch.Options. Each function may be called whenever the public methods of its value may.
type Access struct {
	Options func(options any) *Options
	Mover   func(ledger any) *residency.Mover
	Policy  func(ledger any) *residency.Policy
	Weights func(model any) *residency.Store
	// StreamsFrom returns the minimum length, in tokens, of prompts that stream a Model's blocks
	// to a GPU, or 0 for none.
	StreamsFrom func(model any) int
	// StationBytes returns the memory of a Model's weights on a GPU.
	StationBytes func(model any, gpu devicemap.Device) int64

	// SetCodedGain sets the speedup of coded weights over plain ones.
	SetCodedGain func(options any, gain float64)
	// TileTokens returns the number of tokens that go through a block together.
	TileTokens func(options any) int
	// Recording returns what Model.RecordRouting has recorded so far. It must not be called during a pass.
	Recording func(model any) *policy.Trace
	// UngrowKV shrinks the KV cache to the plan's size, as after some idle time.
	UngrowKV func(model any)
	// Follow is Model.FollowLimits with a simulated /proc and /sys. changed is a
	// func(dispatch.MemoryLimit).
	Follow func(model any, ctx context.Context, root fs.FS, changed any)
	// FailedRead returns the error of a pass for which the disk failed to read a mapped byte of a
	// unit's tensor.
	FailedRead func(model any, unit string, mapped *byte) error
	// KVStore returns the store of pages, and a pointer to the store that models use instead if
	// they are opened after it is set.
	KVStore func(store any) (pages *kvstore.Store, instead *kvcache.Store)

	// AgeAdapterWaits makes waits for adapters old enough for their turns.
	AgeAdapterWaits func(ledger any)
	// AbandonAdapterTurn ends the turn of the adapter whose turn it is.
	AbandonAdapterTurn func(ledger any)
}

// Of holds the functions of package dispatch, which sets it.
var Of Access
