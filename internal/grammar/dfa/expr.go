package dfa

import "slices"

// Unbounded is the maximum of a repetition without a maximum.
const Unbounded = -1

type kind uint8

const (
	kindEmpty kind = iota // the empty string
	kindNone              // no string at all
	kindByte              // one byte of lo to hi
	kindConcat
	kindAlt
	kindRepeat
)

// An Expr is a regular expression over bytes. It does not change and may be a part of several
// others.
type Expr struct {
	kind     kind
	lo, hi   byte
	min, max int
	subs     []*Expr
}

var (
	empty = &Expr{kind: kindEmpty}
	none  = &Expr{kind: kindNone}
)

// Empty matches the empty string.
func Empty() *Expr { return empty }

// None matches nothing.
func None() *Expr { return none }

// Byte matches one byte from lo to hi.
func Byte(lo, hi byte) *Expr { return &Expr{kind: kindByte, lo: lo, hi: hi} }

// Literal matches s.
func Literal(s string) *Expr {
	subs := make([]*Expr, len(s))
	for i := range len(s) {
		subs[i] = Byte(s[i], s[i])
	}
	return Concat(subs...)
}

// Concat matches the expressions one after the other.
func Concat(subs ...*Expr) *Expr {
	switch len(subs) {
	case 0:
		return empty
	case 1:
		return subs[0]
	}
	return &Expr{kind: kindConcat, subs: subs}
}

// Alt matches one of the expressions.
func Alt(subs ...*Expr) *Expr {
	switch len(subs) {
	case 0:
		return none
	case 1:
		return subs[0]
	}
	return &Expr{kind: kindAlt, subs: subs}
}

// Repeat matches e from least to most times; most may be [Unbounded].
func Repeat(e *Expr, least, most int) *Expr {
	return &Expr{kind: kindRepeat, min: least, max: most, subs: []*Expr{e}}
}

// Optional matches e or nothing.
func Optional(e *Expr) *Expr { return Repeat(e, 0, 1) }

// Star matches e any number of times.
func Star(e *Expr) *Expr { return Repeat(e, 0, Unbounded) }

// Replace returns e with each byte replaced by a text. A byte whose text is empty matches nothing.
func Replace(e *Expr, text func(b byte) string) *Expr {
	if e.kind == kindByte {
		var alts []*Expr
		for lo := int(e.lo); lo <= int(e.hi); lo++ {
			hi := lo
			for hi <= int(e.hi) && text(byte(hi)) == string([]byte{byte(hi)}) {
				hi++
			}
			if hi > lo {
				alts = append(alts, Byte(byte(lo), byte(hi-1)))
			}
			if hi <= int(e.hi) && text(byte(hi)) != "" {
				alts = append(alts, Literal(text(byte(hi))))
			}
			lo = hi
		}
		return Alt(alts...)
	}
	if len(e.subs) == 0 {
		return e
	}
	own := *e
	own.subs = make([]*Expr, len(e.subs))
	for i, s := range e.subs {
		own.subs[i] = Replace(s, text)
	}
	return &own
}

// A Range is a range of characters, both ends included.
type Range struct{ Lo, Hi rune }

const (
	surrogateMin = 0xD800
	surrogateMax = 0xDFFF
	// MaxRune is the largest character.
	MaxRune = 0x10FFFF
)

// Normalise sorts ranges, joins adjacent ones and removes surrogates.
func Normalise(ranges []Range) []Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	var joined []Range
	for _, r := range sorted {
		if n := len(joined); n > 0 && r.Lo <= joined[n-1].Hi+1 {
			joined[n-1].Hi = max(joined[n-1].Hi, r.Hi)
		} else if r.Lo <= r.Hi {
			joined = append(joined, r)
		}
	}
	var out []Range
	for _, r := range joined {
		if r.Lo < surrogateMin && r.Hi >= surrogateMin {
			out = append(out, Range{r.Lo, surrogateMin - 1})
		} else if r.Hi < surrogateMin {
			out = append(out, r)
			continue
		}
		if r.Hi > surrogateMax {
			out = append(out, Range{max(r.Lo, surrogateMax+1), min(r.Hi, MaxRune)})
		}
	}
	return out
}

// Negate returns the characters that are not in ranges.
func Negate(ranges []Range) []Range {
	var out []Range
	next := rune(0)
	for _, r := range Normalise(ranges) {
		if next < r.Lo {
			out = append(out, Range{next, r.Lo - 1})
		}
		next = r.Hi + 1
	}
	return Normalise(append(out, Range{next, MaxRune}))
}

// Overlap returns the characters that are in both a and b.
func Overlap(a, b []Range) []Range {
	return Negate(append(Negate(a), Negate(b)...))
}
