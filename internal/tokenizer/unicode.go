package tokenizer

import (
	"sort"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// lossy decodes UTF-8. It replaces each longest invalid sequence that begins like a character with
// one U+FFFD (WHATWG's and Rust's rule).
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = badLen(b)
		}
		out = utf8.AppendRune(out, r)
		b = b[n:]
	}
	return string(out)
}

// badLen returns the length of the maximal subpart of an ill-formed sequence that
// begins b.
func badLen(b []byte) int {
	lo, hi, need := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		need = 1
	case c >= 0xe0 && c <= 0xef:
		need = 2
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		need = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for n <= need && n < len(b) && b[n] >= lo && b[n] <= hi {
		n, lo, hi = n+1, 0x80, 0xbf
	}
	return n
}

// mark is a character during canonical ordering. change counts its source characters, as in
// [rewriter.put].
type mark struct {
	r      rune
	change int
	ccc    uint8
}

// normalForm rewrites p to a Unicode normal form. It follows the Unicode algorithm
// itself, not norm.String, which breaks long runs of marks with U+034F.
func normalForm(p piece, form norm.Form) piece {
	if form.QuickSpanString(p.s) == len(p.s) {
		return p
	}
	decomposed, composes := form, false
	switch form {
	case norm.NFC:
		decomposed, composes = norm.NFD, true
	case norm.NFKC:
		decomposed, composes = norm.NFKD, true
	}
	w := rewrite(p)
	var buf []mark
	// Each stretch from a starter that nothing can combine with to the next such starter is
	// normalized on its own.
	for i := 0; i < len(p.s); {
		start := i
		i += boundary(form, p.s[i:])
		buf = decompose(buf[:0], p.s[start:i], decomposed)
		order(buf)
		if composes {
			buf = compose(buf)
		}
		for _, m := range buf {
			w.put(m.r, m.change)
		}
	}
	return w.piece()
}

// boundary returns the length of the shortest prefix of s that can be normalized alone.
func boundary(form norm.Form, s string) int {
	_, n := utf8.DecodeRuneInString(s)
	for n < len(s) && !form.PropertiesString(s[n:]).BoundaryBefore() {
		_, k := utf8.DecodeRuneInString(s[n:])
		n += k
	}
	return n
}

// decompose appends the full decomposition of s.
func decompose(buf []mark, s string, form norm.Form) []mark {
	for i, r := range s {
		change := 0
		if r >= hangulBase && r < hangulEnd {
			buf = append(buf, hangul(r)...)
			continue
		}
		props := form.PropertiesString(s[i:])
		d := props.Decomposition()
		if d == nil || !charKinds().decomposed.has(r) {
			buf = append(buf, mark{r, 0, class(r, props)})
			continue
		}
		for _, c := range string(d) {
			buf = append(buf, mark{c, change, class(c, norm.NFD.PropertiesString(string(c)))})
			change = 1
		}
	}
	return buf
}

// class returns the combining class of r, or 0 for marks that the reference does not know.
func class(r rune, props norm.Properties) uint8 {
	if ccc := props.CCC(); ccc != 0 && isMark(r) {
		return ccc
	}
	return 0
}

const (
	hangulBase, hangulEnd         = 0xac00, 0xac00 + 11172
	jamoL, jamoV, jamoT           = 0x1100, 0x1161, 0x11a7
	jamoLCount, jamoVCount, jamoN = 19, 21, 28
)

// hangul decomposes a precomposed syllable.
func hangul(r rune) []mark {
	s := r - hangulBase
	out := []mark{{jamoL + s/(jamoVCount*jamoN), 0, 0}, {jamoV + s%(jamoVCount*jamoN)/jamoN, 1, 0}}
	if t := s % jamoN; t > 0 {
		out = append(out, mark{jamoT + t, 1, 0})
	}
	return out
}

// order sorts each run of non-starters by combining class.
func order(buf []mark) {
	for i := 0; i < len(buf); i++ {
		if buf[i].ccc == 0 {
			continue
		}
		k := i + 1
		for k < len(buf) && buf[k].ccc != 0 {
			k++
		}
		run := buf[i:k]
		sort.SliceStable(run, func(a, b int) bool { return run[a].ccc < run[b].ccc })
		i = k
	}
}

// compose joins starters with the marks that follow them, in place.
func compose(buf []mark) []mark {
	out := buf[:0]
	starter, last := -1, 0 // the starter's place in out; class of the last mark kept after it, -1 if a starter
	for _, m := range buf {
		if starter >= 0 && (last == 0 || last > 0 && last < int(m.ccc)) {
			if r, ok := pair(out[starter].r, m.r); ok {
				out[starter].r = r
				out[starter].change += m.change - 1
				continue
			}
		}
		if m.ccc == 0 {
			starter, last = len(out), 0
		} else if starter >= 0 {
			last = int(m.ccc)
		}
		out = append(out, m)
	}
	return out
}

// pair returns the primary composite of a and b.
func pair(a, b rune) (rune, bool) {
	if a >= jamoL && a < jamoL+jamoLCount && b >= jamoV && b < jamoV+jamoVCount {
		return hangulBase + ((a-jamoL)*jamoVCount+(b-jamoV))*jamoN, true
	}
	if a >= hangulBase && a < hangulEnd && (a-hangulBase)%jamoN == 0 && b > jamoT && b < jamoT+jamoN {
		return a + b - jamoT, true
	}
	if b < 0x300 {
		return 0, false
	}
	var in, out [2 * utf8.UTFMax]byte
	joined := norm.NFC.Append(out[:0], utf8.AppendRune(utf8.AppendRune(in[:0], a), b)...)
	r, n := utf8.DecodeRune(joined)
	return r, n == len(joined) && charKinds().decomposed.has(r)
}
