package wire

import "bytes"

// A TextLimit stops reading a body early if a text of the prompt is certainly too long. A nil
// TextLimit never stops.
type TextLimit struct {
	Bytes int // maximum length of a text; escapes and possible white space do not count in full
	// Refuse returns the error for a text of a field that exceeds the limit.
	Refuse func(field string, bytes int) error
}

// textWatch looks for a long text in the JSON of a body while the body arrives in pieces. It
// watches the strings in prompt and input, alone or in a list; instructions; and the contents of
// messages and input items, including their parts. It adds up the texts of messages, but not those
// of input items, which may be truncated. If a field occurs several times, it takes the first for
// the effective one. In a body that is not JSON its result is arbitrary: such a body returns 400 in
// any case.
type textWatch struct {
	most  int
	depth int
	at    [watchedDepth + 1]struct {
		list  bool
		value bool   // after a colon
		key   string // current key of an object
	}

	text    bool // inside a string
	isKey   bool
	word    []byte // the key so far
	escape  bool   // after a backslash
	hex     int    // digits of \u that are missing
	watched bool
	count   int  // of the current text; in messages, with the texts before it
	total   int  // of the texts of messages so far
	skip    bool // the character may be white space
}

// watchedDepth is the nesting depth of watched strings: {"messages": [{"content": [{"text": …}]}]}.
const watchedDepth = 5

// longestKey exceeds the length of all watched fields' names.
const longestKey = 16

// push processes a piece of the body. It returns the field of a text that is too long, or "".
func (w *textWatch) push(b []byte) (field string) {
	fresh := true // the string or the piece starts here
	for i := 0; i < len(b); i++ {
		c := b[i]
		switch {
		case w.text && fresh:
			fresh = false
			i += w.plain(b[i:])
			if i == len(b) {
				return ""
			}
			c = b[i]
			fallthrough
		case w.text:
			if w.inside(c); w.count > w.most {
				return w.at[1].key
			}
		case structural[c]:
			w.outside(c)
			fresh = true
		}
	}
	return ""
}

// plain returns the length of the prefix of b that is plain text without escapes. b starts inside a
// string.
func (w *textWatch) plain(b []byte) int {
	n := bytes.IndexByte(b, '"')
	if n < 0 {
		n = len(b)
	}
	if w.escape || w.hex > 0 || w.watched && w.count+n > w.most || bytes.IndexByte(b[:n], '\\') >= 0 {
		return 0
	}
	if w.watched {
		visible, ascii := visibleASCII(b[:n])
		if n == len(b) || !ascii {
			return 0 // byte by byte: the string continues, or has multi-byte characters
		}
		w.count += visible
	}
	if w.isKey {
		w.word = append(w.word, b[:min(n, longestKey-min(len(w.word), longestKey))]...)
	}
	return n
}

// visibleASCII counts the characters of b that are not white space. ascii reports whether all are
// ASCII.
func visibleASCII(b []byte) (n int, ascii bool) {
	var or byte
	for _, c := range b {
		or |= c
		if c > ' ' {
			n++
		}
	}
	return n, or < 0x80
}

// structural has the bytes that matter between strings.
var structural = [256]bool{'"': true, ':': true, ',': true, '{': true, '}': true, '[': true, ']': true}

// outside processes a byte between strings.
func (w *textWatch) outside(c byte) {
	switch c {
	case '"':
		w.text, w.count, w.skip = true, w.total, false
		w.isKey = w.depth <= watchedDepth && !w.at[w.depth].list && !w.at[w.depth].value
		w.word = w.word[:0]
		w.watched = !w.isKey && w.watches()
	case ':', ',':
		if w.depth <= watchedDepth {
			w.at[w.depth].value = c == ':'
		}
	case '{', '[':
		if w.depth++; w.depth <= watchedDepth {
			next := &w.at[w.depth]
			next.list, next.value, next.key = c == '[', false, ""
		}
	case '}', ']':
		w.depth = max(0, w.depth-1)
	}
}

// watches reports whether the string that starts is a text of the prompt.
func (w *textWatch) watches() bool {
	switch w.depth {
	case 1:
		return w.at[1].key == "prompt" || w.at[1].key == "input" || w.at[1].key == "instructions"
	case 2:
		return w.at[2].list && (w.at[1].key == "prompt" || w.at[1].key == "input")
	case 3:
		return w.inItem() && w.at[3].key == "content"
	case 5:
		return w.inItem() && w.at[3].key == "content" && w.at[4].list && w.at[5].key == "text"
	}
	return false
}

// inItem reports whether the string that starts is in an object of the list of messages or input
// items.
func (w *textWatch) inItem() bool {
	return (w.at[1].key == "messages" || w.at[1].key == "input") && w.at[2].list
}

// inside processes a byte of a string.
func (w *textWatch) inside(c byte) {
	switch {
	case w.escape: // not counted: it may be a space
		if w.escape = false; c == 'u' {
			w.hex = 4
		}
	case w.hex > 0:
		w.hex--
	case c == '\\':
		w.escape = true
	case c == '"':
		w.text = false
		switch {
		case w.isKey:
			if w.at[w.depth].key = string(w.word); w.depth == 1 {
				w.total = 0
			}
		case w.watched && w.at[1].key == "messages":
			w.total = w.count
		}
	case w.isKey:
		if len(w.word) < longestKey {
			w.word = append(w.word, c)
		}
	case !w.watched || c <= ' ':
	case c < 0x80:
		w.count++
	case c >= 0xc0:
		// White space beyond ASCII starts with one of these bytes.
		w.skip = c == 0xc2 || c >= 0xe1 && c <= 0xe3
		fallthrough
	default:
		if !w.skip {
			w.count++
		}
	}
}
