package train

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

// Gather joins every rank's arrays along the outermost dimension, in order of rank. x
// is an array (a *tensor.Tensor, an [Array], a slice of numbers) or slices, maps and
// structs of them. Shapes must agree: [PadAcrossProcesses] makes them. A single number
// becomes a vector of one entry a rank. In a world of one x is returned as it is.
//
// The exchanges of this package are functions, not methods, because they return what
// they are given. All ranks must call them in the same order.
func Gather[T any](ctx context.Context, a *Accelerator, x T) (T, error) {
	if a.comm.Size() == 1 {
		_, err := mapArrays(x, same)
		return x, wrap("gather", err)
	}
	out, err := mapArrays(x, func(l leaf) (leaf, error) { return a.gather(ctx, l) })
	return out, wrap("gather", err)
}

func same(l leaf) (leaf, error) { return l, nil }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("train: %s: %w", what, err)
}

// parcel is an array on its way.
type parcel struct {
	shape []int
	data  reflect.Value
}

// exchangeArrays gives every rank everybody's array. They are of one type.
func (a *Accelerator) exchangeArrays(ctx context.Context, l leaf) ([]parcel, error) {
	b, err := packArray(l)
	if err != nil {
		return nil, err
	}
	all, err := a.comm.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	parcels := make([]parcel, len(all))
	for r, b := range all {
		if parcels[r], err = unpackArray(b, l.data.Type()); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return parcels, nil
}

func packArray(l leaf) ([]byte, error) {
	var b bytes.Buffer
	e := gob.NewEncoder(&b)
	if err := e.Encode(append([]int{l.data.Len()}, l.shape...)); err != nil {
		return nil, err
	}
	err := e.EncodeValue(l.data)
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
		return parcel{}, errors.New("an array that is not whole")
	}
	return parcel{shape[1:], data.Elem()}, nil
}

func (a *Accelerator) gather(ctx context.Context, l leaf) (leaf, error) {
	parcels, err := a.exchangeArrays(ctx, l)
	if err != nil {
		return l, err
	}
	out := reflect.MakeSlice(l.data.Type(), 0, l.data.Len()*len(parcels))
	for r, p := range parcels {
		if !slices.Equal(p.shape, parcels[0].shape) {
			return l, fmt.Errorf("rank %d has the shape %v, rank 0 %v: pad them first", r, p.shape, parcels[0].shape)
		}
		out = reflect.AppendSlice(out, p.data)
	}
	l.data = out
	if len(l.shape) == 0 {
		l.shape = []int{len(parcels)}
	} else {
		l.shape = append([]int{l.shape[0] * len(parcels)}, l.shape[1:]...)
	}
	return l, nil
}

// GatherObject joins every rank's lists, in order of rank. Objects travel by
// encoding/gob.
func GatherObject[T any](ctx context.Context, a *Accelerator, xs []T) ([]T, error) {
	if a.comm.Size() == 1 {
		return xs, nil
	}
	all, err := collective.AllGather(ctx, a.comm, xs)
	if err != nil {
		return nil, fmt.Errorf("train: gather of objects: %w", err)
	}
	return slices.Concat(all...), nil
}

// PadOptions say how [PadAcrossProcesses] pads. The zero value appends zeros to the
// outermost dimension.
type PadOptions struct {
	// Dim is the dimension; negative ones count from the back. An array without it is
	// returned unchanged.
	Dim int
	// Index is the number to pad with.
	Index float64
	// First pads at the start.
	First bool
}

// PadAcrossProcesses lengthens one dimension of every array to the longest that a rank
// has. The other dimensions may differ.
func PadAcrossProcesses[T any](ctx context.Context, a *Accelerator, x T, o PadOptions) (T, error) {
	out, err := mapArrays(x, func(l leaf) (leaf, error) {
		all, err := collective.AllGather(ctx, a.comm, l.shape)
		if err != nil {
			return l, err
		}
		dim := o.Dim
		if dim < 0 {
			dim += len(l.shape)
		}
		if dim < 0 || dim >= len(l.shape) {
			return l, nil
		}
		longest := 0
		for r, s := range all {
			if len(s) != len(l.shape) {
				return l, fmt.Errorf("rank %d has %d dimensions, not %d", r, len(s), len(l.shape))
			}
			longest = max(longest, s[dim])
		}
		return l.pad(dim, longest, o)
	})
	return out, wrap("pad across processes", err)
}

// pad lengthens dim to n.
func (l leaf) pad(dim, n int, o PadOptions) (leaf, error) {
	have := l.shape[dim]
	if n == have {
		return l, nil
	}
	outer, inner := 1, 1
	for i, d := range l.shape {
		if i < dim {
			outer *= d
		} else if i > dim {
			inner *= d
		}
	}
	fill, err := number(o.Index, l.data.Type().Elem())
	if err != nil {
		return l, err
	}
	out := reflect.MakeSlice(l.data.Type(), outer*n*inner, outer*n*inner)
	for i := range outer {
		to := out.Slice(i*n*inner, (i+1)*n*inner)
		pad := to.Slice(have*inner, n*inner)
		if o.First {
			to, pad = to.Slice((n-have)*inner, n*inner), to.Slice(0, (n-have)*inner)
		}
		reflect.Copy(to, l.data.Slice(i*have*inner, (i+1)*have*inner))
		for j := range pad.Len() {
			pad.Index(j).Set(fill)
		}
	}
	l.data = out
	l.shape = slices.Clone(l.shape)
	l.shape[dim] = n
	return l, nil
}

// number is x in a type of number, if it has it.
func number(x float64, t reflect.Type) (reflect.Value, error) {
	if t.Kind() == reflect.Bool {
		return reflect.ValueOf(x != 0).Convert(t), nil
	}
	v := reflect.ValueOf(x).Convert(t)
	float := t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
	if !float && v.Convert(reflect.TypeFor[float64]()).Float() != x {
		return v, fmt.Errorf("%v is no %v", x, t)
	}
	return v, nil
}

// Reduction joins the ranks' numbers.
type Reduction string

// The reductions. ReduceNone sums, too: the reference does.
const (
	ReduceSum  Reduction = "sum"
	ReduceMean Reduction = "mean"
	ReduceMax  Reduction = "max"
	ReduceNone Reduction = "none"
)

// Reduce joins every rank's arrays element by element into one that all ranks get.
// Shapes must agree. Integers are joined exactly up to 2^53, and have no mean.
func Reduce[T any](ctx context.Context, a *Accelerator, x T, how Reduction) (T, error) {
	op, ok := map[Reduction]collective.Op{ReduceSum: collective.Sum, ReduceNone: collective.Sum,
		ReduceMean: collective.Mean, ReduceMax: collective.Max}[how]
	if !ok {
		var zero T
		return zero, fmt.Errorf("train: unknown reduction %q", how)
	}
	out, err := mapArrays(x, func(l leaf) (leaf, error) { return a.reduce(ctx, l, op) })
	return out, wrap("reduce", err)
}

func (a *Accelerator) reduce(ctx context.Context, l leaf, op collective.Op) (leaf, error) {
	all, err := collective.AllGather(ctx, a.comm, l.shape)
	if err != nil {
		return l, err
	}
	for r, s := range all {
		if !slices.Equal(s, all[0]) {
			return l, fmt.Errorf("rank %d has the shape %v, rank 0 %v", r, s, all[0])
		}
	}
	t := l.data.Type()
	out := reflect.MakeSlice(t, l.data.Len(), l.data.Len())
	reflect.Copy(out, l.data)
	l.data = out
	switch t.Elem().Kind() {
	case reflect.Float32:
		return l, collective.AllReduce(ctx, a.comm, op, out.Convert(reflect.TypeFor[[]float32]()).Interface().([]float32))
	case reflect.Float64:
		return l, collective.AllReduce(ctx, a.comm, op, out.Convert(reflect.TypeFor[[]float64]()).Interface().([]float64))
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
	if err := collective.AllReduce(ctx, a.comm, op, wide); err != nil {
		return l, err
	}
	for i, v := range wide {
		out.Index(i).Set(reflect.ValueOf(v).Convert(t.Elem()))
	}
	return l, nil
}

// Broadcast gives every rank the arrays of rank from.
func Broadcast[T any](ctx context.Context, a *Accelerator, x T, from int) (T, error) {
	out, err := mapArrays(x, func(l leaf) (leaf, error) {
		var b []byte
		var err error
		if a.comm.Rank() == from {
			if b, err = packArray(l); err != nil {
				return l, err
			}
		}
		if b, err = a.comm.Broadcast(ctx, from, b); err != nil {
			return l, err
		}
		p, err := unpackArray(b, l.data.Type())
		if err != nil {
			return l, err
		}
		l.shape, l.data = p.shape, p.data
		return l, nil
	})
	return out, wrap("broadcast", err)
}

// BroadcastObject gives every rank the object of rank from. It travels by encoding/gob.
func BroadcastObject[T any](ctx context.Context, a *Accelerator, x T, from int) (T, error) {
	x, err := collective.Broadcast(ctx, a.comm, from, x)
	return x, wrap("broadcast", err)
}
