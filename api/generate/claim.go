package generate

import (
	"errors"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/inuse"
)

// claim gives g the models of list, which one goroutine may use at a time. It fails, and takes none, if one of
// them belongs to a Model that is open.
func (g *Model) claim(list ...*dispatch.Model) error {
	g.user = &inuse.User{Name: g.title(), End: g.Close}
	for _, d := range list {
		if other := inuse.Claim(d, g.user); other != nil {
			g.unclaim()
			return errors.New("generate: new: the dispatched model already belongs to " + other.Name +
				": share that one, which any goroutine may use, close it first, or open the model again")
		}
		g.claimed = append(g.claimed, d)
	}
	return nil
}

// unclaim frees the models of g for another New.
func (g *Model) unclaim() { g.release(g.claimed...) }

// release frees models of g that it does not use any more.
func (g *Model) release(list ...*dispatch.Model) {
	for _, d := range list {
		inuse.Release(d, g.user)
	}
}

// title is the model's name for errors.
func (g *Model) title() string {
	if g.Name == "" {
		return "another generate.Model"
	}
	return "the generate.Model " + g.Name
}
