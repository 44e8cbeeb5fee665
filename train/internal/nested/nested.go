// Package nested exchanges arrays between ranks. The arrays may be nested in slices, maps and
// structs: [Map] visits each array as a [Leaf], and [Gather], [Pad], [Reduce] and [Broadcast]
// exchange it. [Split] divides a value into the ranks' parts. The package knows no accelerator.
package nested

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/heftai/heft/train/tensor"
)

// Array is float32 numbers in row-major order with a shape: a tensor without a tape. Without a
// shape it is a single number.
type Array struct {
	Data  []float32
	Shape []int
}

// Len returns the length of the outermost dimension, 0 for a single number.
func (x Array) Len() int {
	if len(x.Shape) == 0 {
		return 0
	}
	return x.Shape[0]
}

func (x Array) check() error {
	n := 1
	for _, d := range x.Shape {
		if d < 0 || n > 0 && d > len(x.Data)/n {
			return fmt.Errorf("%d numbers do not have the shape %v", len(x.Data), x.Shape)
		}
		n *= d
	}
	if n != len(x.Data) {
		return fmt.Errorf("%d numbers do not have the shape %v", len(x.Data), x.Shape)
	}
	return nil
}

// A Leaf is an array inside nested data: a *tensor.Tensor, an [Array], or a slice of numbers,
// which is a vector. Data is a slice of numbers in row-major order.
type Leaf struct {
	Shape []int
	Data  reflect.Value
	of    any // the tensor or Array that holds it, or nil
}

// isLeaf reports whether values of a type are arrays.
func isLeaf(t reflect.Type) bool {
	if t == reflect.TypeFor[Array]() || t == reflect.TypeFor[*tensor.Tensor]() {
		return true
	}
	if t.Kind() != reflect.Slice {
		return false
	}
	switch t.Elem().Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	}
	return false
}

func toLeaf(v reflect.Value) (Leaf, error) {
	switch x := v.Interface().(type) {
	case Array:
		return Leaf{x.Shape, reflect.ValueOf(x.Data), x}, x.check()
	case *tensor.Tensor:
		if x == nil || x.Tape() == nil {
			return Leaf{}, errors.New("is a tensor of no tape")
		}
		return Leaf{x.Shape(), reflect.ValueOf(x.Data()), x}, x.Tape().Err()
	}
	return Leaf{Shape: []int{v.Len()}, Data: v}, nil
}

// value converts the Leaf back to its original type. A tensor becomes a constant on its tape.
func (l Leaf) value() reflect.Value {
	data, _ := l.Data.Interface().([]float32)
	switch of := l.of.(type) {
	case Array:
		return reflect.ValueOf(Array{data, l.Shape})
	case *tensor.Tensor:
		if len(l.Shape) == 0 && len(data) == 1 {
			return reflect.ValueOf(of.Tape().Scalar(data[0]))
		}
		return reflect.ValueOf(of.Tape().Input(data, l.Shape...))
	}
	return l.Data
}

// width returns the number of elements of a row, which is an entry of the outermost dimension.
func (l Leaf) width() int {
	n := 1
	for _, d := range l.Shape[1:] {
		n *= d
	}
	return n
}

// Rows returns entries lo to hi of the outermost dimension.
func (l Leaf) Rows(lo, hi int) Leaf {
	w := l.width()
	l.Data = l.Data.Slice3(lo*w, hi*w, hi*w)
	l.Shape = append([]int{hi - lo}, l.Shape[1:]...)
	return l
}

// notArray is the error for a value that is neither an array nor made of arrays.
type notArray struct {
	where string
	typ   string
}

func (e *notArray) Error() string {
	return fmt.Sprintf("%s is a %s: want arrays, or slices, maps and structs of them", e.where, e.typ)
}

// each returns a copy of v in which f has replaced every array, in an order that is the
// same on every rank: slices by index, maps by key, structs by field.
func each(v reflect.Value, where string, f func(Leaf) (Leaf, error)) (reflect.Value, error) {
	if !v.IsValid() {
		return v, &notArray{where, "nil"}
	}
	switch {
	case isLeaf(v.Type()):
		l, err := toLeaf(v)
		if err == nil {
			l, err = f(l)
		}
		if err != nil {
			return v, fmt.Errorf("%s: %w", where, err)
		}
		return l.value(), nil
	case v.Kind() == reflect.Interface && !v.IsNil():
		return each(v.Elem(), where, f)
	case v.Kind() == reflect.Slice:
		return eachElement(v, where, f)
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		return eachEntry(v, where, f)
	case v.Kind() == reflect.Struct:
		return eachField(v, where, f)
	}
	return v, &notArray{where, v.Type().String()}
}

func eachElement(v reflect.Value, where string, f func(Leaf) (Leaf, error)) (reflect.Value, error) {
	out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		x, err := each(v.Index(i), fmt.Sprintf("%s[%d]", where, i), f)
		if err != nil {
			return v, err
		}
		out.Index(i).Set(x)
	}
	return out, nil
}

func eachEntry(v reflect.Value, where string, f func(Leaf) (Leaf, error)) (reflect.Value, error) {
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		x, err := each(v.MapIndex(k), fmt.Sprintf("%s[%q]", where, k.String()), f)
		if err != nil {
			return v, err
		}
		out.SetMapIndex(k, x)
	}
	return out, nil
}

func eachField(v reflect.Value, where string, f func(Leaf) (Leaf, error)) (reflect.Value, error) {
	out := reflect.New(v.Type()).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			return v, &notArray{where + "." + field.Name, "field that is not exported"}
		}
		x, err := each(v.Field(i), where+"."+field.Name, f)
		if err != nil {
			return v, err
		}
		out.Field(i).Set(x)
	}
	return out, nil
}

// Map returns a copy of x in which f has replaced every array. It calls f in the same order on
// every rank: slices by index, maps by key, structs by field. x must be an array, or slices, maps
// and structs of arrays.
func Map[T any](x T, f func(Leaf) (Leaf, error)) (T, error) {
	var out T
	v, err := each(reflect.ValueOf(&x).Elem(), "the value", f)
	if err == nil {
		reflect.ValueOf(&out).Elem().Set(v)
	}
	return out, err
}

// HasArrays reports whether x is an array, or slices, maps and structs of arrays.
func HasArrays(x any) bool {
	if x == nil || !mayHoldArrays(reflect.TypeOf(x), 0) {
		return false // decided by the type, so that a rank whose list is empty decides alike
	}
	_, err := each(reflect.ValueOf(x), "", func(l Leaf) (Leaf, error) { return l, nil })
	return err == nil
}

func mayHoldArrays(t reflect.Type, depth int) bool {
	switch {
	case isLeaf(t) || t.Kind() == reflect.Interface:
		return true
	case depth > 16: // a type that contains itself
		return false
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		return mayHoldArrays(t.Elem(), depth+1)
	case t.Kind() != reflect.Struct:
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); !f.IsExported() || !mayHoldArrays(f.Type, depth+1) {
			return false
		}
	}
	return true
}
