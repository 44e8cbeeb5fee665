package generate

import (
	"errors"
	"sync"

	"github.com/heftai/heft/dispatch"
)

// inUse are the dispatched models that engines run, each with the Model that it belongs to.
var inUse sync.Map

// claim gives g the models of list, which one goroutine may use at a time. It fails, and takes none, if one of
// them belongs to a Model that is open.
func (g *Model) claim(list ...*dispatch.Model) error {
	for _, d := range list {
		if other, taken := inUse.LoadOrStore(d, g); taken {
			g.unclaim()
			return errors.New("generate: new: the dispatched model already belongs to " + other.(*Model).title() +
				": share that one, which any goroutine may use, close it first, or open the model again")
		}
		g.claimed = append(g.claimed, d)
	}
	return nil
}

// unclaim frees the models of g for another New.
func (g *Model) unclaim() {
	for _, d := range g.claimed {
		inUse.CompareAndDelete(d, g)
	}
}

// title is the model's name for errors.
func (g *Model) title() string {
	if g.Name == "" {
		return "another generate.Model"
	}
	return "the generate.Model " + g.Name
}
