package jinja

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// getAttr returns `v.name`: an attribute first, then a key.
func getAttr(st *state, v Value, name string) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if attr, ok, err := attribute(st, v, name); ok || err != nil {
		return attr, err
	}
	if d, ok := v.(*Dict); ok {
		if item, ok := d.Get(name); ok {
			return item, nil
		}
	}
	return lacking(v, name), nil
}

// getItem returns `v[key]`: an item first, then an attribute.
func getItem(st *state, v, key Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if item, ok, err := item(st, v, key); ok || err != nil {
		return item, err
	}
	if name, ok := text(key); ok {
		if attr, ok, err := attribute(st, v, name); ok || err != nil {
			return attr, err
		}
		return lacking(v, name), nil
	}
	printed, err := repr(st, key)
	return undef("%s has no element %s", describe(v), printed), err
}

// item returns an entry of a dict or sequence, or false if Python raises TypeError or
// LookupError.
func item(st *state, v, key Value) (Value, bool, error) {
	if d, ok := v.(*Dict); ok {
		i, ok := d.get(key)
		return i, ok, st.keyWork(key)
	}
	i, ok := integer(key)
	if !ok {
		return nil, false, nil
	}
	if s, ok := text(v); ok {
		return charAt(st, v, s, i)
	}
	n, at := sequence(v)
	if i < 0 {
		i += int64(n)
	}
	if at == nil || i < 0 || i >= int64(n) {
		return nil, false, nil
	}
	return at(int(i)), true, nil
}

// sequence gives access to the items of a list, tuple or range; nil for others.
func sequence(v Value) (n int, at func(i int) Value) {
	switch v := v.(type) {
	case *List:
		return len(v.Items), func(i int) Value { return v.Items[i] }
	case *Tuple:
		return len(v.Items), func(i int) Value { return v.Items[i] }
	case *rangeValue:
		return int(v.n), v.at
	}
	return 0, nil
}

func charAt(st *state, v Value, s string, i int64) (Value, bool, error) {
	if err := st.work(len(s) / 64); err != nil {
		return nil, false, err
	}
	n := int64(utf8.RuneCountInString(s))
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return nil, false, nil
	}
	lo := runeOffset(s, int(i), int(n))
	_, size := utf8.DecodeRuneInString(s[lo:])
	return like(v, s[lo:lo+size]), true, nil
}

// runeOffset returns the byte offset of character i of the n in s.
func runeOffset(s string, i, n int) int {
	if len(s) == n {
		return i
	}
	for at := range s {
		if i == 0 {
			return at
		}
		i--
	}
	return len(s)
}

// attribute returns getattr(v, name) in the sandbox. For a forbidden attribute it returns an
// undefined value whose use fails with a security error.
func attribute(st *state, v Value, name string) (Value, bool, error) {
	if strings.HasPrefix(name, "_") {
		if _, isNamespace := v.(*namespace); !isNamespace && slices.Contains(dunders, name) {
			return unsafe(v, name), true, nil
		}
		return nil, false, nil
	}
	switch v := v.(type) {
	case string, markup:
		if m := stringMethod(name); m != nil {
			return &callable{name, func(st *state, c *args) (Value, error) {
				s, _ := text(v)
				out, err := m(st, v, s, c)
				var e *Error
				if errors.As(err, &e) && e.Kind == KindUndefined && !strings.HasPrefix(name, "format") {
					err = typeErrorf("%s", e.Message) // methods of str do not know undefined values
				}
				return out, err
			}}, true, nil
		}
	case *List:
		if slices.Contains(listMutators, name) {
			return unsafe(v, name), true, nil
		}
		return sequenceAttr(v, v.Items, name)
	case *Tuple:
		if v.group && (name == "grouper" || name == "list") {
			return v.Items[slices.Index([]string{"grouper", "list"}, name)], true, nil
		}
		return sequenceAttr(v, v.Items, name)
	case *Dict:
		if slices.Contains(dictMutators, name) {
			return unsafe(v, name), true, nil
		}
		if m := dictMethod(name); m != nil {
			return &callable{name, func(st *state, c *args) (Value, error) { return m(st, v, c) }}, true, nil
		}
	case *namespace:
		attr, ok := v.attrs.Get(name)
		return attr, ok, nil
	case *loopContext:
		return v.attr(st, name)
	case *blockReference:
		return st.block(name)
	case *macro:
		attr, ok := v.attr(name)
		return attr, ok, nil
	case *cycler:
		return v.attr(name)
	case *rangeValue:
		return rangeAttr(v, name)
	case *callable:
		if v.name == "dict" && name == "fromkeys" {
			return &callable{"fromkeys", dictFromKeys}, true, nil
		}
	case bool, int64, float64:
		return numberAttr(v, name)
	}
	return nil, false, nil
}

// unsafe returns the sandbox's value of a forbidden attribute.
func unsafe(v Value, name string) Value {
	u := undef("access to attribute '%s' of '%s' object is unsafe.", name, typeName(v))
	u.kind = KindSecurity
	return u
}

var (
	listMutators = []string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
	// dunders are the underscored attributes Python's built-in values have.
	dunders = []string{"__class__", "__delattr__", "__dir__", "__doc__", "__eq__", "__format__", "__ge__",
		"__getattribute__", "__getstate__", "__gt__", "__hash__", "__init__", "__init_subclass__", "__le__", "__lt__",
		"__module__", "__ne__", "__new__", "__reduce__", "__reduce_ex__", "__repr__", "__setattr__", "__sizeof__",
		"__str__", "__subclasshook__", "__call__", "__contains__", "__getitem__", "__iter__", "__len__", "__globals__"}
)

// sequenceAttr returns a method of a list or tuple that changes nothing.
func sequenceAttr(v Value, items []Value, name string) (Value, bool, error) {
	var fn func(st *state, c *args) (Value, error)
	_, isList := v.(*List)
	switch {
	case name == "count":
		fn = func(st *state, c *args) (Value, error) { return countOf(st, items, c) }
	case name == "index":
		fn = func(st *state, c *args) (Value, error) { return indexOf(st, items, c) }
	case name == "copy" && isList:
		fn = func(st *state, c *args) (Value, error) {
			if err := c.positional(0, 0); err != nil {
				return nil, err
			}
			return &List{Items: slices.Clone(items)}, st.growList(len(items))
		}
	default:
		return nil, false, nil
	}
	return &callable{name, fn}, true, nil
}

func countOf(st *state, items []Value, c *args) (Value, error) {
	if err := c.positional(1, 1); err != nil {
		return nil, err
	}
	n := int64(0)
	for _, item := range items {
		same, err := equal(st, item, c.pos[0])
		if err == nil {
			err = st.work(1)
		}
		if err != nil {
			return nil, err
		}
		if same {
			n++
		}
	}
	return n, nil
}

func indexOf(st *state, items []Value, c *args) (Value, error) {
	if err := c.positional(1, 3); err != nil {
		return nil, err
	}
	from, to, err := bounds(c.pos[1:], len(items))
	if err != nil {
		return nil, err
	}
	for i := from; i < to; i++ {
		same, err := equal(st, items[i], c.pos[0])
		if err == nil {
			err = st.work(1)
		}
		if err != nil {
			return nil, err
		}
		if same {
			return int64(i), nil
		}
	}
	return nil, typeErrorf("the value is not in the list")
}

// bounds reads optional start and end arguments as a slice of n items does.
func bounds(pos []Value, n int) (from, to int, err error) {
	to = n
	for k, p := range []*int{&from, &to} {
		if k >= len(pos) || pos[k] == nil {
			continue
		}
		i, err := intArg(pos[k], 0)
		if err != nil {
			return 0, 0, err
		}
		if i < 0 {
			i += int64(n)
		}
		*p = int(min(max(i, 0), int64(n)))
		if k == 0 && i > int64(n) { // beyond the end there is nothing, not even the empty text
			return n + 1, 0, nil
		}
	}
	return from, to, nil
}

func rangeAttr(r *rangeValue, name string) (Value, bool, error) {
	switch name {
	case "start":
		return r.start, true, nil
	case "stop":
		return r.stop, true, nil
	case "step":
		return r.step, true, nil
	case "count", "index":
		items := make([]Value, r.n)
		for i := range items {
			items[i] = r.at(i)
		}
		return sequenceAttr(nil, items, name)
	}
	return nil, false, nil
}

// numberAttr returns the plain attributes and is_integer of numbers.
func numberAttr(v Value, name string) (Value, bool, error) {
	i, isInt := integer(v)
	switch name {
	case "real":
		if isInt {
			return i, true, nil
		}
		return v, true, nil
	case "imag":
		if isInt {
			return int64(0), true, nil
		}
		return 0.0, true, nil
	case "numerator", "denominator":
		if !isInt {
			return nil, false, nil
		}
		if name == "denominator" {
			i = 1
		}
		return i, true, nil
	case "bit_length", "bit_count", "conjugate", "as_integer_ratio", "hex":
		return numberMethod(v, name)
	case "is_integer":
		if f, ok := v.(float64); ok {
			return &callable{name, func(_ *state, c *args) (Value, error) {
				return f == float64(int64(f)), c.positional(0, 0)
			}}, true, nil
		}
	}
	return nil, false, nil
}

// sliceable reports whether v is a text, list, tuple or range.
func sliceable(v Value) bool {
	_, isText := text(v)
	_, at := sequence(v)
	return isText || at != nil
}

// slice returns v[start:stop:step]; a nil bound is left out.
func slice(st *state, v, start, stop, step Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	s, isText := text(v)
	n := 0
	if isText {
		n = utf8.RuneCountInString(s)
		if err := st.work(n / 16); err != nil {
			return nil, err
		}
	} else if n, _ = sequence(v); !sliceable(v) {
		return nil, typeErrorf("'%s' object is not subscriptable with a slice", typeName(v))
	}
	from, to, count, by, err := sliceBounds(n, start, stop, step)
	if err != nil {
		return nil, err
	}
	switch {
	case isText:
		return sliceText(st, v, s, n, from, count, by)
	case typeName(v) == "range":
		r := v.(*rangeValue)
		return &rangeValue{r.start + int64(from)*r.step, r.start + int64(to)*r.step, r.step * int64(by), int64(count)}, nil
	}
	if err := st.growList(count); err != nil {
		return nil, err
	}
	_, at := sequence(v)
	items := make([]Value, count)
	for i := range items {
		items[i] = at(from + i*by)
	}
	if _, ok := v.(*Tuple); ok {
		return &Tuple{Items: items}, nil
	}
	return &List{Items: items}, nil
}

// sliceBounds turns Python's slice bounds into a first index, the index it stops before, a count and a step.
func sliceBounds(n int, start, stop, step Value) (from, to, count, by int, err error) {
	bound := func(v Value, otherwise int64) int64 {
		if v == nil || err != nil {
			return otherwise
		}
		i, ok := integer(v)
		if !ok {
			err = typeErrorf("slice indices must be integers or None")
		}
		return i
	}
	k := bound(step, 1)
	if err == nil && k == 0 {
		err = typeErrorf("slice step cannot be zero")
	}
	k = min(max(k, -1<<31), 1<<31)
	low, high := int64(0), int64(n)
	first, last := low, high
	if k < 0 {
		low, high = -1, int64(n)-1
		first, last = high, low
	}
	clamp := func(v Value, otherwise int64) int64 {
		if v == nil {
			return otherwise
		}
		i := bound(v, otherwise)
		if i < 0 {
			i += int64(n)
		}
		return min(max(i, low), high)
	}
	first, last = clamp(start, first), clamp(stop, last)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	size := int64(0)
	switch {
	case k > 0 && first < last:
		size = (last-first-1)/k + 1
	case k < 0 && first > last:
		size = (first-last-1)/-k + 1
	}
	return int(first), int(last), int(size), int(k), nil
}

func sliceText(st *state, v Value, s string, n, from, count, by int) (Value, error) {
	if count == 0 {
		return like(v, ""), nil
	}
	if by == 1 {
		lo := runeOffset(s, from, n)
		hi := lo + runeOffset(s[lo:], count, n-from)
		return like(v, s[lo:hi]), nil
	}
	if err := st.grow(4 * n); err != nil {
		return nil, err
	}
	runes := []rune(s)
	out := make([]rune, count)
	for i := range out {
		out[i] = runes[from+i*by]
	}
	return like(v, string(out)), nil
}
