package placement

import (
	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A Planner plans one model several times, with other limits, numbers of sequences or formats. It
// caches what these plans have in common, so that each plan after the first takes a fraction of
// the time of the first. It is not safe for concurrent use.
type Planner struct {
	skeleton *meta.Model
	program  *nn.Program // nil until first used
	sizers   *sizers
	runtime  int64               // see runtimeBytes; 0 until first used
	layouts  []*devicemap.Layout // latest last
	plans    int                 // made so far
}

// mostLayouts is the maximum number of layouts that a Planner caches: of a model's weights as
// stored, coded and in two formats.
const mostLayouts = 4

// NewPlanner returns a planner of skeleton, which must not change.
func NewPlanner(skeleton *meta.Model) *Planner {
	return &Planner{skeleton: skeleton, sizers: newSizers()}
}

// Plan places the weights of the model within the limits of o, with room for the KV cache,
// activations and staging. It allocates no memory and reads no weight. With an error it returns
// what it has.
func (p *Planner) Plan(o Settings) (Placement, error) {
	if err := o.Check(); err != nil {
		return Placement{Settings: o}, err
	}
	if o.mayCode(p.skeleton) {
		return p.planCoded(o)
	}
	return p.planAs(o)
}

// compiled returns the model's program.
func (p *Planner) compiled() (*nn.Program, error) {
	if p.program != nil {
		return p.program, nil
	}
	program, err := nn.Compile(p.skeleton.Root)
	if err == nil {
		p.program = program
	}
	return program, err
}

// layout returns the layout of the model under a policy.
func (p *Planner) layout(policy devicemap.Policy) (*devicemap.Layout, error) {
	for _, l := range p.layouts {
		if l.Suits(policy) {
			return l, nil
		}
	}
	l, err := devicemap.NewLayout(p.skeleton, policy)
	if err != nil {
		return nil, err
	}
	if len(p.layouts) == mostLayouts {
		p.layouts = p.layouts[1:]
	}
	p.layouts = append(p.layouts, l)
	return l, nil
}
