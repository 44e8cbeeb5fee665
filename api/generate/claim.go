package generate

import (
	"errors"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/inuse"
)

// claim reserves the models of list for g, because only one goroutine at a time may use them. If
// one of them belongs to an open Model, claim fails and reserves none.
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

// unclaim frees the models of g, so that another New may use them.
func (g *Model) unclaim() { g.release(g.claimed...) }

// release frees models that g no longer uses.
func (g *Model) release(list ...*dispatch.Model) {
	for _, d := range list {
		inuse.Release(d, g.user)
	}
}

// title returns the model's name for errors.
func (g *Model) title() string {
	if g.Name == "" {
		return "another generate.Model"
	}
	return "the generate.Model " + g.Name
}
