package nn

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// Weights brings parameters to where a rule runs. The caller of [Unit.Run] has already
// made the unit's modules present, all but their expert stacks.
type Weights interface {
	// Parts are the pieces that fill p, in the order of its rows. p is never a tied
	// parameter (it was resolved). expert is the slab of a stacked parameter, or -1
	// for a whole parameter. A matrix of rank 2 is logically [rows, columns] of p (or
	// of the slab) whatever its stored order: where the checkpoint has it transposed,
	// Transposed is set. A vector is a Matrix whose Tensor has rank 1. The result and
	// the memory it shows are valid until Run returns, an expert's until the next
	// HoldExperts. It is nil where p was not brought.
	Parts(p *meta.Param, expert int) []backend.Part
	// Buffer is a buffer's values as they are stored; absent where they were not brought.
	Buffer(b *meta.Buffer) tensor.Tensor
	// WantExperts says which experts of the stack m the rule is going to hold, in
	// order, so that they can be read ahead. The slice is the rule's own.
	WantExperts(m *meta.Module, experts []int32)
	// HoldExperts makes the first n of experts of the stack m present, at least one, and lets
	// go of those before, whose operations are done. An error is about the first.
	HoldExperts(m *meta.Module, experts []int32) (n int, err error)
}
