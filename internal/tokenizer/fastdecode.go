package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// fastDecoder decodes without a string for each token. Two shapes of decoder cover
// nearly all published files: ByteLevel alone, and SentencePiece's sequence of
// Replace, ByteFallback, Fuse and Strip.
type fastDecoder struct {
	tokens    idTable[fastToken]
	texts     []byte         // of all tokens
	byteLevel bool           // texts are raw bytes, not characters
	strips    []stripDecoder // of the whole text
}

// fastToken is the place of a token's text in texts.
type fastToken struct {
	from uint32
	size uint32 // with byteMark for a byte token, for ByteFallback
}

const byteMark = 1 << 31

// token returns the text of a token, and whether it is a byte.
func (f *fastDecoder) token(id int32) (text []byte, isByte bool) {
	t := f.tokens.get(id)
	return f.texts[t.from : t.from+t.size&^byteMark], t.size&byteMark != 0
}

// newFastDecoder returns nil if t's decoder is of another shape, or if it would need too much
// time or memory for all tokens.
func newFastDecoder(t *Tokenizer) *fastDecoder {
	f := &fastDecoder{}
	var replacers []replaceDecoder
	switch d := t.dec.(type) {
	case byteLevelDecoder:
		f.byteLevel = true
	case decoders:
		var ok bool
		if replacers, f.strips, ok = d.sentencePiece(); !ok {
			return nil
		}
	default:
		return nil
	}
	f.tokens = newIDTable[fastToken](t.model.count()+len(t.added.tokens), int32(t.size-1))
	budget := decodeBudget{steps: stepsBase, room: growBase}
	total := 0
	for _, token := range t.names() {
		total += len(token)
		budget.steps += stepsPerByte * len(token)
		budget.room += roomPerByte * len(token)
	}
	f.texts = make([]byte, 0, total)
	for id, token := range t.names() {
		from := len(f.texts)
		if f.byteLevel {
			f.texts = appendTokenBytes(f.texts, token)
		} else {
			for _, r := range replacers {
				token = r.one(token, &budget)
				if budget.steps--; budget.used() {
					return nil
				}
			}
			if b, ok := byteToken(token); ok {
				f.texts = append(f.texts, b)
				f.tokens.set(id, fastToken{uint32(from), 1 | byteMark})
				continue
			}
			f.texts = append(f.texts, token...)
		}
		if len(f.texts) >= byteMark {
			return nil
		}
		f.tokens.set(id, fastToken{uint32(from), uint32(len(f.texts) - from)})
	}
	return f
}

// sentencePiece takes a sequence of any Replaces, ByteFallback, Fuse and any Strips
// apart. Strips that could touch the U+FFFD of a broken end do not count.
func (list decoders) sentencePiece() (replacers []replaceDecoder, strips []stripDecoder, ok bool) {
	i := 0
	for ; i < len(list); i++ {
		r, ok := list[i].(replaceDecoder)
		if !ok {
			break
		}
		replacers = append(replacers, r)
	}
	if i+1 >= len(list) || list[i] != (byteFallback{}) || list[i+1] != (fuse{}) {
		return nil, nil, false
	}
	for _, d := range list[i+2:] {
		s, ok := d.(stripDecoder)
		if !ok || s.stop > 0 || s.content == "\ufffd" {
			return nil, nil, false
		}
		strips = append(strips, s)
	}
	return replacers, strips, true
}

// appendText appends the text of ids, all of which are shown.
func (f *fastDecoder) appendText(dst []byte, ids []int32) []byte {
	from, run := len(dst), -1 // run is where the byte tokens at the end of dst begin
	for _, id := range ids {
		text, isByte := f.token(id)
		if isByte && run < 0 {
			run = len(dst)
		} else if !isByte && run >= 0 {
			dst, run = closeRun(dst, run), -1
		}
		dst = append(dst, text...)
	}
	if run >= 0 {
		dst = closeRun(dst, run)
	}
	text := dst[from:]
	for _, s := range f.strips {
		for n := 0; n < s.start && bytes.HasPrefix(text, []byte(s.content)); n++ {
			text = text[len(s.content):]
		}
	}
	if f.byteLevel && !utf8.Valid(text) {
		return append(dst[:from], lossy(text)...)
	}
	return append(dst[:from], text...)
}

// closeRun replaces the bytes from run on by U+FFFD each, unless they are UTF-8.
func closeRun(dst []byte, run int) []byte {
	if utf8.Valid(dst[run:]) {
		return dst
	}
	return append(dst[:run], strings.Repeat("\ufffd", len(dst)-run)...)
}
