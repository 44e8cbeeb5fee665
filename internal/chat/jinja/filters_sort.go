package jinja

import (
	"sort"
	"strings"
)

// sortBy sorts items by their keys, stably.
func sortBy(st *state, items, keys []Value, reverse bool) error {
	order := make([]int, len(items))
	for i := range order {
		order[i] = i
	}
	if err := st.growList(3 * len(items)); err != nil {
		return err
	}
	var failed error
	sort.SliceStable(order, func(i, j int) bool {
		if failed != nil {
			return false
		}
		x, y := keys[order[i]], keys[order[j]]
		if reverse {
			x, y = y, x
		}
		less, unordered, err := compare(st, "<", x, y)
		if err == nil {
			err = st.work(1)
		}
		failed = err
		return less < 0 && !unordered
	})
	sorted, sortedKeys := make([]Value, len(items)), make([]Value, len(items))
	for i, k := range order {
		sorted[i], sortedKeys[i] = items[k], keys[k]
	}
	copy(items, sorted)
	copy(keys, sortedKeys)
	return failed
}

func flag(v Value) bool { return v != missing && truth(v) }

func filterSort(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "reverse", "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	attributes := []Value{a[2]}
	if s, ok := text(a[2]); ok {
		attributes = nil
		for part := range strings.SplitSeq(s, ",") {
			attributes = append(attributes, part)
		}
	}
	gets := make([]func(Value) (Value, error), len(attributes))
	for i, attribute := range attributes {
		gets[i] = getter(st, attribute, !flag(a[1]), missing)
	}
	keys := make([]Value, len(items))
	for i, item := range items {
		parts := make([]Value, len(gets))
		for k, get := range gets {
			if parts[k], err = get(item); err != nil {
				return nil, err
			}
		}
		keys[i] = &List{Items: parts}
	}
	reverse, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	if err := sortBy(st, items, keys, reverse != 0); err != nil {
		return nil, err
	}
	return &List{Items: items}, nil
}

func filterDictSort(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "case_sensitive", "by", "reverse")
	if err != nil {
		return nil, err
	}
	by, _ := text(a[1])
	if a[1] == missing {
		by = "key"
	}
	if by != "key" && by != "value" {
		return nil, failf(KindRuntime, `You can only sort by either "key" or "value"`)
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	d, ok := v.(*Dict)
	if !ok {
		return nil, typeErrorf("'%s' object has no attribute 'items'", typeName(v))
	}
	items, err := collect(st, &view{d, "items"})
	if err != nil {
		return nil, err
	}
	keys := make([]Value, len(items))
	for i := range items {
		keys[i] = d.keys[i]
		if by == "value" {
			keys[i] = d.vals[i]
		}
		if !flag(a[0]) {
			if keys[i], err = foldCase(st, keys[i]); err != nil {
				return nil, err
			}
		}
	}
	reverse, err := intArg(a[2], 0)
	if err != nil {
		return nil, err
	}
	if err := sortBy(st, items, keys, reverse != 0); err != nil {
		return nil, err
	}
	return &List{Items: items}, nil
}

// filterGroupBy sorts by an attribute and makes a (grouper, list) tuple of every
// run of equal ones.
func filterGroupBy(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(1, "attribute", "default", "case_sensitive")
	if err != nil {
		return nil, err
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	fold := !flag(a[2])
	keys := make([]Value, len(items))
	get := getter(st, a[0], fold, a[1])
	for i, item := range items {
		if keys[i], err = get(item); err != nil {
			return nil, err
		}
	}
	if err := sortBy(st, items, keys, false); err != nil {
		return nil, err
	}
	original := getter(st, a[0], false, a[1])
	var groups []Value
	var last *List
	for i, item := range items {
		if i > 0 {
			same, err := equal(st, keys[i-1], keys[i])
			if err != nil {
				return nil, err
			}
			if same {
				last.Items = append(last.Items, item)
				continue
			}
		}
		grouper := keys[i]
		if fold {
			if grouper, err = original(item); err != nil {
				return nil, err
			}
		}
		last = NewList(item)
		groups = append(groups, &Tuple{Items: []Value{grouper, last}, group: true})
	}
	return &List{Items: groups}, st.growList(4 * len(items))
}

func filterUnique(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	get := getter(st, a[1], !flag(a[0]), missing)
	seen := &Dict{}
	return lazily(st, "unique", v, func(item Value) (Value, bool, error) {
		key, err := get(item)
		if err != nil {
			return nil, false, err
		}
		if err := st.keyWork(key); err != nil {
			return nil, false, err
		}
		i, err := seen.find(key)
		if err != nil || i >= 0 {
			return nil, false, err
		}
		seen.set(key, nil)
		return item, true, st.growList(3)
	}), nil
}

// extreme returns min (want -1) or max (want 1): the first of the least or greatest.
func extreme(st *state, v Value, c *args, want int) (Value, error) {
	a, err := c.bind(0, "case_sensitive", "attribute")
	if err != nil {
		return nil, err
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return undef("No aggregated item, sequence was empty."), nil
	}
	get := getter(st, a[1], !flag(a[0]), missing)
	var best, bestKey Value
	for i, item := range items {
		key, err := get(item)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			order, unordered, err := compare(st, map[int]string{-1: "<", 1: ">"}[want], key, bestKey)
			if err != nil {
				return nil, err
			}
			if unordered || order != want {
				continue
			}
		}
		best, bestKey = item, key
	}
	return best, nil
}
