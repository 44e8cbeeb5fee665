package dfa

import "unicode/utf8"

// Runes matches the UTF-8 encoding of one character of ranges.
func Runes(ranges []Range) *Expr {
	var alts []*Expr
	for _, r := range Normalise(ranges) {
		alts = appendRange(alts, r.Lo, r.Hi)
	}
	return Alt(alts...)
}

// appendRange splits lo to hi where the length of the encoding changes.
func appendRange(alts []*Expr, lo, hi rune) []*Expr {
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			alts = appendRange(alts, lo, last)
			return appendRange(alts, last+1, hi)
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	return appendSequences(alts, a[:n], b[:n])
}

// appendSequences appends expressions for the byte strings from lo to hi, which have one length, where
// all bytes but the first are from 0x80 to 0xBF.
func appendSequences(alts []*Expr, lo, hi []byte) []*Expr {
	if e := sequences(lo, hi); e != nil {
		return append(alts, e...)
	}
	return alts
}

func sequences(lo, hi []byte) []*Expr {
	const least, most = 0x80, 0xBF
	if len(lo) == 1 {
		return []*Expr{Byte(lo[0], hi[0])}
	}
	first := func(a, b byte, rest []*Expr) *Expr { return Concat(Byte(a, b), Alt(rest...)) }
	if lo[0] == hi[0] {
		return []*Expr{first(lo[0], hi[0], sequences(lo[1:], hi[1:]))}
	}
	bottom, top := make([]byte, len(lo)-1), make([]byte, len(lo)-1)
	for i := range bottom {
		bottom[i], top[i] = least, most
	}
	var out []*Expr
	from, to := lo[0], hi[0]
	if string(lo[1:]) != string(bottom) {
		out = append(out, first(from, from, sequences(lo[1:], top)))
		from++
	}
	var last *Expr
	if string(hi[1:]) != string(top) {
		last = first(to, to, sequences(bottom, hi[1:]))
		to--
	}
	if from <= to {
		out = append(out, first(from, to, sequences(bottom, top)))
	}
	if last != nil {
		out = append(out, last)
	}
	return out
}
