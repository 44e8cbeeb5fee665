package model

import (
	"fmt"
	"iter"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Checkpoint yields the tensors of a checkpoint under the names in the model's original files. They
// are float32, except frozen parameters and buffers, which keep their dtype. It reads the elements
// when they are written.
func (m *Model) Checkpoint() (iter.Seq[loader.NamedTensor], error) {
	if m.parameters.offloads() {
		return m.unbind(new(reusedBuffer).floatsOf, asStored)
	}
	return m.unbind(floatsOf, asStored)
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

// asStored returns the elements of a parameter unchanged.
func asStored(_ string, _ meta.DType, data []byte) ([]byte, error) { return data, nil }

// floatsOf returns the bytes of a parameter's values.
func floatsOf(p *tensor.Parameter) (b []byte, err error) {
	err = p.Access(false, func(values []float32) error {
		b = floatBytes(values)
		return nil
	})
	return b, err
}

// A reusedBuffer lets all calls of floatsOf share one buffer. With a buffer per call, garbage of
// several large parameters would be in memory at once, even for a model that exceeds the memory.
type reusedBuffer struct{ buffer []byte }

// floatsOf returns the bytes of a parameter's values. They are valid until the next call.
func (r *reusedBuffer) floatsOf(p *tensor.Parameter) ([]byte, error) {
	err := p.Access(false, func(values []float32) error {
		r.buffer = appendFloats(r.buffer[:0], values)
		return nil
	})
	return r.buffer, err
}

// unbind splits the model into the tensors of a checkpoint. values returns the elements of a
// trained parameter. change may replace the elements of any parameter or buffer before they are
// split.
func (m *Model) unbind(values func(*tensor.Parameter) ([]byte, error), change func(path string, dtype meta.DType, data []byte) ([]byte, error)) (iter.Seq[loader.NamedTensor], error) {
	trained := map[string]*tensor.Parameter{}
	for name, p := range m.Parameters() {
		trained[name] = p
	}
	frozen, buffers := m.frozenAndBuffers()
	return loader.Unbind(m.meta, func(path string) (meta.DType, func() ([]byte, error)) {
		if f := frozen[path]; f != nil {
			return m.base.binding.DType(f), func() ([]byte, error) {
				dtype, data, err := m.base.binding.Values(f)
				if err != nil {
					return nil, err
				}
				return change(path, dtype, data)
			}
		}
		if b := buffers[path]; b != nil {
			dtype := m.dtypes[b]
			return dtype, func() ([]byte, error) { return change(path, dtype, bufferBytes(m.buffers[b], dtype)) }
		}
		return meta.Float32, func() ([]byte, error) {
			p := trained[path]
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

// frozenAndBuffers returns the frozen parameters and the buffers by path.
func (m *Model) frozenAndBuffers() (frozen map[string]*meta.Param, buffers map[string]*meta.Buffer) {
	frozen, buffers = map[string]*meta.Param{}, map[string]*meta.Buffer{}
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
	return frozen, buffers
}
