package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Dict is a Python dict: a mapping that keeps the insertion order of its keys. The zero value is an
// empty dict. Reading is safe for concurrent use, writing is not. Do not change the values of a
// template while it renders.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[Value]int // by hash key; only for more than smallDict entries
}

// smallDict is the number of entries up to which a scan is cheaper than a map.
const smallDict = 8

// NewDict makes a dict of alternating keys and values; keys are strings.
func NewDict(pairs ...Value) *Dict {
	d := &Dict{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if key, ok := pairs[i].(string); ok {
			d.Set(key, pairs[i+1])
		}
	}
	return d
}

// Len returns the number of entries; a nil dict has none.
func (d *Dict) Len() int {
	if d == nil {
		return 0
	}
	return len(d.keys)
}

// Get returns the value under a string key.
func (d *Dict) Get(key string) (Value, bool) {
	if d == nil {
		return nil, false
	}
	if d.index != nil {
		i, ok := d.index[key]
		if !ok {
			return nil, false
		}
		return d.vals[i], true
	}
	for i, k := range d.keys {
		if s, ok := text(k); ok && s == key {
			return d.vals[i], true
		}
	}
	return nil, false
}

// Set stores v under key. An existing key keeps its place.
func (d *Dict) Set(key string, v Value) { d.set(key, v) }

// All iterates over the entries whose keys are strings, in order.
func (d *Dict) All() func(yield func(string, Value) bool) {
	return func(yield func(string, Value) bool) {
		for i := range d.Len() {
			if k, ok := d.keys[i].(string); ok && !yield(k, d.vals[i]) {
				return
			}
		}
	}
}

// Clone returns a dict with the same entries.
func (d *Dict) Clone() *Dict {
	c := &Dict{}
	for i := range d.Len() {
		c.set(d.keys[i], d.vals[i])
	}
	return c
}

// tupleKey is the hash key of a tuple: its parts, spelt out with their types.
type tupleKey string

// maxTupleKey bounds a tuple's hash key, and thereby the cost of a look-up.
const maxTupleKey = 1 << 12

// keyWork counts the cost of looking up key.
func (st *state) keyWork(key Value) error {
	switch key := key.(type) {
	case string:
		return st.work(len(key) / 16)
	case *Tuple:
		return st.work(maxTupleKey / 16)
	}
	return nil
}

// noneKey is the hash key of None.
type noneKey struct{}

// hashKey maps equal keys to the same comparable Go value: 1, 1.0 and True are one key in Python.
// Lists and dicts cannot be keys.
func hashKey(k Value) (Value, error) { return hashKeyAt(k, 0) }

func hashKeyAt(k Value, depth int) (Value, error) {
	switch k := k.(type) {
	case nil:
		return noneKey{}, nil
	case string, int64:
		return k, nil
	case markup:
		return string(k), nil
	case bool:
		i, _ := integer(k)
		return i, nil
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<62 {
			return int64(k), nil
		}
		return k, nil
	case *big.Int:
		return tupleKey(k.String()), nil
	case *undefined:
		return &anyUndefined, nil
	case *Tuple:
		if depth > maxNesting {
			return nil, failf(KindLimit, "maximum recursion depth exceeded in a key")
		}
		var b strings.Builder
		for _, item := range k.Items {
			h, err := hashKeyAt(item, depth+1)
			if err != nil {
				return nil, err
			}
			part := fmt.Sprintf("%T:%v", h, h)
			b.WriteString(strconv.Itoa(len(part)) + ":" + part)
			if b.Len() > maxTupleKey {
				return nil, failf(KindLimit, "a tuple used as a key is too large")
			}
		}
		return tupleKey(b.String()), nil
	case *List, *Dict:
		return nil, typeErrorf("unhashable type: '%s'", typeName(k))
	}
	return k, nil // identity: macros, functions, namespaces
}

// anyUndefined is the hash key of all undefined values, which are equal.
var anyUndefined undefined

// find returns the index of key, or -1 if it is absent or cannot be a key.
func (d *Dict) find(key Value) (int, error) {
	h, err := hashKey(key)
	if err != nil || d == nil {
		return -1, err
	}
	if d.index != nil {
		if i, ok := d.index[h]; ok {
			return i, nil
		}
		return -1, nil
	}
	for i, k := range d.keys {
		if other, err := hashKey(k); err == nil && other == h {
			return i, nil
		}
	}
	return -1, nil
}

func (d *Dict) get(key Value) (Value, bool) {
	if s, ok := key.(string); ok {
		return d.Get(s)
	}
	i, err := d.find(key)
	if err != nil || i < 0 {
		return nil, false
	}
	return d.vals[i], true
}

// setValue stores v under any hashable key.
func (d *Dict) setValue(key, v Value) error {
	if _, err := hashKey(key); err != nil {
		return err
	}
	d.set(key, v)
	return nil
}

// set stores v under a key known to be hashable.
func (d *Dict) set(key, v Value) {
	i, err := d.find(key)
	if err != nil {
		return
	}
	if i >= 0 {
		d.vals[i] = v
		return
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
	if d.index == nil && len(d.keys) > smallDict {
		d.index = make(map[Value]int, 2*len(d.keys))
		for j, k := range d.keys {
			if h, err := hashKey(k); err == nil {
				d.index[h] = j
			}
		}
	} else if d.index != nil {
		if h, err := hashKey(key); err == nil {
			d.index[h] = len(d.keys) - 1
		}
	}
}
