package dfa

import "unicode/utf8"

// Runes matches the UTF-8 encoding of one character in ranges.
func Runes(ranges []Range) *Expr {
	var list []sequence
	for _, r := range Normalise(ranges) {
		list = appendRange(list, r.Lo, r.Hi)
	}
	return alternatives(list)
}

// sequence is a set of byte strings: one byte from lo to hi, then one of rest, which is empty at
// the end.
type sequence struct {
	lo, hi byte
	rest   []sequence
}

func alternatives(list []sequence) *Expr {
	alts := make([]*Expr, len(list))
	for i, s := range list {
		alts[i] = Byte(s.lo, s.hi)
		if len(s.rest) > 0 {
			alts[i] = Concat(alts[i], alternatives(s.rest))
		}
	}
	return Alt(alts...)
}

// appendRange splits the range from lo to hi at the characters where the length of the encoding
// changes.
func appendRange(list []sequence, lo, hi rune) []sequence {
	for _, last := range []rune{0x7F, 0x7FF, 0xFFFF} {
		if lo <= last && last < hi {
			list = appendRange(list, lo, last)
			return appendRange(list, last+1, hi)
		}
	}
	var a, b [utf8.UTFMax]byte
	n := utf8.EncodeRune(a[:], lo)
	utf8.EncodeRune(b[:], hi)
	return join(list, sequences(a[:n], b[:n]))
}

// join appends b, whose strings follow those of a. If the last of a and the first of b start with
// the same byte, join merges them. Otherwise an automaton of many ranges would be in a separate
// node for each range with that first byte.
func join(a, b []sequence) []sequence {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	last, first := &a[len(a)-1], b[0]
	if last.lo != last.hi || first.lo != last.lo || first.hi != last.hi {
		return append(a, b...)
	}
	last.rest = join(last.rest, first.rest)
	return append(a, b[1:]...)
}

// sequences returns the byte strings from lo to hi, which have the same length. All bytes except
// the first are from 0x80 to 0xBF.
func sequences(lo, hi []byte) []sequence {
	const least, most = 0x80, 0xBF
	if len(lo) == 1 {
		return []sequence{{lo: lo[0], hi: hi[0]}}
	}
	if lo[0] == hi[0] {
		return []sequence{{lo[0], hi[0], sequences(lo[1:], hi[1:])}}
	}
	bottom, top := make([]byte, len(lo)-1), make([]byte, len(lo)-1)
	for i := range bottom {
		bottom[i], top[i] = least, most
	}
	var out []sequence
	from, to := lo[0], hi[0]
	if string(lo[1:]) != string(bottom) {
		out = append(out, sequence{from, from, sequences(lo[1:], top)})
		from++
	}
	var last []sequence
	if string(hi[1:]) != string(top) {
		last = []sequence{{to, to, sequences(bottom, hi[1:])}}
		to--
	}
	if from <= to {
		out = append(out, sequence{from, to, sequences(bottom, top)})
	}
	return append(out, last...)
}
