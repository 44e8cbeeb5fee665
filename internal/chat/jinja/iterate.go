package jinja

import (
	"unicode/utf8"
)

// iterator walks over items once. n is the number of items, or -1 if it is unknown before they are
// read.
type iterator struct {
	next func() (Value, bool, error)
	n    int
}

func itemsIterator(items []Value) iterator {
	return indexIterator(len(items), func(i int) Value { return items[i] })
}

func indexIterator(n int, at func(i int) Value) iterator {
	i := 0
	return iterator{n: n, next: func() (Value, bool, error) {
		if i >= n {
			return nil, false, nil
		}
		v := at(i)
		i++
		return v, true, nil
	}}
}

// iterate returns iter(v).
func iterate(st *state, v Value) (iterator, error) {
	switch v := v.(type) {
	case *List:
		return itemsIterator(v.Items), nil
	case *Tuple:
		return itemsIterator(v.Items), nil
	case *Dict:
		return itemsIterator(v.keys), nil
	case *view:
		return indexIterator(v.dict.Len(), v.at), nil
	case *rangeValue:
		return indexIterator(int(v.n), v.at), nil
	case *generator:
		return iterator{n: -1, next: v.next}, nil
	case *undefined:
		return itemsIterator(nil), nil
	case string:
		return textIterator(v, v), nil
	case markup:
		return textIterator(string(v), string(v)), nil // characters of Markup are plain text
	case *loopContext:
		return iterator{n: -1, next: func() (Value, bool, error) {
			item, ok, err := v.next()
			return &Tuple{Items: []Value{item, v}}, ok, err
		}}, nil
	}
	return iterator{}, typeErrorf("'%s' object is not iterable", typeName(v))
}

func textIterator(v Value, s string) iterator {
	return iterator{n: utf8.RuneCountInString(s), next: func() (Value, bool, error) {
		if s == "" {
			return nil, false, nil
		}
		_, n := utf8.DecodeRuneInString(s)
		c := s[:n]
		s = s[n:]
		return like(v, c), true, nil
	}}
}

// iterable reports whether iter(v) works, without starting it.
func iterable(v Value) bool {
	switch v.(type) {
	case *List, *Tuple, *Dict, *view, *rangeValue, *generator, *undefined, string, markup, *loopContext:
		return true
	}
	return false
}

// collect returns list(v): a new slice.
func collect(st *state, v Value) ([]Value, error) {
	it, err := iterate(st, v)
	if err != nil {
		return nil, err
	}
	return drain(st, it)
}

func drain(st *state, it iterator) ([]Value, error) {
	if it.n > 0 {
		if err := st.growList(it.n); err != nil {
			return nil, err
		}
	}
	items := make([]Value, 0, max(it.n, 0))
	for {
		v, ok, err := it.next()
		if err != nil {
			return nil, err
		}
		if !ok {
			return items, nil
		}
		if err := st.growList(1); err != nil {
			return nil, err
		}
		items = append(items, v)
	}
}

// lazily returns a generator over v. It reads an element of v only when the template takes it.
// Each item passes through f, which may drop it.
func lazily(st *state, name string, v Value, f func(item Value) (Value, bool, error)) Value {
	var items iterator
	return newGenerator("generator", v, func() (Value, bool, error) {
		if items.next == nil {
			var err error
			if items, err = iterate(st, v); err != nil {
				return nil, false, atFilter(err, name)
			}
		}
		for {
			item, ok, err := items.next()
			if err != nil || !ok {
				return nil, false, err
			}
			if err := st.work(1); err != nil {
				return nil, false, err
			}
			out, keep, err := f(item)
			if err != nil || keep {
				return out, keep, err
			}
		}
	})
}

func atFilter(err error, name string) error {
	if e, ok := err.(*Error); ok && e.Kind == KindPython {
		return typeErrorf("%s: %s", name, e.Message)
	}
	return err
}

// contains returns `item in v`.
func contains(st *state, v, item Value) (bool, error) {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		part, ok := text(item)
		if !ok {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", typeName(item))
		}
		return textContains(st, s, part)
	case *Dict:
		if err := st.keyWork(item); err != nil {
			return false, err
		}
		i, err := v.find(item)
		return i >= 0, err
	case *view:
		if v.name == "keys" {
			i, err := v.dict.find(item)
			return i >= 0, err
		}
	}
	if !iterable(v) {
		return false, typeErrorf("argument of type '%s' is not iterable", typeName(v))
	}
	it, err := iterate(st, v)
	if err != nil {
		return false, err
	}
	for {
		other, ok, err := it.next()
		if err != nil || !ok {
			return false, err
		}
		if err := st.work(1); err != nil {
			return false, err
		}
		if same, err := equal(st, other, item); err != nil || same {
			return same, err
		}
	}
}
