package dispatch

import (
	"cmp"
	"fmt"

	"github.com/heftai/heft/dispatch/internal/inside"
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// A gpuTier is what this build can do with GPUs.
type gpuTier struct {
	list func() (gpus []GPU, reason string)
	// open opens a GPU. host runs the operations that stay on the host. If open is nil, the GPU
	// is opened as the options say.
	open func(number int, host backend.Backend) (backend.Backend, error)
	// supports reports whether there are kernels for weights stored like m. nil means that all
	// are supported.
	supports func(m backend.Matrix) bool
	// own returns the maximum memory that kernels of a GPU take in addition to tensors, for
	// operands and scratch. nil means none.
	own      func(w *backend.Work, fast bool) int64
	noMemory func(err error) bool // reports whether an error says that a GPU has too little memory
	pace     *pace                // set in tests instead of a measurement
	twice    bool                 // set in tests: GPU 0 of the machine is also GPU 1
	refused  map[string]string    // set in tests: why units cannot run on a GPU, by path
}

func (o *Options) gpuTier() gpuTier {
	tier := gpuTier{list: listGPUs, supports: gpuSupports, own: gpuOwn}
	switch {
	case o.inside.GPUs != nil:
		tier = testGPUs(o.inside.GPUs)
	case inside.HideGPUs:
		tier.list = func() ([]GPU, string) { return nil, "a test asks for GPUs" }
	}
	if tier.noMemory == nil {
		tier.noMemory = gpuOutOfMemory
	}
	if tier.open == nil {
		tier.open = func(number int, host backend.Backend) (backend.Backend, error) {
			kernels := o.GPUKernels
			if o.Precision == PrecisionHigh {
				kernels = GPUKernelsExact
			}
			if tier.twice {
				number = 0
			}
			return openGPU(number, host, kernels)
		}
	}
	return tier
}

// A conversion is the format that weights are converted to when they are loaded, and the weights
// it applies to.
type conversion struct {
	format meta.QuantFormat
	params map[*meta.Param]int64
}

// conversion returns the conversion of weights on GPUs. GPUs do not use coded weights: see
// checkQuantize.
func (o *Options) conversion(loaded map[*meta.Param]int64) conversion {
	if o.coded || o.Quantize == meta.QuantNone {
		return conversion{}
	}
	return conversion{o.Quantize, loaded}
}

// of reports whether the module m reads the parameter p converted.
func (c *conversion) of(m *meta.Module, p *meta.Param) bool {
	return c.params[p] > 0 && m.Kind != meta.KindEmbedding
}

// refuses returns the reason why a unit cannot run on a GPU, or "".
func (t *gpuTier) refuses(u *nn.Unit, c conversion) string {
	if why := cmp.Or(u.HostOnly, t.refused[u.Path]); why != "" {
		return why
	}
	if t.supports == nil {
		return ""
	}
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			for _, p := range m.Params {
				if why := t.refusesParam(p.Resolve(), c.of(m, p.Resolve()), c.format); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

func (t *gpuTier) refusesParam(p *meta.Param, converted bool, to meta.QuantFormat) string {
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

// unitParams returns the parameters that a unit reads, resolved.
func unitParams(u *nn.Unit) (list []*meta.Param) {
	for _, n := range u.Modules {
		for _, m := range n.Module.Walk() {
			for _, p := range m.Params {
				list = append(list, p.Resolve())
			}
		}
	}
	return list
}
