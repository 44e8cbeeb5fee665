package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// Array is an array of a checkpoint.
type Array struct {
	Name  string
	Shape []int
	Data  []float32         // nil if the numbers are Param's
	Param *tensor.Parameter // nil if the array is not of a parameter
	// Each, if not nil, replaces Data and Param: it calls f with the numbers, some at a time.
	Each func(f func([]float32) error) error
}

// read calls f with the numbers, all at once unless Each is set.
func (x *Array) read(f func([]float32) error) error {
	if x.Each != nil {
		return x.Each(f)
	}
	if x.Data == nil && x.Param != nil {
		return x.Param.Access(false, f)
	}
	return f(x.Data)
}

// set changes the numbers to those of src. It writes only if some differ, because frozen weights
// may be in read-only memory.
func (x *Array) set(src []byte) error {
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
	case x.Data == nil && x.Param != nil:
		return x.Param.Access(true, write)
	}
	return write(x.Data)
}

// Arrays returns the arrays of a module: its parameters, with tied ones only once, or only its
// trainable ones with trainableOnly, and its buffers, if it has a method Buffers. A bare
// parameter is named weight.
func Arrays(m tensor.Module, trainableOnly bool) []Array {
	var all []Array
	seen := map[*tensor.Parameter]bool{}
	for name, p := range m.Parameters() {
		if p == nil || seen[p] || trainableOnly && !p.Trainable {
			continue
		}
		seen[p] = true
		if name == "" {
			name = "weight"
		}
		all = append(all, Array{Name: name, Shape: p.Shape(), Param: p})
	}
	if b, ok := m.(interface {
		Buffers() iter.Seq2[string, []float32]
	}); ok {
		for name, x := range b.Buffers() {
			all = append(all, Array{Name: name, Shape: []int{len(x)}, Data: x})
		}
	}
	return all
}

// pieceElements is the number of numbers converted at a time.
const pieceElements = 1 << 18

// Tensors returns the arrays in the form that the loader saves. They share one buffer: use the
// bytes of one before requesting those of the next.
func Tensors(arrays []Array) []loader.NamedTensor {
	var buf []byte
	all := make([]loader.NamedTensor, len(arrays))
	for i, x := range arrays {
		all[i] = loader.NamedTensor{Name: x.Name, DType: meta.Float32, Shape: x.Shape, Bytes: func() ([]byte, error) {
			buf = buf[:0]
			err := x.read(func(values []float32) error {
				buf = appendFloats(slices.Grow(buf, 4*len(values)), values)
				return nil
			})
			return buf, err
		}, Write: func(w io.Writer) error {
			return x.read(func(values []float32) error {
				for part := range slices.Chunk(values, pieceElements) {
					buf = appendFloats(buf[:0], part)
					if _, err := w.Write(buf); err != nil {
						return err
					}
				}
				return nil
			})
		}}
	}
	return all
}

func appendFloats(buf []byte, values []float32) []byte {
	for _, v := range values {
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
	}
	return buf
}

// ReadTensors checks that a file has exactly the given arrays, in float32 and with their shapes, and
// that its checksum is right, and returns a function that copies them. Arrays in frozen may be missing from the file.
func ReadTensors(dir, name string, arrays []Array, frozen map[string]bool) (func() error, error) {
	ck, err := loader.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer ck.Close()
	want := map[string]bool{}
	for _, x := range arrays {
		want[x.Name] = true
		t, ok := ck.Lookup(x.Name)
		switch {
		case !ok && !frozen[x.Name]:
			return nil, fmt.Errorf("%s: no tensor %q", name, x.Name)
		case ok && (t.DType != meta.Float32 || !slices.Equal(t.Shape, x.Shape)):
			return nil, fmt.Errorf("%s: tensor %q: got %v of shape %v, want float32 of shape %v", name, x.Name, t.DType, t.Shape, x.Shape)
		}
	}
	for other := range ck.Names() {
		if !want[other] && !frozen[other] {
			return nil, fmt.Errorf("%s: got tensor %q, which this module does not have", name, other)
		}
	}
	if err := Verify(dir, name); err != nil {
		return nil, err
	}
	return func() error {
		ck, err := loader.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		defer ck.Close()
		for _, x := range arrays {
			t, ok := ck.Lookup(x.Name)
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

// setFloats writes only numbers that differ, because frozen weights may be in read-only memory.
func setFloats(dst []float32, src []byte) {
	for i := range dst {
		if bits := binary.LittleEndian.Uint32(src[4*i:]); bits != math.Float32bits(dst[i]) {
			dst[i] = math.Float32frombits(bits)
		}
	}
}

// Floats returns src as float32 numbers in new memory.
func Floats(src []byte) []float32 {
	x := make([]float32, len(src)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
	return x
}
