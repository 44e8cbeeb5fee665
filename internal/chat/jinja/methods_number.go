package jinja

import (
	"math/big"
	"math/bits"
	"strconv"
	"strings"
)

// numberMethod returns a method without arguments of an int, a bool or a float, or false if its type
// has none of that name.
func numberMethod(v Value, name string) (Value, bool, error) {
	var result Value
	i, isInt := integer(v)
	f, isFloat := v.(float64)
	magnitude := uint64(max(i, -i))
	switch {
	case name == "bit_length" && isInt:
		result = int64(bits.Len64(magnitude))
	case name == "bit_count" && isInt:
		result = int64(bits.OnesCount64(magnitude))
	case name == "conjugate" && isInt:
		result = i
	case name == "conjugate":
		result = f
	case name == "as_integer_ratio" && isInt:
		result = &Tuple{Items: []Value{i, int64(1)}}
	case name == "as_integer_ratio":
		ratio := new(big.Rat).SetFloat64(f)
		if ratio == nil {
			return nil, false, typeErrorf("cannot convert %s to integer ratio", floatRepr(f))
		}
		result = &Tuple{Items: []Value{small(ratio.Num()), small(ratio.Denom())}}
	case name == "hex" && isFloat:
		result = floatHex(f)
	default:
		return nil, false, nil
	}
	return &callable{name, func(_ *state, c *args) (Value, error) { return result, c.positional(0, 0) }}, true, nil
}

// floatHex returns float.hex(f): all 13 digits, and an exponent without leading zeros.
func floatHex(f float64) string {
	s := strconv.FormatFloat(f, 'x', 13, 64)
	mantissa, exponent, ok := strings.Cut(s, "p")
	if !ok {
		return floatRepr(f) // inf, nan
	}
	if f == 0 {
		return strings.Replace(mantissa, "0x0.0000000000000", "0x0.0", 1) + "p+0"
	}
	n, _ := strconv.Atoi(exponent)
	sign := "+"
	if n < 0 {
		sign = ""
	}
	return mantissa + "p" + sign + strconv.Itoa(n)
}
