package loader

import (
	"bytes"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// pathValues puts b's values under the paths of its model.
func pathValues(b *Binding, model *meta.Model) func(string) (meta.DType, func() ([]byte, error)) {
	found := map[string]func() (meta.DType, []byte, error){}
	for path, m := range model.Root.Walk() {
		for _, p := range m.Params {
			found[meta.Join(path, p.Name)] = func() (meta.DType, []byte, error) { return b.Values(p) }
		}
		for _, buf := range m.Buffers {
			found[meta.Join(path, buf.Name)] = func() (meta.DType, []byte, error) { return b.BufferValues(buf) }
		}
	}
	return func(path string) (meta.DType, func() ([]byte, error)) {
		dtype, data, err := found[path]()
		return dtype, func() ([]byte, error) { return data, err }
	}
}

func TestValuesAndUnbind(t *testing.T) {
	tensors := []NamedTensor{
		raw("e.0.gate", meta.BFloat16, 2, 3), raw("e.1.gate", meta.BFloat16, 2, 3),
		raw("e.0.up", meta.BFloat16, 2, 3), raw("e.1.up", meta.BFloat16, 2, 3),
		raw("qkv", meta.Float32, 6, 4), raw("conv", meta.Float32, 4, 6), raw("embed", meta.Float16, 3, 2), raw("count", meta.Int64),
		raw("gates", meta.BFloat16, 2, 1, 3), raw("ups", meta.BFloat16, 2, 3, 2),
	}
	embed := param("embed", meta.Float16, []int{3, 2}, meta.TensorSource{Tensor: "embed"})
	root := module("",
		param("experts", meta.BFloat16, []int{2, 4, 3},
			meta.TensorSource{Tensor: "e.{}.gate", Stack: 2, Into: meta.RowRange{Begin: 0, End: 2}},
			meta.TensorSource{Tensor: "e.{}.up", Stack: 2, Into: meta.RowRange{Begin: 2, End: 4}}),
		param("kv", meta.Float32, []int{4, 4}, meta.TensorSource{Tensor: "qkv", From: meta.RowRange{Begin: 2, End: 6}}),
		param("q", meta.Float32, []int{2, 4}, meta.TensorSource{Tensor: "qkv", From: meta.RowRange{Begin: 0, End: 2}}),
		param("conv", meta.Float32, []int{6, 4}, meta.TensorSource{Tensor: "conv", Transposed: true}),
		param("slabs", meta.BFloat16, []int{2, 3, 3},
			meta.TensorSource{Tensor: "gates", Slabs: true, Into: meta.RowRange{Begin: 0, End: 1}},
			meta.TensorSource{Tensor: "ups", Slabs: true, Into: meta.RowRange{Begin: 1, End: 3}, Transposed: true}),
		embed, &meta.Param{Name: "head", Shape: embed.Shape, DType: embed.DType, SameAs: embed})
	root.Buffers = []*meta.Buffer{{Name: "count", DType: meta.Int64, Persistent: true}}
	model := &meta.Model{Root: root}
	b, err := Bind(inMemory(t, tensors...), model)
	if err != nil {
		t.Fatal(err)
	}
	_, experts, err := b.Values(root.Params[0])
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, i := range []int{0, 2, 1, 3} {
		data, _ := tensors[i].Bytes()
		want = append(want, data...)
	}
	if !bytes.Equal(experts, want) {
		t.Errorf("experts % x, want % x", experts, want)
	}
	_, flipped, err := b.Values(root.Params[3])
	stored, _ := tensors[5].Bytes()
	if err != nil || !bytes.Equal(flipped[4:8], stored[24:28]) {
		t.Errorf("transposed % x of % x, %v", flipped, stored, err)
	}
	_, slabs, err := b.Values(root.Params[4])
	gates, _ := tensors[8].Bytes()
	ups, _ := tensors[9].Bytes()
	want = append([]byte(nil), gates[6:12]...) // of the second slab: the gate, then both columns of ups
	for column := range 2 {
		for row := range 3 {
			want = append(want, ups[12+4*row+2*column:][:2]...)
		}
	}
	if err != nil || !bytes.Equal(slabs[18:], want) {
		t.Errorf("second slab % x, want % x, %v", slabs[18:], want, err)
	}
	again, err := Unbind(model, pathValues(b, model))
	if err != nil {
		t.Fatal(err)
	}
	checkTensors(t, inMemory(t, slices.Collect(again)...), tensors)
}

// TestExpertsOfSeveralDTypesAreWidened: the experts of a layer that a file stores in several dtypes
// could be served, and not trained.
func TestExpertsOfSeveralDTypesAreWidened(t *testing.T) {
	expert := func(name string, dtype meta.DType, values ...byte) NamedTensor {
		return NamedTensor{Name: name, DType: dtype, Shape: []int{1, 2}, Bytes: func() ([]byte, error) { return values, nil }}
	}
	p := param("experts", meta.BFloat16, []int{3, 1, 2}, meta.TensorSource{Tensor: "e.{}", Stack: 3})
	b, err := Bind(inMemory(t, expert("e.0", meta.BFloat16, 0x80, 0x3f, 0, 0x40), expert("e.1", meta.Float32, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40),
		expert("e.2", meta.Float16, 0, 0x45, 0, 0x46)), &meta.Model{Root: module("", p)})
	if err != nil {
		t.Fatal(err)
	}
	dtype, got, err := b.Values(p)
	var want []byte
	for _, v := range []float32{1, 2, 3, 4, 5, 6} {
		want = binary.LittleEndian.AppendUint32(want, math.Float32bits(v))
	}
	if err != nil || dtype != meta.Float32 || b.DType(p) != dtype || !bytes.Equal(got, want) {
		t.Errorf("%v %x (%v), want float32 %x", dtype, got, err, want)
	}
}

func TestUnbindRefuses(t *testing.T) {
	value := func(string) (meta.DType, func() ([]byte, error)) {
		return meta.Float32, func() ([]byte, error) { return make([]byte, 7), nil }
	}
	shape := []int{2, 2}
	for i, sources := range [][]meta.TensorSource{
		{{Tensor: "x"}, {Tensor: "x"}},
		{{Tensor: "x", Into: meta.RowRange{Begin: 0, End: 1}, From: meta.RowRange{Begin: 1, End: 2}}},
		{{Tensor: "x", Stack: 3}},
	} {
		if _, err := Unbind(&meta.Model{Root: module("", param("p", meta.Float32, shape, sources...))}, value); err == nil {
			t.Errorf("case %d was taken", i)
		}
	}
	tensors, err := Unbind(&meta.Model{Root: module("", param("p", meta.Float32, shape))}, value)
	if err != nil {
		t.Fatal(err)
	}
	for x := range tensors {
		if _, err := x.elements(); err == nil {
			t.Error("too few bytes were taken")
		}
	}
}

// quantized reports whether weights of a model are stored as codes. A parameter whose tensors have several dtypes, as in a fresh
// OLMo Hybrid of seed 52000, is not.
func quantized(model *meta.Model) bool {
	for _, p := range model.Root.AllParams() {
		if p.Quantised() {
			return true
		}
	}
	return false
}

// TestGoldenModelsUnbind puts every parameter of the golden models together and takes
// it apart again: the tensors of the file come back.
func TestGoldenModelsUnbind(t *testing.T) {
	for _, config := range golden.Glob(t, "infer/models/*/config.json") {
		dir := filepath.Dir(config)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			ck, model, b := bindFolder(t, golden.Unpacked(t, dir))
			tensors, err := Unbind(model, pathValues(b, model))
			if quantized(model) {
				if err == nil {
					t.Error("quantised weights were taken apart")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for x := range tensors {
				n++
				h, ok := ck.Lookup(x.Name)
				if !ok {
					h, ok = ck.Lookup(strings.TrimPrefix(x.Name, model.BasePrefix+"."))
				}
				if !ok {
					t.Errorf("%s is not in the file", x.Name)
					continue
				}
				got, err := x.elements()
				want, err2 := h.Bytes()
				same := x.DType == h.DType
				if !same && severalDTypes(ck) { // a parameter has tensors of several dtypes
					want, same = widened(want, h.DType, x.DType)
				}
				if err != nil || err2 != nil || !same || !bytes.Equal(got, want) || !slices.Equal(x.Shape, h.Shape) {
					t.Errorf("%s: %v %v, want %v %v (%v, %v)", x.Name, x.DType, x.Shape, h.DType, h.Shape, err, err2)
				}
			}
			if n == 0 {
				t.Error("no tensor")
			}
		})
	}
}

// severalDTypes reports whether not all tensors of ck have the same dtype.
func severalDTypes(ck *Checkpoint) bool {
	found := map[meta.DType]bool{}
	for x := range ck.Tensors() {
		found[x.DType] = true
	}
	return len(found) > 1
}
