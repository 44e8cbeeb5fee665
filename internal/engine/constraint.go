package engine

import (
	"fmt"

	"github.com/heftai/heft/internal/sample"
)

// Constraint limits which ids a choice may have next, for example to those that continue a
// valid JSON document. Each choice has one of its own. Its methods are called from the engine's
// goroutine, in turns: Mask before each token, then Accept with the token. A choice that was
// preempted goes on with its constraint as it is: no token is accepted twice.
//
// Other requests wait while a method runs.
type Constraint interface {
	// Mask returns the ids that are allowed next: bit id%64 of word id/64 is set for each. The
	// words cover the vocabulary; ids beyond it are ignored. nil allows all ids. The engine
	// reads the result before it calls the next method. An id of Params.Stop ends the choice as
	// ever, so a text may end only where the mask allows such an id. A mask that allows no id
	// fails the request.
	Mask() []uint64
	// Accept takes the chosen id, also one that ends the choice. An error fails the request.
	Accept(id int32) error
}

// constrain makes the constraint of c, if its request has one.
func (c *choice) constrain() {
	if f := c.stream.request.Constrain; f != nil {
		c.constraint = f(c.index)
	}
}

// choosable returns the sampler's input for the next token of c.
func (c *choice) choosable() sample.Step {
	step := sample.Step{Prompt: c.tokens[:c.prompt], Generated: c.tokens[c.prompt:]}
	if c.constraint != nil {
		step.Mask = c.constraint.Mask()
	}
	return step
}

// accept tells the constraint of c which id was chosen.
func (c *choice) accept(id int32) error {
	if c.constraint == nil {
		return nil
	}
	if err := c.constraint.Accept(id); err != nil {
		return fmt.Errorf("constraint: id %d: %w", id, err)
	}
	return nil
}
