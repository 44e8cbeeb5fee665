package train

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// Buffered is a [Module] with numbers beside its parameters that are part of what it is,
// such as the running moments of a batch norm. Checkpoints hold them under their names.
type Buffered interface {
	Module
	Buffers() iter.Seq2[string, []float32]
}

// namedFloats is an array of a checkpoint.
type namedFloats struct {
	name  string
	shape []int
	data  []float32         // nil for the numbers of param
	param *tensor.Parameter // nil for arrays that are not of a parameter
}

// read calls f with the numbers.
func (x *namedFloats) read(f func([]float32) error) error {
	if x.data == nil && x.param != nil {
		return x.param.Access(false, f)
	}
	return f(x.data)
}

// set changes the numbers to those of src. It writes only if some are different: frozen weights may
// be in memory that cannot be written.
func (x *namedFloats) set(src []byte) error {
	differ := false
	err := x.read(func(values []float32) error {
		for i, v := range values {
			if binary.LittleEndian.Uint32(src[4*i:]) != math.Float32bits(v) {
				differ = true
				break
			}
		}
		return nil
	})
	write := func(values []float32) error { setFloats(values, src); return nil }
	switch {
	case err != nil || !differ:
		return err
	case x.data == nil && x.param != nil:
		return x.param.Access(true, write)
	}
	return write(x.data)
}

// weights are the arrays of a module, tied ones once. A bare parameter is called weight.
func (a *Accelerator) weights(m Module) []namedFloats {
	return moduleArrays(m, a.project.SkipFrozen)
}

func moduleArrays(m Module, trainableOnly bool) []namedFloats {
	var all []namedFloats
	seen := map[*tensor.Parameter]bool{}
	for name, p := range m.Parameters() {
		if p == nil || seen[p] || trainableOnly && !p.Trainable {
			continue
		}
		seen[p] = true
		if name == "" {
			name = "weight"
		}
		all = append(all, namedFloats{name: name, shape: p.Shape(), param: p})
	}
	if b, ok := m.(Buffered); ok {
		for name, x := range b.Buffers() {
			all = append(all, namedFloats{name: name, shape: []int{len(x)}, data: x})
		}
	}
	return all
}

func frozenOf(p *prepared) map[string]bool {
	frozen := map[string]bool{}
	for name, param := range p.module.Parameters() {
		if !param.Trainable {
			frozen[name] = true
		}
	}
	return frozen
}

// toSave gives arrays to the loader, through one buffer.
func toSave(arrays []namedFloats) []loader.NamedTensor {
	var buf []byte
	all := make([]loader.NamedTensor, len(arrays))
	for i, x := range arrays {
		all[i] = loader.NamedTensor{Name: x.name, DType: meta.Float32, Shape: x.shape, Bytes: func() ([]byte, error) {
			err := x.read(func(values []float32) error {
				buf = slices.Grow(buf[:0], 4*len(values))
				for _, v := range values {
					buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
				}
				return nil
			})
			return buf, err
		}}
	}
	return all
}

// readTensors looks whether a file has exactly the arrays it should, and returns what
// copies them. Arrays in frozen may be in the file or not.
func readTensors(r *reading, name string, arrays []namedFloats, frozen map[string]bool) (func() error, error) {
	ck, err := loader.Open(filepath.Join(r.dir, name))
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	want := map[string]bool{}
	for _, x := range arrays {
		want[x.name] = true
		t, ok := ck.Lookup(x.name)
		switch {
		case !ok && !frozen[x.name]:
			return nil, fmt.Errorf("%s: no tensor %q", name, x.name)
		case ok && (t.DType != meta.Float32 || !slices.Equal(t.Shape, x.shape)):
			return nil, fmt.Errorf("%s: tensor %q is %v of shape %v, want float32 of %v", name, x.name, t.DType, t.Shape, x.shape)
		}
	}
	for other := range ck.Names() {
		if !want[other] && !frozen[other] {
			return nil, fmt.Errorf("%s: tensor %q is not of this module", name, other)
		}
	}
	return func() error {
		ck, err := loader.Open(filepath.Join(r.dir, name))
		if err != nil {
			return err
		}
		defer ck.Close()
		for _, x := range arrays {
			t, ok := ck.Lookup(x.name)
			if !ok {
				continue
			}
			b, err := t.Bytes()
			if err != nil {
				return err
			}
			if err := x.set(b); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// setFloats writes only what is different: frozen weights may lie where nobody may write.
func setFloats(dst []float32, src []byte) {
	for i := range dst {
		if bits := binary.LittleEndian.Uint32(src[4*i:]); bits != math.Float32bits(dst[i]) {
			dst[i] = math.Float32frombits(bits)
		}
	}
}

func floatsOf(src []byte) []float32 {
	x := make([]float32, len(src)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	return x
}

// optimizerState is what a file of an optimizer says beside its tensors, which are
// called PARAMETER.SLOT, parameters by their number.
type optimizerState struct {
	Rule   string             `json:"rule"`
	Groups []optim.GroupState `json:"param_groups"`
	Steps  []int64            `json:"steps"`
}

const optimizerKey = "optimizer"

func (a *Accelerator) writeOptimizer(f *aside, name string, o *optim.Prepared) error {
	s, ok := o.Optimizer.(optim.Stateful)
	if !ok {
		return fmt.Errorf("a %T cannot be saved", o.Optimizer)
	}
	state := s.State()
	head := optimizerState{Rule: state.Rule, Groups: state.Groups}
	var params []optim.Param
	for _, g := range o.Groups() {
		params = append(params, g.Params...)
	}
	var arrays []namedFloats
	for i, p := range state.Params {
		head.Steps = append(head.Steps, p.Step)
		for _, slot := range slices.Sorted(maps.Keys(p.Slots)) {
			x := namedFloats{name: fmt.Sprintf("%d.%s", i, slot), shape: []int{len(p.Slots[slot])}, data: p.Slots[slot]}
			if i < len(params) {
				if p, ok := params[i].(*tensor.Parameter); ok && p.Len() == len(x.data) {
					x.shape = p.Shape()
				}
			}
			arrays = append(arrays, x)
		}
	}
	b, err := json.Marshal(head)
	if err != nil {
		return err
	}
	return a.writeTensors(f, name, arrays, map[string]string{optimizerKey: string(b)})
}

// withOptimizer reads a file of an optimizer and gives f the state, whose slots lie in the
// mapped file and end with f: they take no memory beside what f makes of them.
func withOptimizer(path string, f func(optim.State) error) error {
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	var head optimizerState
	if err := json.Unmarshal([]byte(ck.Metadata()[optimizerKey]), &head); err != nil {
		return fmt.Errorf("is no state of an optimizer: %w", err)
	}
	s := optim.State{Rule: head.Rule, Groups: head.Groups, Params: make([]optim.ParamState, len(head.Steps))}
	for i, step := range head.Steps {
		s.Params[i] = optim.ParamState{Step: step, Slots: map[string][]float32{}}
	}
	for t := range ck.Tensors() {
		var i int
		var slot string
		if n, _ := fmt.Sscanf(t.Name, "%d.%s", &i, &slot); n != 2 || i < 0 || i >= len(s.Params) || t.DType != meta.Float32 {
			return fmt.Errorf("tensor %q, a %v, is of no parameter", t.Name, t.DType)
		}
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		s.Params[i].Slots[slot] = viewFloats(b)
	}
	return f(s)
}

// viewFloats is src as numbers, where they are if they are aligned.
func viewFloats(src []byte) []float32 {
	p := unsafe.SliceData(src)
	if len(src) == 0 || uintptr(unsafe.Pointer(p))%4 != 0 {
		return floatsOf(src)
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(p)), len(src)/4)
}

// writeGradients saves this rank's gradients of a window that has not ended.
func (a *Accelerator) writeGradients(f *aside) error {
	if a.state.ended || a.state.window == 0 {
		return nil
	}
	var arrays []namedFloats
	for _, g := range a.gradients() {
		if g.param.Grad() != nil {
			g.data = g.param.Grad()
			arrays = append(arrays, g)
		}
	}
	return a.writeTensors(f, gradientsFile(a.comm.Rank()), arrays, nil)
}

// gradients are the trainable parameters, under names that no two have.
func (a *Accelerator) gradients() []namedFloats {
	var all []namedFloats
	for i, p := range a.modules {
		for j, param := range p.params {
			if param.Trainable {
				all = append(all, namedFloats{name: fmt.Sprintf("%d.%d", i, j), shape: param.Shape(), param: param})
			}
		}
	}
	return all
}

func (a *Accelerator) readGradients(r *reading) error {
	path := filepath.Join(r.dir, gradientsFile(a.comm.Rank()))
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	ck, err := loader.Open(path)
	if err != nil {
		return err
	}
	defer ck.Close()
	for _, g := range a.gradients() {
		t, ok := ck.Lookup(g.name)
		if !ok {
			r.then(func() error { g.param.ZeroGrad(); return nil })
			continue
		}
		b, err := t.Bytes()
		if err != nil {
			return err
		}
		if t.DType != meta.Float32 || len(b) != 4*g.param.Len() {
			return fmt.Errorf("%s: tensor %q has %d bytes, want %d", filepath.Base(path), g.name, len(b), 4*g.param.Len())
		}
		grad := floatsOf(b)
		r.then(func() error { g.param.SetGrad(grad); return nil })
	}
	return nil
}
