package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Metadata has the values of a header by key: uint64, int64, float64, bool, string, []string, [][]byte never;
// numbers of all widths are widened, arrays of numbers are []uint64, []int64, []float64 or []bool. Arrays in
// arrays are checked, and kept as [Nested].
type Metadata map[string]any

// Nested stands for an array of arrays, which no model needs.
type Nested struct{}

// kind is the type of a value.
type kind uint32

const (
	kindU8 kind = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
	kinds
)

// sizes are those of values of fixed size; the least ones of strings and arrays.
var sizes = [kinds]int{1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}

func (in *source) metadata(n uint64) (Metadata, error) {
	m := Metadata{}
	for range n {
		name, err := in.text(maxKey, "a metadata key")
		if err != nil {
			return nil, err
		}
		key := string(name)
		if !utf8.ValidString(key) || key == "" {
			return nil, failf(key, "the metadata key is no text")
		}
		if _, twice := m[key]; twice {
			return nil, failf(key, "the metadata key is given twice")
		}
		k, err := in.kind()
		if err == nil {
			m[key], err = in.value(k)
		}
		if err != nil {
			if e, ok := err.(*Error); ok && e.Key == "" {
				err = &Error{Key: key, Reason: e.Reason}
			}
			return nil, err
		}
	}
	return m, nil
}

func (in *source) kind() (kind, error) {
	k, err := in.u32("the type of a value")
	if err == nil && k >= uint32(kinds) {
		return 0, failf("", "got a value of type %d, want 0 to %d", k, kinds-1)
	}
	return kind(k), err
}

func (in *source) value(k kind) (any, error) {
	switch k {
	case kindString:
		b, err := in.text(maxString, "a string")
		return strings.ToValidUTF8(string(b), "\ufffd"), err
	case kindArray:
		return in.array(1)
	}
	b, err := in.bytes(sizes[k], "a value")
	if err != nil {
		return nil, err
	}
	return number(k, b)
}

// number widens a value of fixed size.
func number(k kind, b []byte) (any, error) {
	le := binary.LittleEndian
	switch k {
	case kindU8:
		return uint64(b[0]), nil
	case kindI8:
		return int64(int8(b[0])), nil
	case kindU16:
		return uint64(le.Uint16(b)), nil
	case kindI16:
		return int64(int16(le.Uint16(b))), nil
	case kindU32:
		return uint64(le.Uint32(b)), nil
	case kindI32:
		return int64(int32(le.Uint32(b))), nil
	case kindF32:
		return float64(math.Float32frombits(le.Uint32(b))), nil
	case kindU64:
		return le.Uint64(b), nil
	case kindI64:
		return int64(le.Uint64(b)), nil
	case kindF64:
		return math.Float64frombits(le.Uint64(b)), nil
	}
	if b[0] > 1 {
		return nil, failf("", "got %d for true or false", b[0])
	}
	return b[0] == 1, nil
}

// array reads an array, the depth-th inside each other.
func (in *source) array(depth int) (any, error) {
	k, err := in.kind()
	if err != nil {
		return nil, err
	}
	n, err := in.u64("the length of an array")
	if err != nil {
		return nil, err
	}
	if n > uint64(max(in.left(), 0))/uint64(sizes[k]) {
		return nil, failf("", "got an array of %d values with %d bytes left", n, in.left())
	}
	switch k {
	case kindString:
		return in.strings(int(n))
	case kindArray:
		if depth >= maxNesting {
			return nil, failf("", "arrays are nested more than %d deep", maxNesting)
		}
		for range n {
			if _, err := in.array(depth + 1); err != nil {
				return nil, err
			}
		}
		return Nested{}, nil
	}
	return in.numbers(k, int(n))
}

// strings reads n strings into one piece of memory.
func (in *source) strings(n int) ([]string, error) {
	var text []byte
	ends := make([]int, 0, min(n, 1<<16))
	for range n {
		b, err := in.text(maxString, "a string")
		if err != nil {
			return nil, err
		}
		text = append(text, b...)
		ends = append(ends, len(text))
	}
	whole, list, begin := string(text), make([]string, n), 0
	for i, end := range ends {
		list[i], begin = whole[begin:end], end
	}
	return list, nil
}

func (in *source) numbers(k kind, n int) (any, error) {
	u, i, f, t := []uint64(nil), []int64(nil), []float64(nil), []bool(nil)
	for range n {
		b, err := in.bytes(sizes[k], "a value of an array")
		if err != nil {
			return nil, err
		}
		v, err := number(k, b)
		if err != nil {
			return nil, err
		}
		switch v := v.(type) {
		case uint64:
			u = append(u, v)
		case int64:
			i = append(i, v)
		case float64:
			f = append(f, v)
		case bool:
			t = append(t, v)
		}
	}
	switch k {
	case kindBool:
		return t, nil
	case kindF32, kindF64:
		return f, nil
	case kindI8, kindI16, kindI32, kindI64:
		return i, nil
	}
	return u, nil
}

const defaultAlignment = 32

// alignment returns what tensors' offsets are multiples of.
func (m Metadata) alignment() (int64, error) {
	const key = "general.alignment"
	n, ok, err := m.Int(key)
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return defaultAlignment, nil
	case n < 8 || n > 1<<20 || n&(n-1) != 0:
		return 0, failf(key, "got %d, want a power of 2 from 8 to %d", n, 1<<20)
	}
	return n, nil
}

// Int returns a whole number. ok is false where the key is missing; a value of another type is an error.
func (m Metadata) Int(key string) (n int64, ok bool, err error) {
	switch v := m[key].(type) {
	case nil:
		return 0, false, nil
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v), true, nil
		}
	case int64:
		return v, true, nil
	}
	return 0, false, failf(key, "got %s, want a whole number", describe(m[key]))
}

// Float returns a number; see [Metadata.Int].
func (m Metadata) Float(key string) (f float64, ok bool, err error) {
	switch v := m[key].(type) {
	case nil:
		return 0, false, nil
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, true, nil
		}
	case uint64:
		return float64(v), true, nil
	case int64:
		return float64(v), true, nil
	}
	return 0, false, failf(key, "got %s, want a number", describe(m[key]))
}

// Text returns a string; see [Metadata.Int].
func (m Metadata) Text(key string) (s string, ok bool, err error) {
	switch v := m[key].(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	}
	return "", false, failf(key, "got %s, want text", describe(m[key]))
}

// Bool returns true or false; see [Metadata.Int].
func (m Metadata) Bool(key string) (b, ok bool, err error) {
	switch v := m[key].(type) {
	case nil:
		return false, false, nil
	case bool:
		return v, true, nil
	}
	return false, false, failf(key, "got %s, want true or false", describe(m[key]))
}

// Texts returns an array of strings; see [Metadata.Int].
func (m Metadata) Texts(key string) ([]string, error) {
	switch v := m[key].(type) {
	case nil:
		return nil, nil
	case []string:
		return v, nil
	}
	return nil, failf(key, "got %s, want an array of text", describe(m[key]))
}

// Ints returns an array of whole numbers; see [Metadata.Int].
func (m Metadata) Ints(key string) ([]int64, error) {
	switch v := m[key].(type) {
	case nil:
		return nil, nil
	case []int64:
		return v, nil
	case []uint64:
		list := make([]int64, len(v))
		for i, x := range v {
			if list[i] = int64(x); list[i] < 0 {
				return nil, failf(key, "got %d, which is too large", x)
			}
		}
		return list, nil
	}
	return nil, failf(key, "got %s, want an array of whole numbers", describe(m[key]))
}

// Floats returns an array of numbers; see [Metadata.Int].
func (m Metadata) Floats(key string) ([]float64, error) {
	switch v := m[key].(type) {
	case nil:
		return nil, nil
	case []float64:
		return v, nil
	}
	return nil, failf(key, "got %s, want an array of numbers", describe(m[key]))
}

// describe names a value's type for messages.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return "text"
	case bool:
		return "true or false"
	case uint64, int64, float64:
		return fmt.Sprint(v)
	case []string, []uint64, []int64, []float64, []bool, Nested:
		return "an array"
	}
	return "nothing"
}
