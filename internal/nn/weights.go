package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Weights provides the parameters that rules read. Before [Unit.Run] the caller must load the
// unit's modules, except for their stacks of experts.
type Weights interface {
	// Parts returns the pieces of p in the order of its rows. p is never a tied parameter; the
	// caller has resolved it. expert selects the slab of a stacked parameter; it is -1 for a
	// whole parameter. A matrix of rank 2 is logically the [rows, columns] of p, or of the slab,
	// whatever its stored order; Transposed is set if the checkpoint stores it transposed. A
	// vector is a Matrix whose Tensor has rank 1.
	//
	// The result and its memory are valid until Run returns; those of an expert are valid until
	// the next HoldExperts. Parts waits for a parameter that is being read. It returns nil if p
	// is not loaded; Err then returns the reason if there was an error.
	Parts(p *meta.Param, expert int) []backend.Part
	// Err returns the error of the last Parts that returned nil, or nil.
	Err() error
	// Buffer returns a buffer's values as stored, or a zero tensor if they are not loaded.
	Buffer(b *meta.Buffer) tensor.Tensor
	// WantExperts announces which experts of the stack m the rule will hold, in order, so that
	// they can be prefetched. The slice is valid during the call.
	WantExperts(m *meta.Module, experts []int32)
	// HoldExperts waits until at least one of the given experts of the stack m is loaded, and
	// returns the number of loaded ones. It moves these to the front of the slice; both parts
	// keep their order. It releases the experts that were held before; their operations must have
	// finished. The error names an expert.
	HoldExperts(m *meta.Module, experts []int32) (n int, err error)
}

// BandedWeights are Weights that may load a large matrix in bands of rows, one after
// another, so that it is never in memory as a whole. Only matrices of [Unit].Banded may come in
// bands. Parts of such a matrix returns the first band. Bands of [Program.RowGroups] are single
// pieces with the rows of whole groups. Parts and NextBand end the use of the previous band of
// any matrix, so the operations that read it must have finished.
type BandedWeights interface {
	// Banded reports whether p comes in bands.
	Banded(p *meta.Param) bool
	// NextBand waits for the next band of p and returns its pieces. It returns nil after the last
	// band, and if a read fails; Err then returns the error.
	NextBand(p *meta.Param) []backend.Part
}
