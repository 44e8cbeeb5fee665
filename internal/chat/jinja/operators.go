package jinja

import (
	"math"
	"math/big"
	"strings"
)

// relation returns one comparison: a op b.
func relation(st *state, op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return equal(st, a, b)
	case "!=":
		same, err := equal(st, a, b)
		return !same, err
	case "in":
		return contains(st, b, a)
	case "not in":
		ok, err := contains(st, b, a)
		return !ok, err
	}
	c, unordered, err := compare(st, op, a, b)
	if err != nil || unordered {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func unary(op string, v Value) (Value, error) {
	if op == "not" {
		return !truth(v), nil
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if i, ok := integer(v); ok {
		if op == "+" {
			return i, nil
		}
		if i == math.MinInt64 {
			return new(big.Int).Neg(big.NewInt(i)), nil
		}
		return -i, nil
	}
	if f, ok := v.(float64); ok {
		if op == "+" {
			return f, nil
		}
		return -f, nil
	}
	if n, ok := v.(*big.Int); ok {
		if op == "+" {
			return n, nil
		}
		return small(new(big.Int).Neg(n)), nil
	}
	return nil, typeErrorf("bad operand type for unary %s: '%s'", op, typeName(v))
}

// errOverflow says that a result does not fit in 64 bits. It does not leave this file.
var errOverflow = typeErrorf("integer overflow")

// bothInts returns two whole numbers of any size.
func bothInts(a, b Value) (m, n *big.Int, ok bool) {
	m, mok := bigInt(a)
	n, nok := bigInt(b)
	return m, n, mok && nok
}

// arithmetic returns a op b for + - * / // % **.
func arithmetic(st *state, op string, a, b Value) (Value, error) {
	if s, ok := text(a); ok && op == "%" { // undefined values, too
		return formatPercent(st, a, s, b)
	}
	for _, v := range [...]Value{a, b} {
		if u, ok := v.(*undefined); ok {
			return nil, u.err()
		}
	}
	i, iok := integer(a)
	j, jok := integer(b)
	if iok && jok {
		if v, err := intArithmetic(op, i, j); err != errOverflow {
			return v, err
		}
	}
	if m, n, ok := bothInts(a, b); ok {
		return bigArithmetic(st, op, m, n)
	}
	switch op {
	case "+":
		if v, ok, err := add(st, a, b); ok {
			return v, err
		}
	case "*":
		if jok {
			if v, ok, err := repeat(st, a, j); ok {
				return v, err
			}
		}
		if iok {
			if v, ok, err := repeat(st, b, i); ok {
				return v, err
			}
		}
	}
	f, fok := number(a)
	g, gok := number(b)
	if fok && gok {
		return floatArithmetic(op, f, g)
	}
	if _, ok := a.(string); ok && op == "+" {
		return nil, typeErrorf(`can only concatenate str (not "%s") to str`, typeName(b))
	}
	return nil, typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// add joins texts, lists or tuples. Adding plain text to Markup escapes it.
func add(st *state, a, b Value) (Value, bool, error) {
	if s, ok := text(a); ok {
		t, ok := text(b)
		if !ok {
			return nil, false, nil
		}
		_, am := a.(markup)
		_, bm := b.(markup)
		if am || bm {
			if !am {
				s = escapeHTML(s)
			}
			if !bm {
				t = escapeHTML(t)
			}
		}
		if err := st.grow(len(s) + len(t)); err != nil {
			return nil, true, err
		}
		if am || bm {
			return markup(s + t), true, nil
		}
		return s + t, true, nil
	}
	x, y, ok := bothSequences(a, b)
	if !ok {
		return nil, false, nil
	}
	if err := st.growList(len(x) + len(y)); err != nil {
		return nil, true, err
	}
	items := make([]Value, 0, len(x)+len(y))
	items = append(append(items, x...), y...)
	if _, ok := a.(*Tuple); ok {
		return &Tuple{Items: items}, true, nil
	}
	return &List{Items: items}, true, nil
}

// repeat returns a text, list or tuple n times.
func repeat(st *state, v Value, n int64) (Value, bool, error) {
	n = max(n, 0)
	tooMuch := func(size int) bool { return size > 0 && n > int64(st.limits.Output/size) }
	if s, ok := text(v); ok {
		if tooMuch(len(s)) {
			return nil, true, st.grow(st.limits.Output + 1)
		}
		if err := st.grow(len(s) * int(n)); err != nil || s == "" {
			return like(v, ""), true, err
		}
		return like(v, strings.Repeat(s, int(n))), true, nil
	}
	items, _, ok := bothSequences(v, v)
	if !ok {
		return nil, false, nil
	}
	if tooMuch(16 * len(items)) {
		return nil, true, st.grow(st.limits.Output + 1)
	}
	if err := st.growList(len(items) * int(n)); err != nil {
		return nil, true, err
	}
	var out []Value
	if len(items) > 0 {
		for range n {
			out = append(out, items...)
		}
	}
	if _, ok := v.(*Tuple); ok {
		return &Tuple{Items: out}, true, nil
	}
	return &List{Items: out}, true, nil
}

func intArithmetic(op string, i, j int64) (Value, error) {
	switch op {
	case "+":
		if s := i + j; (s > i) == (j > 0) {
			return s, nil
		}
		return nil, errOverflow
	case "-":
		if d := i - j; (d < i) == (j > 0) {
			return d, nil
		}
		return nil, errOverflow
	case "*":
		return intMultiply(i, j)
	case "**":
		return intPower(i, j)
	}
	if j == 0 {
		if op == "/" {
			return nil, typeErrorf("division by zero")
		}
		return nil, typeErrorf("integer division or modulo by zero")
	}
	switch op {
	case "/":
		return float64(i) / float64(j), nil
	case "//":
		if i == math.MinInt64 && j == -1 {
			return nil, errOverflow
		}
		q := i / j
		if i%j != 0 && (i < 0) != (j < 0) {
			q--
		}
		return q, nil
	}
	if j == -1 {
		return int64(0), nil
	}
	r := i % j
	if r != 0 && (r < 0) != (j < 0) {
		r += j
	}
	return r, nil
}

func intMultiply(i, j int64) (Value, error) {
	if i == 0 || j == 0 {
		return int64(0), nil
	}
	p := i * j
	if p/j != i || i == -1 && j == math.MinInt64 || j == -1 && i == math.MinInt64 {
		return nil, errOverflow
	}
	return p, nil
}

func intPower(i, j int64) (Value, error) {
	if j < 0 {
		if i == 0 {
			return nil, typeErrorf("0.0 cannot be raised to a negative power")
		}
		return power(float64(i), float64(j)), nil
	}
	switch i {
	case 0, 1:
		if j == 0 {
			return int64(1), nil
		}
		return i, nil
	case -1:
		return 1 - 2*(j&1), nil
	}
	result := Value(int64(1))
	for range j { // ends by overflow after at most 63 turns
		var err error
		if result, err = intMultiply(result.(int64), i); err != nil {
			return nil, err
		}
	}
	return result, nil
}

func floatArithmetic(op string, f, g float64) (Value, error) {
	switch op {
	case "+":
		return f + g, nil
	case "-":
		return f - g, nil
	case "*":
		return f * g, nil
	case "**":
		if f == 0 && g < 0 {
			return nil, typeErrorf("0.0 cannot be raised to a negative power")
		}
		p := power(f, g)
		if math.IsInf(p, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) || math.IsNaN(p) && !math.IsNaN(f) && !math.IsNaN(g) {
			return nil, typeErrorf("numerical result out of range")
		}
		return p, nil
	}
	if g == 0 {
		return nil, typeErrorf("float division or modulo by zero")
	}
	if op == "/" {
		return f / g, nil
	}
	mod := math.Mod(f, g)
	if mod != 0 && (mod < 0) != (g < 0) {
		mod += g
	}
	if op == "%" {
		if mod == 0 {
			mod = math.Copysign(0, g)
		}
		return mod, nil
	}
	q := (f - mod) / g
	if q == 0 {
		return math.Copysign(0, f/g), nil
	}
	floor := math.Floor(q)
	if q-floor > 0.5 {
		floor++
	}
	return floor, nil
}
