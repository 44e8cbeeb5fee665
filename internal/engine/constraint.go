package engine

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/heftai/heft/internal/sample"
)

// Constraint limits which ids a choice may have next, for example to those that continue a valid
// JSON document. Each choice has its own. The engine's goroutine calls its methods alternately:
// Mask before each token, then Accept with the token. A preempted choice continues with the state
// of its constraint: no token is accepted twice. If a mask has a single id, the engine may take
// it without logits. Several such tokens are then computed in one pass, with the bits that each
// would have alone.
//
// Other requests wait while a method runs.
type Constraint interface {
	// Mask returns the allowed next ids: bit id%64 of word id/64 is set for each. The words cover
	// the vocabulary; ids beyond it are ignored. nil allows all ids. The engine reads the result
	// before it calls the next method. An id of Params.Stop ends the choice as usual, so a text
	// can end only where the mask allows such an id. A mask that allows no id fails the request.
	Mask() []uint64
	// Accept takes the chosen id, including one that ends the choice. An error fails the request.
	Accept(id int32) error
}

// constrain creates the constraint of c, if its request has one.
func (c *choice) constrain() {
	if f := c.stream.request.Constrain; f != nil {
		c.constraint = f(c.index)
	}
}

// choosable returns the sampler's input for the next token of c.
func (c *choice) choosable() sample.Step {
	step := sample.Step{Prompt: c.tokens[:c.prompt], Generated: c.tokens[c.prompt:]}
	if c.constraint != nil {
		if c.mask == nil {
			c.mask = c.constraint.Mask()
		}
		step.Mask = c.mask
		p := &c.stream.request.Params
		step.MayEnd = c.generated() < p.MinTokens && only(c.mask, p.Stop)
	}
	return step
}

// only reports whether all ids of a mask are among ids. The text then ends, even if it has fewer
// tokens than the minimum.
func only(mask []uint64, ids []int32) bool {
	for i, w := range mask {
		for ; w != 0; w &= w - 1 {
			if !slices.Contains(ids, int32(i<<6+bits.TrailingZeros64(w))) {
				return false
			}
		}
	}
	return true
}

// accept passes the chosen id to the constraint of c.
func (c *choice) accept(id int32) error {
	if c.constraint == nil {
		return nil
	}
	c.mask = nil
	if err := c.constraint.Accept(id); err != nil {
		return fmt.Errorf("constraint: id %d: %w", id, err)
	}
	return nil
}
