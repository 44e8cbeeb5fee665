package jinja

import (
	"math"
	"math/big"
	"strings"
)

// equal returns a == b. It counts its work, as values may be large.
func equal(st *state, a, b Value) (bool, error) { return equalAt(st, a, b, 0) }

func equalAt(st *state, a, b Value, depth int) (bool, error) {
	if depth > maxNesting {
		return false, failf(KindLimit, "maximum recursion depth exceeded in comparison")
	}
	if s, ok := text(a); ok {
		t, ok := text(b)
		if !ok || len(s) != len(t) {
			return false, nil
		}
		return s == t, st.work(len(s) / 16)
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	case *big.Int:
		c, ok := b.(*big.Int)
		return ok && a.Cmp(c) == 0, nil
	case *List:
		if c, ok := b.(*List); ok {
			return equalItems(st, a.Items, c.Items, depth)
		}
		return false, nil
	case *Tuple:
		if c, ok := b.(*Tuple); ok {
			return equalItems(st, a.Items, c.Items, depth)
		}
		return false, nil
	case *Dict:
		if c, ok := b.(*Dict); ok {
			return equalDicts(st, a, c, depth)
		}
		return false, nil
	case *view:
		if c, ok := b.(*view); ok && a.name != "values" && c.name != "values" {
			return equalViews(st, a, c)
		}
	case *rangeValue:
		c, ok := b.(*rangeValue)
		return ok && a.n == c.n && (a.n == 0 || a.start == c.start && (a.n == 1 || a.step == c.step)), nil
	}
	return equalNumbers(a, b), nil
}

// equalNumbers compares numbers, and anything else by identity.
func equalNumbers(a, b Value) bool {
	i, iok := integer(a)
	j, jok := integer(b)
	if iok && jok {
		return i == j
	}
	f, fok := number(a)
	g, gok := number(b)
	if fok && gok {
		if iok || jok { // int against float: no rounding may make them equal
			return f == g && (math.Abs(f) < 1<<53 || sameInteger(a, b))
		}
		return f == g
	}
	return !fok && !gok && a == b
}

func sameInteger(a, b Value) bool {
	return compareBig(a, b) == 0
}

// compareBig compares two numbers without rounding; NaN compares as 0.
func compareBig(a, b Value) int {
	exact := func(v Value) *big.Float {
		if i, ok := integer(v); ok {
			return new(big.Float).SetInt64(i)
		}
		switch v := v.(type) {
		case *big.Int:
			return new(big.Float).SetInt(v)
		case float64:
			if !math.IsNaN(v) {
				return new(big.Float).SetFloat64(v)
			}
		}
		return new(big.Float)
	}
	return exact(a).Cmp(exact(b))
}

func equalItems(st *state, a, b []Value, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if err := st.work(1); err != nil {
			return false, err
		}
		if same, err := equalAt(st, a[i], b[i], depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// equalViews compares keys or items as sets.
func equalViews(st *state, a, b *view) (bool, error) {
	if a.dict.Len() != b.dict.Len() {
		return false, nil
	}
	for i := range a.dict.Len() {
		if ok, err := contains(st, b, a.at(i)); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func equalDicts(st *state, a, b *Dict, depth int) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for i, k := range a.keys {
		if err := st.work(1); err != nil {
			return false, err
		}
		w, ok := b.get(k)
		if !ok {
			return false, nil
		}
		if same, err := equalAt(st, a.vals[i], w, depth+1); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// compare orders a and b as Python's < does: negative, zero or positive. Values
// without an order are an error that names op. unordered reports a NaN.
func compare(st *state, op string, a, b Value) (order int, unordered bool, err error) {
	return compareAt(st, op, a, b, 0)
}

func compareAt(st *state, op string, a, b Value, depth int) (int, bool, error) {
	for _, v := range []Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return 0, false, u.err()
		}
	}
	if s, ok := text(a); ok {
		if t, ok := text(b); ok {
			return strings.Compare(s, t), false, st.work(1 + min(len(s), len(t))/16)
		}
	}
	if i, ok := integer(a); ok {
		if j, ok := integer(b); ok {
			return threeWay(i, j), false, nil
		}
	}
	f, fok := number(a)
	g, gok := number(b)
	if fok && gok {
		switch {
		case math.IsNaN(f) || math.IsNaN(g):
			return 0, true, nil
		case f < g:
			return -1, false, nil
		case f > g:
			return 1, false, nil
		}
		return compareBig(a, b), false, nil // equal as floats: an int may be rounded
	}
	if x, y, ok := bothSequences(a, b); ok && depth < maxNesting {
		return compareItems(st, op, x, y, depth)
	}
	return 0, false, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
}

func threeWay(i, j int64) int {
	switch {
	case i < j:
		return -1
	case i > j:
		return 1
	}
	return 0
}

func bothSequences(a, b Value) (x, y []Value, ok bool) {
	switch a := a.(type) {
	case *List:
		if b, ok := b.(*List); ok {
			return a.Items, b.Items, true
		}
	case *Tuple:
		if b, ok := b.(*Tuple); ok {
			return a.Items, b.Items, true
		}
	}
	return nil, nil, false
}

func compareItems(st *state, op string, x, y []Value, depth int) (int, bool, error) {
	for i := range min(len(x), len(y)) {
		if err := st.work(1); err != nil {
			return 0, false, err
		}
		same, err := equalAt(st, x[i], y[i], depth+1)
		if err != nil {
			return 0, false, err
		}
		if !same {
			return compareAt(st, op, x[i], y[i], depth+1)
		}
	}
	return threeWay(int64(len(x)), int64(len(y))), false, nil
}
