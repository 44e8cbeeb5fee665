package dispatch

import (
	"errors"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A Planner plans one model several times, with other limits, numbers of sequences or formats. It
// caches what these plans have in common, so that each plan after the first takes a fraction of
// the time of [Plan]. It is not safe for concurrent use.
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

// NewPlanner returns a Planner of skeleton, which must not change.
func NewPlanner(skeleton *meta.Model) *Planner {
	return &Planner{skeleton: skeleton, sizers: newSizers()}
}

// Skeleton returns the model that p plans.
func (p *Planner) Skeleton() *meta.Model { return p.skeleton }

// Plan is like the function [Plan] for the Planner's model.
func (p *Planner) Plan(o Options) (devicemap.Plan, Options, error) {
	if p.skeleton == nil {
		return devicemap.Plan{}, o, errors.New("dispatch: plan: got a nil skeleton")
	}
	if err := o.check(); err != nil {
		return devicemap.Plan{}, o, err
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
