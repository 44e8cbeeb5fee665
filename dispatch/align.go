package dispatch

import (
	"fmt"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// A ModuleParam is a parameter's values.
type ModuleParam struct {
	Name  string // below the module
	DType meta.DType
	Shape []int
	Bytes []byte // little-endian and dense; read-only
}

// AlignModuleDevice calls f with the module's own parameters in host memory, wherever they live
// (Accelerate's align_module_device). Parameters of the disk tier are read for it. The values are
// those of the checkpoint, valid during f and not to be written: a change would not reach the
// model. It fails if there is no such module or a parameter cannot be read, else with f's error.
// Any goroutine may call it.
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

// An OffloadHook frees the weights of a model between its uses, in a pipeline of several models that
// do not fit into memory together (Accelerate's UserCpuOffloadHook).
type OffloadHook struct {
	model  *Model
	handle *HookHandle
}

// CPUOffloadWithHook is [CPUOffload] for one model of a pipeline of several that do not fit into memory
// together (Accelerate's cpu_offload_with_hook). The model's weights stay in memory from one pass to the
// next. When the model begins a pass, it frees the weights of the model before it, whose hook is
// previous; previous is nil for the first model. After the last model call [OffloadHook.Offload]
// yourself. It reads no weight.
//
// One goroutine uses all models of a pipeline.
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
