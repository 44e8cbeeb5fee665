package tokenizer

import (
	"unicode/utf8"
)

// span is a half-open range of bytes of the text as it was given.
type span struct{ start, end int }

// piece is a part of the text on its way to the model: the normalized text and, if offsets are
// needed, the origin of each of its bytes.
type piece struct {
	s     string
	align []span // one for each byte of s, or nil when offsets are not wanted
	added int32  // the id, if the piece is an added token, else -1
	first bool   // it begins where the text begins
	limit int    // the length that normalizers must not make of it

	bounds *bounds // of the work on the text; nil for none
}

// Normalizers may lengthen a text by this much; a file that asks for more is hostile.
const (
	growBase    = 1 << 20
	growPerByte = 1 << 6
)

// newPiece returns text outside of any text, without alignment.
func newPiece(text string) piece {
	return piece{s: text, added: -1, limit: growBase + growPerByte*len(text)}
}

// whole returns the piece that is all of text.
func whole(text string, track bool) piece {
	p := newPiece(text)
	p.first = true
	if track {
		p.align = make([]span, len(text))
		for i, r := range text {
			end := i + utf8.RuneLen(r)
			for k := i; k < end; k++ {
				p.align[k] = span{i, end}
			}
		}
	}
	return p
}

// steps returns the remaining steps for patterns, or nil outside of a text.
func (p *piece) steps() *int {
	if p.bounds == nil {
		return nil
	}
	return &p.bounds.steps
}

// cut returns the bytes start to end of p as a piece of their own.
func (p piece) cut(start, end int) piece {
	c := piece{s: p.s[start:end], added: -1, first: p.first && start == 0, limit: p.limit, bounds: p.bounds}
	if p.align != nil {
		c.align = p.align[start:end]
		c.first = start < end && c.align[0].start == 0
	}
	return c
}

// rewriter builds a new text for a piece character by character, and aligns it as the reference
// does: a character that replaces another takes its place, and an inserted one shares the place of
// the character before it.
type rewriter struct {
	src   piece
	pos   int // the next byte of src
	out   []byte
	align []span
}

func rewrite(p piece) *rewriter {
	w := &rewriter{src: p, out: make([]byte, 0, len(p.s)+len(p.s)/4+8)}
	if p.align != nil {
		w.align = make([]span, 0, cap(w.out))
	}
	return w
}

// put appends r. With change 0 it replaces the next source character, with change -n it replaces
// n+1 of them, and with change 1 it is inserted.
func (w *rewriter) put(r rune, change int) {
	if w.src.align != nil {
		a := w.placeAt(w.pos)
		if change > 0 {
			a = w.placeAt(w.pos - 1)
		}
		for range utf8.RuneLen(r) {
			w.align = append(w.align, a)
		}
	}
	for ; change <= 0; change++ {
		w.drop()
	}
	w.out = utf8.AppendRune(w.out, r)
}

// placeAt returns the place of byte i of the source.
func (w *rewriter) placeAt(i int) span {
	switch n := len(w.src.align); {
	case n == 0:
		return span{}
	case i < 0:
		return span{w.src.align[0].start, w.src.align[0].start}
	case i >= n:
		return w.src.align[n-1]
	}
	return w.src.align[i]
}

// drop removes the next character of the source.
func (w *rewriter) drop() {
	if w.pos < len(w.src.s) {
		_, n := utf8.DecodeRuneInString(w.src.s[w.pos:])
		w.pos += n
	}
}

// keep copies the source up to byte end.
func (w *rewriter) keep(end int) {
	w.out = append(w.out, w.src.s[w.pos:end]...)
	if w.src.align != nil {
		w.align = append(w.align, w.src.align[w.pos:end]...)
	}
	w.pos = end
}

// replace puts content in the place of the source up to byte end; all of it takes
// the place of the last byte replaced.
func (w *rewriter) replace(end int, content string) {
	w.pos = end
	w.out = append(w.out, content...)
	if w.src.align != nil {
		a := w.placeAt(end - 1)
		for range len(content) {
			w.align = append(w.align, a)
		}
	}
}

// piece returns the text built.
func (w *rewriter) piece() piece {
	p := w.src
	p.s, p.align = string(w.out), w.align
	return p
}

// prepend puts s before p, aligned with p's first character. An empty p stays
// empty.
func prepend(p piece, s string) piece {
	if p.s == "" || s == "" {
		return p
	}
	q := p
	q.s = s + p.s
	if p.align != nil {
		_, n := utf8.DecodeRuneInString(p.s)
		q.align = make([]span, 0, len(q.s))
		for range len(s) + n {
			q.align = append(q.align, p.align[0])
		}
		q.align = append(q.align, p.align[n:]...)
	}
	return q
}

// filter keeps the characters of p that keep accepts.
func filter(p piece, keep func(rune) bool) piece {
	for i, r := range p.s {
		if keep(r) {
			continue
		}
		w := rewrite(p)
		w.keep(i)
		for _, r := range p.s[i:] {
			if keep(r) {
				w.put(r, 0)
			} else {
				w.drop()
			}
		}
		return w.piece()
	}
	return p
}

// mapRunes replaces each character r by f(r).
func mapRunes(p piece, f func(rune) rune) piece {
	for i, r := range p.s {
		if f(r) == r {
			continue
		}
		w := rewrite(p)
		w.keep(i)
		for _, r := range p.s[i:] {
			w.put(f(r), 0)
		}
		return w.piece()
	}
	return p
}

// charIndex maps byte offsets of text to code point offsets.
type charIndex []int

func newCharIndex(text string) charIndex {
	index, n := make(charIndex, 0, len(text)), 0
	for _, r := range text {
		for range utf8.RuneLen(r) {
			index = append(index, n)
		}
		n++
	}
	return index
}

// chars converts a byte range; one that begins outside the text is left alone.
func (c charIndex) chars(s span) [2]int {
	switch {
	case s.start < 0 || s.start >= len(c):
		return [2]int{s.start, s.end}
	case s.end < len(c):
		return [2]int{c[s.start], c[s.end]}
	case s.end-1 < len(c) && s.end > 0:
		return [2]int{c[s.start], c[s.end-1] + 1}
	}
	return [2]int{c[s.start], c[s.start] + 2}
}
