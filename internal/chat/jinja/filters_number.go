package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

func numberFilter(name string) filterFunc {
	switch name {
	case "abs":
		return filterAbs
	case "int":
		return filterInt
	case "float":
		return filterFloat
	case "round":
		return filterRound
	case "sum":
		return filterSum
	case "filesizeformat":
		return filterFileSize
	}
	return nil
}

func filterAbs(_ *state, v Value, c *args) (Value, error) {
	if _, err := c.bind(0); err != nil {
		return nil, err
	}
	if i, ok := integer(v); ok {
		if i < 0 {
			return unary("-", i)
		}
		return i, nil
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if n, ok := v.(*big.Int); ok {
		return new(big.Int).Abs(n), nil
	}
	return nil, typeErrorf("bad operand type for abs(): '%s'", typeName(v))
}

// parsePythonInt returns int(s, base) for text, or false if s is not a number.
func parsePythonInt(s string, base int64) (Value, bool) {
	s = strings.TrimFunc(s, IsSpace)
	if len(s) > 4300 || base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 || digits == "" {
		return nil, false
	}
	if base == 16 || base == 8 || base == 2 {
		mark := map[int64]string{16: "0x", 8: "0o", 2: "0b"}[base]
		if strings.HasPrefix(strings.ToLower(digits), mark) {
			digits = strings.TrimPrefix(digits[2:], "_")
		}
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return nil, false
	}
	if base != 0 {
		digits = strings.ReplaceAll(digits, "_", "")
	}
	n, ok := new(big.Int).SetString(digits, int(base))
	if !ok || digits[0] == '-' || digits[0] == '+' {
		return nil, false
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	return small(n), true
}

// parsePythonFloat returns float(s) for text, or false if s is not a number.
func parsePythonFloat(s string) (float64, bool) {
	s = strings.ToLower(strings.TrimFunc(s, IsSpace))
	bare := strings.TrimLeft(s, "+-")
	if strings.HasPrefix(bare, "0x") || strings.HasPrefix(bare, "_") || strings.HasSuffix(s, "_") || strings.Contains(s, "__") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// floatToInt returns int(f).
func floatToInt(f float64) (Value, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, typeErrorf("cannot convert float %s to integer", floatRepr(f))
	}
	n, _ := big.NewFloat(math.Trunc(f)).Int(nil)
	return small(n), nil
}

func filterInt(_ *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "default", "base")
	if err != nil {
		return nil, err
	}
	otherwise := a[0]
	if otherwise == missing {
		otherwise = int64(0)
	}
	switch x := v.(type) {
	case *undefined:
		return nil, x.err()
	case bool, int64:
		i, _ := integer(v)
		return i, nil
	case *big.Int:
		return x, nil
	case float64:
		if math.IsNaN(x) {
			return otherwise, nil
		}
		return floatToInt(x)
	}
	s, ok := text(v)
	if !ok {
		return otherwise, nil
	}
	base, err := intArg(a[1], 10)
	if isA[*undefined](a[1]) {
		base, err = 1, nil // no base: the text may still be a float
	}
	if err != nil {
		return nil, err
	}
	if n, ok := parsePythonInt(s, base); ok {
		return n, nil
	}
	if f, ok := parsePythonFloat(s); ok {
		if n, err := floatToInt(f); err == nil {
			return n, nil
		}
	}
	return otherwise, nil
}

func filterFloat(_ *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "default")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if f, ok := number(v); ok {
		return f, nil
	}
	if s, ok := text(v); ok {
		if f, ok := parsePythonFloat(s); ok {
			return f, nil
		}
	}
	if a[0] == missing {
		return 0.0, nil
	}
	return a[0], nil
}

func filterRound(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "precision", "method")
	if err != nil {
		return nil, err
	}
	method, _ := text(a[1])
	if a[1] == missing {
		method = "common"
	}
	if method != "common" && method != "ceil" && method != "floor" {
		return nil, failf(KindRuntime, "method must be common, ceil or floor")
	}
	if f, ok := v.(float64); ok && method == "common" && a[0] == nil {
		return floatToInt(math.RoundToEven(f)) // round(f, None) is an int
	}
	precision, err := intArg(a[0], 0)
	if err != nil {
		return nil, err
	}
	precision = min(max(precision, -400), 400)
	if method == "common" {
		return roundTo(v, int(precision))
	}
	scale, err := arithmetic(st, "**", int64(10), precision)
	if err != nil {
		return nil, err
	}
	scaled, err := arithmetic(st, "*", v, scale)
	if err != nil {
		return nil, err
	}
	f, ok := number(scaled)
	if !ok {
		return nil, typeErrorf("must be real number, not %s", typeName(v))
	}
	if method == "ceil" {
		f = math.Ceil(f)
	} else {
		f = math.Floor(f)
	}
	if s, ok := number(scale); ok && math.Abs(f) >= 1<<62 && !math.IsInf(f, 0) {
		return f / s, nil
	}
	whole, err := floatToInt(f)
	if err != nil {
		return nil, err
	}
	return arithmetic(st, "/", whole, scale)
}

// roundTo returns round(v, precision): half to even, exact in the decimals of v.
func roundTo(v Value, precision int) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	if i, ok := integer(v); ok {
		if precision >= 0 {
			return i, nil
		}
		if precision < -19 {
			return int64(0), nil
		}
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-precision)), nil)
		half, rest := new(big.Int).DivMod(big.NewInt(i), unit, new(big.Int))
		switch c := rest.Lsh(rest, 1).Cmp(unit); {
		case c > 0, c == 0 && half.Bit(0) == 1:
			half.Add(half, big.NewInt(1))
		}
		return small(half.Mul(half, unit)), nil
	}
	f, ok := v.(float64)
	if !ok {
		return nil, typeErrorf("type %s doesn't define __round__ method", typeName(v))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f, nil
	}
	if precision >= 0 {
		g, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', precision, 64), 64)
		return g, nil
	}
	unit := math.Pow(10, float64(-precision))
	if math.IsInf(unit, 0) {
		return math.Copysign(0, f), nil
	}
	return math.RoundToEven(f/unit) * unit, nil
}

func filterSum(st *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	total := a[1]
	if total == missing {
		total = int64(0)
	}
	if _, ok := text(total); ok {
		return nil, typeErrorf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	items, err := collect(st, v)
	if err != nil {
		return nil, err
	}
	get := getter(st, a[0], false, missing)
	for _, item := range items {
		if item, err = get(item); err != nil {
			return nil, err
		}
		if total, err = arithmetic(st, "+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func filterFileSize(_ *state, v Value, c *args) (Value, error) {
	a, err := c.bind(0, "binary")
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.err()
	}
	size, ok := number(v)
	if s, isText := text(v); isText {
		size, ok = parsePythonFloat(s)
	}
	if !ok {
		return nil, typeErrorf("filesizeformat needs a number, not %s", typeName(v))
	}
	base, suffix := 1000.0, "B"
	prefixes := "kMGTPEZY"
	if flag(a[0]) {
		base, suffix, prefixes = 1024, "iB", "KMGTPEZY"
	}
	switch {
	case size == 1:
		return "1 Byte", nil
	case size < base:
		return fmt.Sprintf("%d Bytes", int64(size)), nil
	}
	unit := base
	for i := range prefixes {
		unit *= base
		if size < unit || i == len(prefixes)-1 {
			return fmt.Sprintf("%.1f %c%s", base*size/unit, prefixes[i], suffix), nil
		}
	}
	return nil, typeErrorf("filesizeformat: not a size")
}
