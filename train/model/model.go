package model

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"

	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/internal/residency"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Model is a module tree with parameters. Its passes share only the parameters. Several tapes may
// use it concurrently, but two Backward calls must not overlap.
//
// It reuses the memory and the threads of passes until Close, or until it is garbage-collected.
type Model struct {
	meta    *meta.Model
	spec    *meta.CausalLMSpec
	program *nn.Program
	names   []string // paths of the trained parameters, in the tree's order
	*parameters
	sessions *sessions
	// auxiliary is the weight of the routers' loss in Loss; 0 means none.
	auxiliary float32
	logitRows int // of LogitRows; 0 means no limit
	// activations is the value of Activations.
	activations residency.ChangingOptions
	draws       atomic.Int32 // what passes have shown; see noteDraws
}

// ErrServedOnly is returned for multi-token prediction modules, which read hidden states of their
// model.
var ErrServedOnly = errors.New("model: a part of this model cannot be trained yet; serve runs it")

// New makes a model whose parameters are zeros. If training does not support a module, the error
// names it.
func New(m *meta.Model) (*Model, error) { return build(m, nil) }

// Load makes a model with the values of a checkpoint, converted to float32.
func Load(m *meta.Model, b *loader.Binding, options ...Option) (*Model, error) {
	if b == nil {
		return nil, errors.New("model: load: got a nil binding")
	}
	return build(m, b, options...)
}

// build makes a model with the values of b, or zeros if b is nil.
func build(m *meta.Model, b *loader.Binding, list ...Option) (*Model, error) {
	if m == nil {
		return nil, errors.New("model: got a nil skeleton")
	}
	spec, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return nil, fmt.Errorf("model: got a root of kind %v, want a causal language model", m.Root.Kind)
	}
	program, err := nn.Compile(m.Root)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := trainable(program); err != nil {
		return nil, err
	}
	var o options
	for _, set := range list {
		if set == nil {
			return nil, errors.New("model: got a nil option")
		}
		set(&o)
	}
	ps, err := newParameters(m, program, b, o)
	if err != nil {
		ps.close()
		return nil, err
	}
	model := &Model{meta: m, spec: spec, program: program, parameters: ps, sessions: &sessions{}, names: ps.paths(m.Root), logitRows: o.logitRows, activations: o.activations}
	if m.Config != nil && m.Config.Field("output_router_logits") == true {
		model.auxiliary = number(m.Config.Field("router_aux_loss_coef"), 0.001)
	}
	runtime.AddCleanup(model, (*sessions).retire, model.sessions)
	if ps.base != nil {
		runtime.AddCleanup(model, (*base).close, ps.base)
	}
	return model, nil
}

// trainable returns an error if training does not support a part of a program.
func trainable(program *nn.Program) error {
	if part := program.Untrained(); part != "" {
		return fmt.Errorf("%w: %s", ErrServedOnly, part)
	}
	return nil
}

// paths returns the paths of the trained parameters in the tree's order. A tied parameter occurs
// once.
func (ps *parameters) paths(root *meta.Module) (list []string) {
	for path, node := range root.Walk() {
		for _, p := range node.Params {
			if node.SameAs == nil && ps.trained[p] != nil {
				list = append(list, meta.Join(path, p.Name))
			}
		}
	}
	return list
}

// Close releases the memory and the threads of passes. No pass may be in progress.
func (m *Model) Close() error {
	err := m.sessions.close()
	m.parameters.close()
	return err
}

// number returns v, a field of a config, as a number. If v is not a number, it returns otherwise.
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

// Parameters yields the model's parameters by path in the tree's order, tied ones once. It omits
// those that are frozen in the checkpoint. Then it yields the parameters of an adapter, A and B of
// each pair.
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
// router's scores. They are not trained. It omits integers, such as the factors of hashes. A model
// with frozen parameters yields none, because its checkpoint is not a complete model.
func (m *Model) Buffers() iter.Seq2[string, []float32] {
	return func(yield func(string, []float32) bool) {
		if m.base != nil {
			return
		}
		for path, node := range m.meta.Root.Walk() {
			for _, b := range node.Buffers {
				if b.Persistent && !isInteger(m.dtypes[b]) && !yield(meta.Join(path, b.Name), m.buffers[b].F32()) {
					return
				}
			}
		}
	}
}

// Meta returns the model's skeleton.
func (m *Model) Meta() *meta.Model { return m.meta }

// SetAuxiliary sets the weight of the routers' load-balancing loss in Loss. The default is the
// config's router_aux_loss_coef if output_router_logits is true, and otherwise 0.
func (m *Model) SetAuxiliary(weight float32) { m.auxiliary = weight }
