package jinja

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

func sequenceFilter(name string) filterFunc {
	switch name {
	case "length", "count":
		return filterLength
	case "list":
		return func(st *state, v Value, c *args) (Value, error) {
			if _, err := c.bind(0); err != nil {
				return nil, err
			}
			items, err := collect(st, v)
			return &List{Items: items}, err
		}
	case "first":
		return filterFirst
	case "last":
		return filterLast
	case "random":
		return filterRandom
	case "reverse":
		return filterReverse
	case "items":
		return filterItems
	case "join":
		return filterJoin
	case "sort":
		return filterSort
	case "dictsort":
		return filterDictSort
	case "groupby":
		return filterGroupBy
	case "unique":
		return filterUnique
	case "min":
		return func(st *state, v Value, c *args) (Value, error) { return extreme(st, v, c, -1) }
	case "max":
		return func(st *state, v Value, c *args) (Value, error) { return extreme(st, v, c, 1) }
	case "batch":
		return filterBatch
	case "slice":
		return filterSlice
	}
	return nil
}

func filterLength(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if l, ok := v.(*loopContext); ok {
		n, err := l.size(st)
		return int64(n), err
	}
	n, ok := length(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	if s, ok := text(v); ok {
		return int64(n), st.work(len(s) / 64)
	}
	return int64(n), nil
}

func filterFirst(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	it, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	item, ok, err := it.next()
	if err == nil && !ok {
		return undef("No first item, sequence was empty."), nil
	}
	return item, err
}

// reversible returns the items of v where Python's reversed takes it.
func reversible(st *state, v Value) ([]Value, bool, error) {
	switch v.(type) {
	case string, markup, *List, *Tuple, *Dict, *view, *rangeValue, *undefined:
		items, err := collect(st, v)
		return items, true, err
	}
	return nil, false, nil
}

func filterLast(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if n, at := sequence(v); at != nil && n > 0 {
		return at(n - 1), nil
	}
	items, ok, err := reversible(st, v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, typeErrorf("'%s' object is not reversible", typeName(v))
	}
	if len(items) == 0 {
		return undef("No last item, sequence was empty."), nil
	}
	return items[len(items)-1], nil
}

func filterRandom(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	n, ok := length(v)
	if !ok {
		return nil, typeErrorf("object of type '%s' has no len()", typeName(v))
	}
	if n == 0 {
		return undef("No random item, sequence was empty."), nil
	}
	out, ok, err := item(st, v, rand.Int64N(int64(n)))
	if err == nil && !ok {
		err = typeErrorf("'%s' object has no item of that number", typeName(v))
	}
	return out, err
}

func filterReverse(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if s, ok := text(v); ok {
		if err := st.grow(len(s)); err != nil {
			return nil, err
		}
		return slice(st, v, nil, nil, int64(-1))
	}
	items, ok, err := reversible(st, v)
	if err != nil {
		return nil, err
	}
	if !ok {
		if !iterable(v) {
			return nil, failf(KindRuntime, "argument must be iterable")
		}
		if items, err = collect(st, v); err != nil {
			return nil, err
		}
	}
	n := len(items)
	for i := range n / 2 {
		items[i], items[n-1-i] = items[n-1-i], items[i]
	}
	if !ok {
		return &List{Items: items}, nil
	}
	return &generator{typ: "reversed", next: itemsIterator(items).next}, nil
}

// filterItems returns the pairs of a mapping. An undefined value has none.
func filterItems(st *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	var items *iterator
	return newGenerator("generator", v, func() (Value, bool, error) {
		if items == nil {
			d, ok := v.(*Dict)
			if _, isUndef := v.(*undefined); !ok && !isUndef {
				return nil, false, typeErrorf("Can only get item pairs from a mapping.")
			}
			it := indexIterator(d.Len(), (&view{d, "items"}).at)
			items = &it
		}
		return items.next()
	}), nil
}

func filterJoin(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "d", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	sep := a[0]
	if sep == missing {
		sep = ""
	}
	get := getter(st, a[1], false, missing)
	for i, item := range items {
		if items[i], err = get(item); err != nil {
			return nil, err
		}
	}
	if st.escape {
		return joinSafely(st, items, sep)
	}
	parts, err := texts(st, append(items, sep))
	if err != nil {
		return nil, err
	}
	return joinTexts(st, parts[:len(items)], parts[len(items)])
}

// dotted cuts an attribute path at its dots; digits are indices.
func dotted(s string) []Value {
	var parts []Value
	for part := range strings.SplitSeq(s, ".") {
		if i, err := strconv.ParseInt(part, 10, 64); err == nil && i >= 0 && part[0] != '+' {
			parts = append(parts, i)
		} else {
			parts = append(parts, part)
		}
	}
	return parts
}

// filterBatch returns rows of linecount items. As in Jinja, a row is complete when its length equals
// linecount, which is seen when the next item arrives.
func filterBatch(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(1, "linecount", "fill_with")
	if err != nil {
		return nil, err
	}
	var rest iterator
	var row []Value
	return newGenerator("generator", v, func() (Value, bool, error) {
		if rest.next == nil {
			if rest, err = iterate(st, v); err != nil {
				return nil, false, err
			}
		}
		for {
			item, ok, err := rest.next()
			if err == nil {
				err = st.growList(1)
			}
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			full, err := equal(st, int64(len(row)), a[0])
			if err != nil {
				return nil, false, err
			}
			if full {
				out := row
				row = []Value{item}
				return &List{Items: out}, true, nil
			}
			row = append(row, item)
		}
		if len(row) == 0 {
			return nil, false, nil
		}
		out := row
		row = nil
		if fill := a[1]; fill != missing && fill != nil {
			out, err = filled(st, out, fill, a[0])
		}
		return &List{Items: out}, true, err
	}), nil
}

// filled returns a row with copies of fill, up to size items.
func filled(st *state, row []Value, fill, size Value) ([]Value, error) {
	less, err := relation(st, "<", int64(len(row)), size)
	if err != nil || !less {
		return row, err
	}
	n, err := intArg(size, 0)
	if err == nil {
		err = st.growList(int(min(n, 1<<40)))
	}
	if err != nil {
		return nil, err
	}
	for int64(len(row)) < n {
		row = append(row, fill)
	}
	return row, nil
}

func filterSlice(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(1, "slices", "fill_with")
	if err != nil {
		return nil, err
	}
	items := []Value(nil)
	number, offset := int64(-1), 0
	return newGenerator("generator", v, func() (Value, bool, error) {
		slices, err := intArg(a[0], 0)
		if err == nil && number < 0 {
			if items, err = collect(st, v); err == nil && slices == 0 {
				err = typeErrorf("integer division or modulo by zero")
			}
		}
		if err != nil {
			return nil, false, err
		}
		number++
		if number >= slices {
			return nil, false, nil
		}
		size := int64(len(items)) / slices
		if err := st.growList(int(size) + 2); err != nil {
			return nil, false, err
		}
		extra := number < int64(len(items))%slices
		end := offset + int(size)
		if extra {
			end++
		}
		part := append([]Value(nil), items[offset:end]...)
		offset = end
		if fill := a[1]; fill != missing && fill != nil && !extra {
			part = append(part, fill)
		}
		return &List{Items: part}, true, nil
	}), nil
}
