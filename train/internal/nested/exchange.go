package nested

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/heftai/heft/internal/collective"
)

// parcel is an array received from another rank.
type parcel struct {
	shape []int
	data  reflect.Value
}

// exchangeArrays returns the arrays of all ranks, which must have the same type.
func exchangeArrays(ctx context.Context, comm collective.Comm, l Leaf) ([]parcel, error) {
	b, err := packArray(l)
	if err != nil {
		return nil, err
	}
	all, err := comm.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	parcels := make([]parcel, len(all))
	for r, b := range all {
		if parcels[r], err = unpackArray(b, l.Data.Type()); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return parcels, nil
}

// packArray encodes an array.
func packArray(l Leaf) ([]byte, error) {
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	if err := e.Encode(append([]int{l.Data.Len()}, l.Shape...)); err != nil {
		return nil, err
	}
	err := e.EncodeValue(l.Data)
	return b.Bytes(), err
}

func unpackArray(b []byte, t reflect.Type) (parcel, error) {
	d := gob.NewDecoder(bytes.NewReader(b))
	var shape []int
	if err := d.Decode(&shape); err != nil {
		return parcel{}, err
	}
	data := reflect.New(t)
	if err := d.DecodeValue(data); err != nil {
		return parcel{}, err
	}
	if len(shape) == 0 || shape[0] != data.Elem().Len() {
		return parcel{}, errors.New("an array is incomplete")
	}
	return parcel{shape[1:], data.Elem()}, nil
}

// Gather concatenates the arrays of all ranks along the outermost dimension, in order of rank.
// All ranks must call it.
func Gather(ctx context.Context, comm collective.Comm, l Leaf) (Leaf, error) {
	parcels, err := exchangeArrays(ctx, comm, l)
	if err != nil {
		return l, err
	}
	out := reflect.MakeSlice(l.Data.Type(), 0, l.Data.Len()*len(parcels))
	for r, p := range parcels {
		if !slices.Equal(p.shape, parcels[0].shape) {
			return l, fmt.Errorf("got shape %[2]v on rank %[1]d, want %[3]v as on rank 0: pad them first", r, p.shape, parcels[0].shape)
		}
		out = reflect.AppendSlice(out, p.data)
	}
	l.Data = out
	if len(l.Shape) == 0 {
		l.Shape = []int{len(parcels)}
	} else {
		l.Shape = append([]int{l.Shape[0] * len(parcels)}, l.Shape[1:]...)
	}
	return l, nil
}

// Pad extends dimension dim of l to its largest length on any rank. New elements have the value
// index; they are at the start if first is set, and at the end otherwise. A negative dim counts
// from the last dimension. An array without that dimension is returned unchanged. Other
// dimensions may differ between ranks. All ranks must call it.
func Pad(ctx context.Context, comm collective.Comm, l Leaf, dim int, index float64, first bool) (Leaf, error) {
	all, err := collective.AllGather(ctx, comm, l.Shape)
	if err != nil {
		return l, err
	}
	if dim < 0 {
		dim += len(l.Shape)
	}
	if dim < 0 || dim >= len(l.Shape) {
		return l, nil
	}
	longest := 0
	for r, s := range all {
		if len(s) != len(l.Shape) {
			return l, fmt.Errorf("rank %d has %d dimensions, not %d", r, len(s), len(l.Shape))
		}
		longest = max(longest, s[dim])
	}
	return l.pad(dim, longest, index, first)
}

// pad extends dimension dim to length n.
func (l Leaf) pad(dim, n int, index float64, first bool) (Leaf, error) {
	have := l.Shape[dim]
	if n == have {
		return l, nil
	}
	outer, inner := 1, 1
	for i, d := range l.Shape {
		if i < dim {
			outer *= d
		} else if i > dim {
			inner *= d
		}
	}
	fill, err := number(index, l.Data.Type().Elem())
	if err != nil {
		return l, err
	}
	out := reflect.MakeSlice(l.Data.Type(), outer*n*inner, outer*n*inner)
	for i := range outer {
		to := out.Slice(i*n*inner, (i+1)*n*inner)
		pad := to.Slice(have*inner, n*inner)
		if first {
			to, pad = to.Slice((n-have)*inner, n*inner), to.Slice(0, (n-have)*inner)
		}
		reflect.Copy(to, l.Data.Slice(i*have*inner, (i+1)*have*inner))
		for j := range pad.Len() {
			pad.Index(j).Set(fill)
		}
	}
	l.Data = out
	l.Shape = slices.Clone(l.Shape)
	l.Shape[dim] = n
	return l, nil
}

// number returns x as a value of type t, or an error if t cannot represent it.
func number(x float64, t reflect.Type) (reflect.Value, error) {
	if t.Kind() == reflect.Bool {
		return reflect.ValueOf(x != 0).Convert(t), nil
	}
	v := reflect.ValueOf(x).Convert(t)
	float := t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
	if !float && v.Convert(reflect.TypeFor[float64]()).Float() != x {
		return v, fmt.Errorf("%v is not a %v", x, t)
	}
	return v, nil
}

// Reduce combines the arrays of all ranks element by element. Their shapes must be equal.
// Integers are exact up to 2^53, and have no mean. All ranks must call it.
func Reduce(ctx context.Context, comm collective.Comm, l Leaf, op collective.Op) (Leaf, error) {
	all, err := collective.AllGather(ctx, comm, l.Shape)
	if err != nil {
		return l, err
	}
	for r, s := range all {
		if !slices.Equal(s, all[0]) {
			return l, fmt.Errorf("got shape %v on rank %d, want %v as on rank 0", s, r, all[0])
		}
	}
	t := l.Data.Type()
	out := reflect.MakeSlice(t, l.Data.Len(), l.Data.Len())
	reflect.Copy(out, l.Data)
	l.Data = out
	switch t.Elem().Kind() {
	case reflect.Float32:
		return l, collective.AllReduce(ctx, comm, op, out.Convert(reflect.TypeFor[[]float32]()).Interface().([]float32))
	case reflect.Float64:
		return l, collective.AllReduce(ctx, comm, op, out.Convert(reflect.TypeFor[[]float64]()).Interface().([]float64))
	case reflect.Bool:
		return l, errors.New("truth values cannot be reduced")
	}
	if op == collective.Mean {
		return l, fmt.Errorf("integers (%v) have no mean", t.Elem())
	}
	wide := make([]float64, out.Len())
	for i := range wide {
		wide[i] = out.Index(i).Convert(reflect.TypeFor[float64]()).Float()
	}
	if err := collective.AllReduce(ctx, comm, op, wide); err != nil {
		return l, err
	}
	for i, v := range wide {
		out.Index(i).Set(reflect.ValueOf(v).Convert(t.Elem()))
	}
	return l, nil
}

// Broadcast returns the array of rank from on every rank. All ranks must call it.
func Broadcast(ctx context.Context, comm collective.Comm, l Leaf, from int) (Leaf, error) {
	var b []byte
	var err error
	if comm.Rank() == from {
		if b, err = packArray(l); err != nil {
			return l, err
		}
	}
	if b, err = comm.Broadcast(ctx, from, b); err != nil {
		return l, err
	}
	p, err := unpackArray(b, l.Data.Type())
	if err != nil {
		return l, err
	}
	l.Shape, l.Data = p.shape, p.data
	return l, nil
}
