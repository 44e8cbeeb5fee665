package nested

import (
	"fmt"
	"reflect"
	"slices"
)

// Split returns a rank's part of x: a contiguous piece of a slice, of an array along its
// outermost dimension, or of each entry of a map whose entries have equal lengths. If the length
// is not divisible by the number of ranks, the first ranks get one entry more. With padding every
// rank gets the same number, padded with the last entry of x.
func Split[T any](x T, rank, size int, padding bool) (T, error) {
	n, err := splitLength(reflect.ValueOf(x))
	if err != nil {
		return x, err
	}
	each, extra := n/size, n%size
	part := share{lo: rank*each + min(rank, extra)}
	part.hi = part.lo + each
	if rank < extra {
		part.hi++
	}
	if padding && n > 0 {
		part.pad = each + min(extra, 1) - (part.hi - part.lo)
	}
	v, err := part.of(reflect.ValueOf(&x).Elem())
	if err != nil {
		return x, err
	}
	var out T
	reflect.ValueOf(&out).Elem().Set(v)
	return out, nil
}

// share is entries lo to hi-1, followed by pad copies of the last entry.
type share struct{ lo, hi, pad int }

// splitLength returns the number of entries to split.
func splitLength(v reflect.Value) (int, error) {
	switch {
	case !v.IsValid():
		return 0, fmt.Errorf("nil cannot be split")
	case isLeaf(v.Type()):
		l, err := toLeaf(v)
		if err == nil && len(l.Shape) == 0 {
			err = fmt.Errorf("a single number cannot be split")
		}
		if err != nil {
			return 0, err
		}
		return l.Shape[0], nil
	case v.Kind() == reflect.Interface:
		return splitLength(v.Elem())
	case v.Kind() == reflect.Slice:
		return v.Len(), nil
	case v.Kind() != reflect.Map:
		return 0, fmt.Errorf("a %v cannot be split", v.Type())
	}
	n, first := -1, ""
	for entries := v.MapRange(); entries.Next(); {
		key := fmt.Sprint(entries.Key())
		m, err := splitLength(entries.Value())
		switch {
		case err != nil:
			return 0, fmt.Errorf("entry %q: %w", key, err)
		case n >= 0 && m != n:
			return 0, fmt.Errorf("all entries must have the same length: %q has %d, %q %d", first, n, key, m)
		}
		n, first = m, key
	}
	return max(n, 0), nil
}

func (s share) of(v reflect.Value) (reflect.Value, error) {
	switch {
	case isLeaf(v.Type()):
		l, err := toLeaf(v)
		if err != nil {
			return v, err
		}
		return s.ofArray(l).value(), nil
	case v.Kind() == reflect.Interface:
		return s.of(v.Elem())
	case v.Kind() == reflect.Slice:
		out := reflect.MakeSlice(v.Type(), 0, s.hi-s.lo+s.pad)
		out = reflect.AppendSlice(out, v.Slice(s.lo, s.hi))
		for range s.pad {
			out = reflect.Append(out, v.Index(v.Len()-1))
		}
		return out, nil
	}
	out := reflect.MakeMapWithSize(v.Type(), v.Len())
	for entries := v.MapRange(); entries.Next(); {
		x, err := s.of(entries.Value())
		if err != nil {
			return v, err
		}
		out.SetMapIndex(entries.Key(), x)
	}
	return out, nil
}

func (s share) ofArray(l Leaf) Leaf {
	if s.pad == 0 {
		return l.Rows(s.lo, s.hi)
	}
	w, last := l.width(), l.Rows(l.Shape[0]-1, l.Shape[0])
	data := reflect.MakeSlice(l.Data.Type(), 0, (s.hi-s.lo+s.pad)*w)
	data = reflect.AppendSlice(data, l.Rows(s.lo, s.hi).Data)
	for range s.pad {
		data = reflect.AppendSlice(data, last.Data)
	}
	l.Data = data
	l.Shape = slices.Concat([]int{s.hi - s.lo + s.pad}, l.Shape[1:])
	return l
}
