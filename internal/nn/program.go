package nn

import (
	"slices"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/meta"
)

// A Program is a compiled module tree.
type Program struct {
	// Units run one after another.
	Units []*Unit

	linears    []*linear // that adapters support
	embeddings []*embedding
	norms      []*norm // that have weights, each module once
	layers     []kvcache.LayerShape
	states     []int // elements of each layer's state of a sequence
	ropes      []*meta.RopeSpec
	alphas     map[int]param // of ropes by index, see meta.RopeSpec.Alpha
	positions  bool          // uses absolute positions
	// firstPosition is the row of the position table for the first token of a sequence.
	firstPosition int32
	width         int // width of the widest hidden state between units
	hidden        int // input width of the head; 0 without a head
	vocab         int
	experts       int    // largest number of experts
	topK          int    // largest number of selected experts
	mixedHeads    int    // largest number of heads that an expert of attention has
	zeros         int    // width of the widest row of zeros that a rule needs
	heads         int    // largest number of heads for which a rule gathers rows
	chosen        int    // maximum number of positions that an indexer selects for a row; 0 if there is no indexer
	perLayer      int    // total width of the vectors of meta.PerLayerSpec
	joins         int    // see Joins
	streamWidth   int    // width of the residual stream, if embeddings or a carry follow it in each row; otherwise 0
	earlier       int    // maximum number of earlier tokens in an n-gram
	hashes        int    // maximum number of table rows of a row's n-grams
	host          string // see HostOnly
	choosers      []int  // units with an indexer
	choiceShared  bool   // a later unit uses the positions that one of them selected
	shared        []int  // layers of KV that later units also read
	constants     int    // largest number of rows per token for which a rule needs ones and zeros
	asked         asked
	rowGroups     map[*meta.Param]backend.RowGroups // see RowGroups
	moves         bool                              // some unit replaces the hidden states instead of changing them in place
}

// RowGroups returns the matrices of [Unit].Banded that a pass uses half by half: the first rows of
// all groups, then the others.
func (p *Program) RowGroups() map[*meta.Param]backend.RowGroups { return p.rowGroups }

// spans reports whether the pass must assign rows to sequences.
func (p *Program) spans() bool { return len(p.layers) > 0 || p.positions }

// A Unit is a part of the tree that runs as a whole. All its weights are resident while it runs.
type Unit struct {
	Path string // of its first module
	// Modules are the subtrees whose parameters and buffers the unit reads.
	Modules []Node
	// Experts are the stacks of experts within them, which are held expert by expert.
	Experts []Node
	// Banded are the matrices among their parameters that may come in bands; see [BandedWeights].
	// The unit reads them one after another, each from its first row to its last, or in the order
	// of [Program.RowGroups].
	Banded []*meta.Param
	// Layers are the indices in [Program.KV] of the layers whose keys and values the unit reads
	// and writes. States are the indices in [Program.States] of its states. No other unit uses
	// them, except those of [Program.Shared].
	Layers, States []int
	// HostOnly names a part of the unit that only the host's backend supports, or is "".
	HostOnly string

	learned []int // tables of ropes that depend on parameters
	step    step
}

// A Node is a module with its path. Module is resolved: SameAs is nil.
type Node struct {
	Path   string
	Module *meta.Module
}

// A step is the code of a unit: it replaces the context's hidden state.
type step interface {
	run(c *Context)
	// scratch returns the number of floats that it allocates from the arena.
	scratch(l Limits) int
}

// KV returns the shape of one token in each layer's cache.
func (p *Program) KV() []kvcache.LayerShape { return p.layers }

// States returns the number of float32 values in one sequence's state, for each layer that has a
// state instead of keys and values.
func (p *Program) States() []int { return p.states }

// HostOnly names a part of the model that requires the host's backend for all units, or returns
// "". Units may have such parts of their own: see [Unit].HostOnly.
func (p *Program) HostOnly() string { return p.host }

// Untrained names a part of the model that cannot be trained, or returns "".
func (p *Program) Untrained() string {
	if p.joins > 0 {
		return "hidden states of another model"
	}
	return ""
}

// Shared reports whether units after the one that writes the keys and values of a layer also read
// them.
func (p *Program) Shared(layer int) bool { return slices.Contains(p.shared, layer) }

// Joins returns the width of the hidden states that a pass needs for each of its rows, or 0 if it
// needs none; see [Input].Before.
func (p *Program) Joins() int { return p.joins }

// Hidden returns the width of the hidden states after the final norm, or 0 for a tree without a
// head.
func (p *Program) Hidden() int { return p.hidden }

// Vocab returns the width of the logits, or 0 for a tree without a head.
func (p *Program) Vocab() int { return p.vocab }

// RopeClass returns equal numbers for lengths with equal rotary frequencies. It returns 0 for
// every length unless a layer's rope type depends on the length (dynamic, longrope). Only
// sequences of one class may share keys, so the class must be part of the scope of a cached
// sequence. If a generated token has another class than the prompt, the pages that follow must
// not be shared (see kvcache's Seal).
func (p *Program) RopeClass(length int) uint64 {
	var class uint64
	for _, r := range p.ropes {
		class = class*1_000_003 + ropeClass(r, length)
	}
	return class
}

// Restarts reports whether a sequence that grows from one length to another must be recomputed
// from its first token. With longrope and LongScale, keys that were computed for short sequences
// are invalid in long ones. The reference discards its cache at the same point.
func (p *Program) Restarts(from, to int) bool {
	for _, r := range p.ropes {
		if (r.Type == meta.RopeLongRope || r.ShortScale != 0) && ropeClass(r, from) != ropeClass(r, to) {
			return true
		}
	}
	return false
}

// Limits bounds the passes that a context can run.
type Limits struct {
	Rows    int // tokens per pass
	Outputs int // rows of logits per pass, and rows of final hidden states
	States  int // rows of final hidden states per pass, if more than Outputs
	// Tile is the number of rows that go through a block together, except through experts. More
	// rows per pass then take little more memory. 0 means all rows. Results do not depend on it.
	Tile int
}

// states returns the maximum number of final hidden states of a pass.
func (l Limits) states() int { return max(l.Outputs, min(l.States, l.Rows)) }

// ScratchBytes returns the memory that a context with these limits allocates from its backend.
func (p *Program) ScratchBytes(l Limits) int64 { return 4 * int64(p.floats(l)) }
