package nn

import (
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

// A Program is a compiled module tree.
type Program struct {
	// Units run one after another.
	Units []*Unit

	linears   []*linear // that adapters can be added to
	layers    []kvcache.LayerShape
	ropes     []*meta.RopeSpec
	positions bool // absolute positions are looked up
	width     int  // of the widest hidden state between units
	hidden    int  // width of what the head reads; 0 without a head
	vocab     int
	experts   int // largest number of experts
	topK      int // largest number of chosen ones
	zeros     int // widest row of zeros that a rule wants
	heads     int // largest number of heads that a rule gathers rows by
}

// spans reports whether rows must be told which sequence they belong to.
func (p *Program) spans() bool { return len(p.layers) > 0 || p.positions }

// A Unit is a part of the tree that runs as a whole, whose weights are present
// together.
type Unit struct {
	Path string // of its (first) module
	// Modules are the subtrees whose parameters and buffers the unit reads.
	Modules []Node
	// Experts are the expert stacks within them, which are held expert by expert.
	Experts []Node

	step step
}

// A Node is a module with its path. Module is resolved: SameAs is nil.
type Node struct {
	Path   string
	Module *meta.Module
}

// A step is what a unit does: it replaces the context's hidden state.
type step interface {
	run(c *Context)
	// scratch is the number of floats that it takes from the arena.
	scratch(l Limits) int
}

// KV is the size of a token in each layer's cache.
func (p *Program) KV() []kvcache.LayerShape { return p.layers }

// Vocab is the width of the logits, 0 for a tree without a head.
func (p *Program) Vocab() int { return p.vocab }

// RopeClass tells apart the lengths for which rotary frequencies differ. It is 0 for
// every length unless a layer's rope type looks at the length (dynamic, longrope). Keys
// may be shared among sequences of one class only, so that it belongs to the scope of
// a cached sequence; where a generated token has another class than the prompt, what
// follows must not be shared (kvcache's Seal).
func (p *Program) RopeClass(length int) uint64 {
	var class uint64
	for _, r := range p.ropes {
		class = class*1_000_003 + ropeClass(r, length)
	}
	return class
}

// Restarts reports whether a sequence that grows from one length to another must be
// computed anew, from its first token on: keys of longrope made for short sequences
// mean nothing in long ones. The reference throws its cache away in the same place.
func (p *Program) Restarts(from, to int) bool {
	for _, r := range p.ropes {
		if r.Type == meta.RopeLongRope && ropeClass(r, from) != ropeClass(r, to) {
			return true
		}
	}
	return false
}

// Limits bound the passes that a context can run.
type Limits struct {
	Rows    int // tokens of a pass
	Outputs int // rows of logits of a pass, and rows of final hidden states
}

// ScratchBytes is the memory that a context with these limits takes from its backend.
func (p *Program) ScratchBytes(l Limits) int64 { return 4 * int64(p.floats(l)) }
