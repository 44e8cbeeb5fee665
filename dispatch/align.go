package dispatch

import (
	"fmt"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A ModuleParam holds the values of one parameter.
type ModuleParam struct {
	Name  string // below the module
	DType meta.DType
	Shape []int
	Bytes []byte // little-endian and dense; read-only
}

// AlignModuleDevice calls f with the module's own parameters in host memory, whatever tier they
// are on (Accelerate's align_module_device). It reads parameters of the disk tier. The values are
// the checkpoint's. They are valid during f and read-only: a change would not reach the model. It
// returns an error if there is no such module or a parameter cannot be read; otherwise it returns
// f's error. It is safe for concurrent use.
func (m *Model) AlignModuleDevice(path string, f func(params []ModuleParam) error) error {
	if m.closed.Load() {
		return ErrClosed
	}
	module := m.skeleton.Root.Find(path)
	if module == nil {
		return fmt.Errorf("dispatch: align: the model has no module %q", path)
	}
	var params []ModuleParam
	for _, p := range module.Params {
		dtype, values, err := m.binding.Values(p)
		if err != nil {
			return m.weightError(path, err)
		}
		params = append(params, ModuleParam{Name: p.Name, DType: dtype, Shape: p.Resolve().Shape, Bytes: values})
	}
	return f(params)
}

// An OffloadHook frees the weights of a model between its uses, in a pipeline of models that do
// not fit into memory together (Accelerate's UserCpuOffloadHook).
type OffloadHook struct {
	model  *Model
	handle *HookHandle
}

// CPUOffloadWithHook is [CPUOffload] for one model of a pipeline of models that do not fit into
// memory together (Accelerate's cpu_offload_with_hook). The model's weights stay in memory from
// one pass to the next. When the model begins a pass, it frees the weights of the preceding
// model, whose hook is previous. For the first model previous is nil. Call [OffloadHook.Offload]
// yourself after the last model. CPUOffloadWithHook reads no weight.
//
// All models of a pipeline must be used from one goroutine.
func CPUOffloadWithHook(skeleton *meta.Model, checkpoint *loader.Checkpoint, o Options, previous *OffloadHook) (*Model, *OffloadHook, error) {
	m, err := CPUOffload(skeleton, checkpoint, o)
	if err != nil {
		return nil, nil, err
	}
	h := &OffloadHook{model: m}
	h.handle, err = m.AddHook(Hook{Paths: m.Units()[:1], Pre: func(*ModuleCall) error {
		m.setOffloaded(false)
		if previous == nil {
			return nil
		}
		return previous.Offload()
	}})
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, h, nil
}

// Offload frees the memory of the model's weights: mapped pages, and copies that [Model.Promote] or
// Options.Quantize made. The KV cache and activations stay. The next pass reads the weights again,
// from the page cache if they are still in it, and converts them again; promoted weights come back in
// the background. Results stay bitwise the same. Call it between passes.
func (h *OffloadHook) Offload() error {
	h.model.setOffloaded(true)
	for _, f := range h.model.checkpoint.Files() {
		if err := f.Advise(0, f.Size, loader.DontNeed); err != nil {
			return fmt.Errorf("dispatch: offload: %w", err)
		}
	}
	return nil
}

// Remove ends the hook: the model neither offloads the one before it nor restores its own promoted
// weights.
func (h *OffloadHook) Remove() { h.handle.Remove() }
