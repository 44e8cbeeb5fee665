package jinja

import (
	"math/big"
)

// maxBits bounds a whole number of a template, about where Python refuses to print one.
const maxBits = 14_284

// bigArithmetic returns i op j for whole numbers that, or whose result, do not fit in 64 bits.
func bigArithmetic(st *state, op string, i, j *big.Int) (Value, error) {
	if err := st.work((i.BitLen() + j.BitLen()) / 64); err != nil {
		return nil, err
	}
	out := new(big.Int)
	switch op {
	case "+":
		return small(out.Add(i, j)), nil
	case "-":
		return small(out.Sub(i, j)), nil
	case "*":
		if i.BitLen()+j.BitLen() > maxBits {
			return nil, tooBig()
		}
		return small(out.Mul(i, j)), nil
	case "**":
		return bigPower(st, i, j)
	}
	if j.Sign() == 0 {
		return nil, typeErrorf("division by zero")
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(i, j).Float64()
		return f, nil
	}
	rest := new(big.Int)
	out.QuoRem(i, j, rest)
	if rest.Sign()*j.Sign() < 0 { // Python rounds down
		out.Sub(out, big.NewInt(1))
		rest.Add(rest, j)
	}
	if op == "%" {
		return small(rest), nil
	}
	return small(out), nil
}

func bigPower(st *state, i, j *big.Int) (Value, error) {
	if j.Sign() < 0 {
		f, _ := number(small(i))
		g, _ := number(small(j))
		return floatArithmetic("**", f, g)
	}
	if !j.IsInt64() || int64(i.BitLen()) > maxBits/max(j.Int64(), 1) {
		return nil, tooBig()
	}
	return small(new(big.Int).Exp(i, j, nil)), st.work(maxBits / 64)
}

func tooBig() error { return failf(KindLimit, "a whole number has more than %d bits", maxBits) }
