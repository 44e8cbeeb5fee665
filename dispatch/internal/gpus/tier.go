package gpus

import (
	"cmp"
	"fmt"

	"github.com/heftai/heft/dispatch/internal/testhooks"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A Tier is the GPUs of a machine, real or simulated.
type Tier struct {
	List func() (gpus []GPU, reason string)
	// Open opens a GPU. host runs the operations that stay on the host.
	Open     func(number int, host backend.Backend) (backend.Backend, error)
	NoMemory func(err error) bool // reports whether an error says that a GPU has too little memory
	// Own returns the maximum memory that kernels of a GPU take in addition to tensors, for
	// operands and scratch. nil means none.
	Own  func(w *backend.Work, fast bool) int64
	Pace *testhooks.Pace // set in tests instead of a measurement

	supports func(m backend.Matrix) bool // whether there are kernels for weights stored like m; nil means for all
	refused  map[string]string           // set in tests: why units cannot run on a GPU, by path
}

// Of returns the GPUs of this machine with the given kernels, or those of a test.
func Of(test *testhooks.GPUs, kernels Kernels) Tier {
	opens := func(number int, host backend.Backend) (backend.Backend, error) { return open(number, host, kernels) }
	tier := Tier{List: list, Open: opens, NoMemory: outOfMemory, Own: ownBytes, supports: supports}
	switch {
	case test != nil && test.Number > 0:
		return simulated(test, tier)
	case test != nil && test.Twice:
		return twice(tier)
	case test == nil && testhooks.HideGPUs:
		tier.List = func() ([]GPU, string) { return nil, "a test asks for GPUs" }
	}
	return tier
}

// A Conversion is the format that weights are converted to when they are loaded, and the weights
// it applies to.
type Conversion struct {
	Format meta.QuantFormat
	Params map[*meta.Param]int64
}

// of reports whether the module m reads the parameter p converted.
func (c *Conversion) of(m *meta.Module, p *meta.Param) bool {
	return c.Params[p] > 0 && m.Kind != meta.KindEmbedding
}

// Refuses returns the reason why a unit cannot run on a GPU, or "".
func (t *Tier) Refuses(u *nn.Unit, c Conversion) string {
	if why := cmp.Or(u.HostOnly, t.refused[u.Path]); why != "" {
		return why
	}
	if t.supports == nil {
		return ""
	}
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			for _, p := range m.Params {
				if why := t.refusesParam(p.Resolve(), c.of(m, p.Resolve()), c.Format); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

func (t *Tier) refusesParam(p *meta.Param, converted bool, to meta.QuantFormat) string {
	m := backend.Matrix{}
	m.DType = p.DType
	for _, s := range p.Sources {
		if s.Quant != nil {
			m.Quant = &backend.Quant{Quant: s.Quant}
		}
	}
	if converted {
		m.Quant = &backend.Quant{Quant: &meta.Quant{Format: to}}
	}
	switch {
	case t.supports(m):
		return ""
	case converted:
		return fmt.Sprintf("weights converted to %v", to)
	case m.Quant != nil:
		return fmt.Sprintf("weights in %v", m.Quant.Format)
	}
	return fmt.Sprintf("weights in %v", p.DType)
}

// UnitParams returns the parameters that a unit reads, resolved.
func UnitParams(u *nn.Unit) (list []*meta.Param) {
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			for _, p := range m.Params {
				list = append(list, p.Resolve())
			}
		}
	}
	return list
}
