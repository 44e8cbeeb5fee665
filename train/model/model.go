package model

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Model is a module tree with parameters. Its passes share nothing but the parameters,
// so it may be on several tapes; those that run Backward at once must not be.
type Model struct {
	meta   *meta.Model
	spec   *meta.CausalLMSpec
	names  []string
	params map[*meta.Param]*tensor.Parameter
	// auxiliary is the weight of the routers' loss in Loss, 0 for none.
	auxiliary float32
}

// New makes a model whose parameters are zeros. The error names the module that has no
// rule.
func New(m *meta.Model) (*Model, error) {
	spec, ok := m.Root.Spec.(*meta.CausalLMSpec)
	if !ok {
		return nil, fmt.Errorf("model: the root is no language model but %v", m.Root.Kind)
	}
	model := &Model{meta: m, spec: spec, params: map[*meta.Param]*tensor.Parameter{}}
	for path, node := range m.Root.Walk() {
		if node.SameAs != nil {
			continue
		}
		if err := check(node); err != nil {
			return nil, fmt.Errorf("model: %s: %w", path, err)
		}
		for _, p := range node.Params {
			if p.SameAs == nil {
				model.names = append(model.names, meta.Join(path, p.Name))
				model.params[p] = tensor.NewParameter(make([]float32, p.Elements()), p.Shape...)
			}
		}
	}
	if m.Config != nil && m.Config.Field("output_router_logits") == true {
		model.auxiliary = number(m.Config.Field("router_aux_loss_coef"), 0.001)
	}
	return model, nil
}

// number is a field of a config, which may have several JSON types.
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

// Load is New with the values of a checkpoint, widened to float32.
func Load(m *meta.Model, b *loader.Binding) (*Model, error) {
	model, err := New(m)
	if err != nil {
		return nil, err
	}
	for p, to := range model.params {
		dtype, data, err := b.Values(p)
		if err == nil {
			err = widen(to.Data, data, dtype)
		}
		if err != nil {
			return nil, fmt.Errorf("model: %w", err)
		}
	}
	return model, nil
}

// widen converts elements of a checkpoint to float32, exactly.
func widen(dst []float32, src []byte, dtype meta.DType) error {
	if int64(len(src)) != dtype.Bytes(int64(len(dst))) {
		return fmt.Errorf("%d bytes of %v for %d elements", len(src), dtype, len(dst))
	}
	for i := range dst {
		switch dtype {
		case meta.Float32:
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		case meta.BFloat16:
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		case meta.Float16:
			dst[i] = half(binary.LittleEndian.Uint16(src[2*i:]))
		default:
			return fmt.Errorf("%v cannot be trained", dtype)
		}
	}
	return nil
}

// half is a float16's value.
func half(h uint16) float32 {
	exponent, fraction := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(fraction, -24) // subnormal
	switch {
	case exponent == 31 && fraction != 0:
		v = math.NaN()
	case exponent == 31:
		v = math.Inf(1)
	case exponent > 0:
		v = math.Ldexp(fraction+1024, exponent-25)
	}
	if h&0x8000 != 0 {
		v = -v
	}
	return float32(v)
}

// Parameters are the model's parameters by path, in the tree's order, tied ones once.
func (m *Model) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		i := 0
		for _, node := range m.meta.Root.Walk() {
			if node.SameAs != nil {
				continue
			}
			for _, p := range node.Params {
				if p.SameAs != nil {
					continue
				}
				if !yield(m.names[i], m.params[p]) {
					return
				}
				i++
			}
		}
	}
}

// Meta is the skeleton.
func (m *Model) Meta() *meta.Model { return m.meta }

// SetAuxiliary sets the weight of the routers' balance in Loss. It begins as the config
// says: router_aux_loss_coef where output_router_logits is true, else 0.
func (m *Model) SetAuxiliary(weight float32) { m.auxiliary = weight }

// Checkpoint yields the parameters as the tensors of a checkpoint, float32, under the
// names of the files the model came from. The elements are read when they are written.
func (m *Model) Checkpoint() (iter.Seq[loader.NamedTensor], error) {
	return m.unbind(func(p *tensor.Parameter) []float32 { return p.Data })
}

// Gradients yields the gradients under the checkpoint's names; zeros where there is none.
func (m *Model) Gradients() (iter.Seq[loader.NamedTensor], error) {
	return m.unbind(func(p *tensor.Parameter) []float32 {
		if p.Grad == nil {
			return make([]float32, len(p.Data))
		}
		return p.Grad
	})
}

func (m *Model) unbind(values func(*tensor.Parameter) []float32) (iter.Seq[loader.NamedTensor], error) {
	byName := map[string]*tensor.Parameter{}
	for name, p := range m.Parameters() {
		byName[name] = p
	}
	return loader.Unbind(m.meta, func(path string) (meta.DType, func() ([]byte, error)) {
		return meta.Float32, func() ([]byte, error) {
			p := byName[path]
			if p == nil {
				return nil, fmt.Errorf("model: %s is no parameter", path)
			}
			v := values(p)
			b := make([]byte, 0, 4*len(v))
			for _, x := range v {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			return b, nil
		}
	})
}
