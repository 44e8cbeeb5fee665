package checkpoint

import (
	"encoding/json"
	"fmt"
	"unsafe"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// optimizerState is the metadata of an optimizer's file. Its tensors are named N.SLOT for
// parameter number N.
type optimizerState struct {
	Rule   string             `json:"rule"`
	Groups []optim.GroupState `json:"param_groups"`
	Steps  []int64            `json:"steps"`
}

const optimizerKey = "optimizer"

// WriteOptimizer writes the state of an optimizer. It returns an error if the optimizer is not an
// optim.Stateful.
func (f *Folder) WriteOptimizer(name string, o optim.Optimizer) error {
	s, ok := o.(optim.Stateful)
	if !ok {
		return fmt.Errorf("a %T cannot be saved", o)
	}
	state := s.State()
	head := optimizerState{Rule: state.Rule, Groups: state.Groups}
	var params []optim.Param
	for _, g := range o.Groups() {
		params = append(params, g.Params...)
	}
	var arrays []Array
	for i, p := range state.Params {
		head.Steps = append(head.Steps, p.Step)
		for _, slot := range p.Names() {
			x := Array{Name: fmt.Sprintf("%d.%s", i, slot), Shape: []int{p.Len(slot)}, Each: func(f func([]float32) error) error {
				return p.Each(slot, func(_ int, values []float32) error { return f(values) })
			}}
			if i < len(params) {
				if t := whole(params[i]); t != nil && t.Len() == p.Len(slot) {
					x.Shape = t.Shape()
				}
			}
			arrays = append(arrays, x)
		}
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return f.WriteTensors(name, arrays, map[string]string{optimizerKey: string(b)})
}

// whole returns the parameter that an optimizer steps, or steps a part of, or nil.
func whole(p optim.Param) *tensor.Parameter {
	switch p := p.(type) {
	case *tensor.Parameter:
		return p
	case interface{ Of() *tensor.Parameter }:
		return p.Of()
	}
	return nil
}

// ReadOptimizer reads a file written by [Folder.WriteOptimizer] and calls f with the state. The
// slots are in the mapped file, so f must not retain them.
func ReadOptimizer(path string, f func(optim.OptimizerState) error) error {
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	var head optimizerState
	if err := json.Unmarshal([]byte(ck.Metadata()[optimizerKey]), &head); err != nil {
		return fmt.Errorf("want the state of an optimizer: %w", err)
	}
	s := optim.OptimizerState{Rule: head.Rule, Groups: head.Groups, Params: make([]optim.ParamState, len(head.Steps))}
	for i, step := range head.Steps {
		s.Params[i] = optim.ParamState{Step: step, Slots: map[string][]float32{}}
	}
	for t := range ck.Tensors() {
		var i int
		var slot string
		if n, _ := fmt.Sscanf(t.Name, "%d.%s", &i, &slot); n != 2 || i < 0 || i >= len(s.Params) || t.DType != meta.Float32 {
			return fmt.Errorf("got tensor %q of %v, want N.SLOT in float32", t.Name, t.DType)
		}
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		s.Params[i].Slots[slot] = viewFloats(b)
	}
	return f(s)
}

// viewFloats returns src as numbers, in place if they are aligned.
func viewFloats(src []byte) []float32 {
	p := unsafe.SliceData(src)
	if len(src) == 0 || uintptr(unsafe.Pointer(p))%4 != 0 {
		return Floats(src)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), len(src)/4)
}
