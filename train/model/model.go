package model

import (
	"errors"
	"fmt"
	"iter"
	"runtime"

	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Model is a module tree with parameters. Its passes share only the parameters, so several tapes
// may use it, but two Backward calls must not overlap.
//
// It reuses the memory and the threads of passes until Close or until it is garbage-collected.
type Model struct {
	meta    *meta.Model
	spec    *meta.CausalLMSpec
	program *nn.Program
	names   []string
	*parameters
	sessions *sessions
	// auxiliary is the weight of the routers' loss in Loss; 0 means none.
	auxiliary float32
}

// ErrRouting is returned for models whose routers draw experts at random in training, as phimoe's.
var ErrRouting = errors.New("model: the routers of this model draw experts at random in training (sparsemixer), which is not supported; serve runs it")

// ErrServedOnly is returned for models with parts that have no gradient yet; the error names the part.
var ErrServedOnly = errors.New("model: a part of this model cannot be trained yet; serve runs it")

// New makes a model whose parameters are zeros. If a module is unsupported, the error names it.
func New(m *meta.Model) (*Model, error) { return build(m, nil) }

func build(m *meta.Model, b *loader.Binding, options ...Option) (*Model, error) {
	spec, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return nil, fmt.Errorf("model: got a root of kind %v, want a causal language model", m.Root.Kind)
	}
	program, err := nn.Compile(m.Root)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if part := program.Untrained(); part != "" {
		return nil, fmt.Errorf("%w: %s", ErrServedOnly, part)
	}
	for _, node := range m.Root.Walk() {
		if s, ok := node.Spec.(*meta.MoESpec); ok && s.Score == meta.ScoreSparseMixer {
			return nil, ErrRouting
		}
	}
	var o choices
	for _, f := range options {
		f(&o)
	}
	ps, err := newParameters(m, program, b, o)
	if err != nil {
		ps.close()
		return nil, err
	}
	model := &Model{meta: m, spec: spec, program: program, parameters: ps, sessions: &sessions{}}
	for path, node := range m.Root.Walk() {
		for _, p := range node.Params {
			if node.SameAs == nil && ps.trained[p] != nil {
				model.names = append(model.names, meta.Join(path, p.Name))
			}
		}
	}
	if m.Config != nil && m.Config.Field("output_router_logits") == true {
		model.auxiliary = number(m.Config.Field("router_aux_loss_coef"), 0.001)
	}
	runtime.AddCleanup(model, (*sessions).retire, model.sessions)
	if ps.base != nil {
		runtime.AddCleanup(model, (*base).close, ps.base)
	}
	return model, nil
}

// Close releases the memory and the threads of passes. No pass may be running.
func (m *Model) Close() error {
	err := m.sessions.close()
	m.parameters.close()
	return err
}

// number returns a field of a config, which may have several JSON types.
func number(v any, otherwise float32) float32 {
	switch v := v.(type) {
	case float64:
		return float32(v)
	case interface{ Float64() (float64, error) }:
		if f, err := v.Float64(); err == nil {
			return float32(f)
		}
	}
	return otherwise
}

// Load makes a model with the values of a checkpoint, widened to float32.
func Load(m *meta.Model, b *loader.Binding, options ...Option) (*Model, error) {
	return build(m, b, options...)
}

// Option configures [Load].
type Option func(*choices)

type choices struct {
	freeze   func(path string) bool
	place    placement
	quantize meta.QuantFormat
	// offload configures where trained parameters are; nil for memory.
	offload *residency.ChangingOptions
}

// Freeze leaves parameters in the checkpoint if frozen returns true for their path. Passes use them
// in place and in their dtype, quantised ones too. They take only the file's pages, get no gradient,
// and are not among [Model.Parameters]. Keep the checkpoint open as long as the model is used.
func Freeze(frozen func(path string) bool) Option {
	return func(c *choices) { c.freeze = frozen }
}

// Quantize converts the frozen matrices of linear maps and experts before their first use: to
// [meta.QuantQ8] or [meta.QuantQ4], as serve's --quantize does, or all but the head to
// [meta.QuantBnbNF4] with blocks of 64, as bitsandbytes does. They are then in memory, in that format.
// Passes dequantise them to float32. It excludes [MaxMemory] and [DeviceMap].
func Quantize(format meta.QuantFormat) Option { return func(c *choices) { c.quantize = format } }

// Parameters yields the model's parameters by path in the tree's order, tied ones once. It omits
// those that are frozen in the checkpoint. Then it yields those of an adapter, each pair's A and B.
func (m *Model) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		i := 0
		for _, node := range m.meta.Root.Walk() {
			if node.SameAs != nil {
				continue
			}
			for _, p := range node.Params {
				if m.trained[p] == nil {
					continue
				}
				if !yield(m.names[i], m.trained[p]) {
					return
				}
				i++
			}
		}
		if m.adapter == nil {
			return
		}
		for i, p := range m.adapter.params {
			if !yield(m.adapter.names[i], p) {
				return
			}
		}
	}
}

// Buffers yields the checkpoint's values that are not parameters, by path, such as the bias of a
// router's scores. They are not trained. A model with frozen parameters yields none, because its
// checkpoint is not a whole model.
func (m *Model) Buffers() iter.Seq2[string, []float32] {
	return func(yield func(string, []float32) bool) {
		if m.base != nil {
			return
		}
		for path, node := range m.meta.Root.Walk() {
			for _, b := range node.Buffers {
				if b.Persistent && !yield(meta.Join(path, b.Name), m.buffers[b].F32()) {
					return
				}
			}
		}
	}
}

// Meta returns the model's skeleton.
func (m *Model) Meta() *meta.Model { return m.meta }

// SetAuxiliary sets the weight of the routers' load-balancing loss in Loss. The default is the
// config's router_aux_loss_coef if output_router_logits is true, else 0.
func (m *Model) SetAuxiliary(weight float32) { m.auxiliary = weight }

// Checkpoint yields the tensors of a checkpoint under the names in the model's original files. They
// are float32, except frozen parameters and buffers, which keep their dtype. It reads the elements
// when they are written.
func (m *Model) Checkpoint() (iter.Seq[loader.NamedTensor], error) {
	if m.parameters.offloads() {
		return m.unbind(new(reused).numbers, asItIs)
	}
	return m.unbind(numbers, asItIs)
}

// Gradients yields the gradients under the checkpoint's names. A missing gradient is zeros.
func (m *Model) Gradients() (iter.Seq[loader.NamedTensor], error) {
	trained := map[string]bool{}
	for name := range m.Parameters() {
		trained[name] = true
	}
	return m.unbind(func(p *tensor.Parameter) ([]byte, error) {
		if !p.HasGrad() {
			return make([]byte, 4*p.Len()), nil
		}
		var b []byte
		err := p.AccessGrad(false, func(g []float32) error { b = floatBytes(g); return nil })
		return b, err
	}, func(path string, _ meta.DType, data []byte) ([]byte, error) {
		if !trained[path] {
			return make([]byte, len(data)), nil
		}
		return data, nil
	})
}

func asItIs(_ string, _ meta.DType, data []byte) ([]byte, error) { return data, nil }

// numbers returns the bytes of a parameter's values.
func numbers(p *tensor.Parameter) (b []byte, err error) {
	err = p.Access(false, func(values []float32) error {
		b = floatBytes(values)
		return nil
	})
	return b, err
}

// reused is numbers in one buffer, for models that are written because they do not fit into memory: the
// collector would keep a copy of several large parameters.
type reused struct{ buffer []byte }

func (r *reused) numbers(p *tensor.Parameter) ([]byte, error) {
	err := p.Access(false, func(values []float32) error {
		r.buffer = appendFloats(r.buffer[:0], values)
		return nil
	})
	return r.buffer, err
}

// unbind splits values into the tensors of a checkpoint. change converts a parameter's elements.
func (m *Model) unbind(values func(*tensor.Parameter) ([]byte, error), change func(path string, dtype meta.DType, data []byte) ([]byte, error)) (iter.Seq[loader.NamedTensor], error) {
	byName := map[string]*tensor.Parameter{}
	for name, p := range m.Parameters() {
		byName[name] = p
	}
	frozen, buffers := map[string]*meta.Param{}, map[string]*meta.Buffer{}
	for path, node := range m.meta.Root.Walk() {
		for _, p := range node.Params {
			if m.base != nil && m.base.frozen[p] {
				frozen[meta.Join(path, p.Name)] = p
			}
		}
		for _, b := range node.Buffers {
			buffers[meta.Join(path, b.Name)] = b
		}
	}
	return loader.Unbind(m.meta, func(path string) (meta.DType, func() ([]byte, error)) {
		if f := frozen[path]; f != nil {
			return m.base.binding.Tensors(f)[0].Tensor.DType, func() ([]byte, error) {
				dtype, data, err := m.base.binding.Values(f)
				if err != nil {
					return nil, err
				}
				return change(path, dtype, data)
			}
		}
		if b := buffers[path]; b != nil {
			dtype := m.dtypes[b]
			return dtype, func() ([]byte, error) { return change(path, dtype, narrow(m.buffers[b].F32(), dtype)) }
		}
		return meta.Float32, func() ([]byte, error) {
			p := byName[path]
			if p == nil {
				return nil, fmt.Errorf("model: %s is not a parameter", path)
			}
			b, err := values(p)
			if err != nil {
				return nil, err
			}
			return change(path, meta.Float32, b)
		}
	})
}
