package wire

// A TextLimit ends the reading of a body early: at a text of the prompt that is too long for
// certain. A nil TextLimit ends nothing.
type TextLimit struct {
	Bytes int // of the longest text that may fit; escapes and what may be white space do not count in full
	// Refuse returns the error for a text of a field that has more bytes.
	Refuse func(field string, bytes int) error
}

// textWatch looks for a long text in the JSON of a body while the body arrives in pieces. It looks
// at the strings in prompt and input and at the contents of messages. It takes the first of several
// fields with one name for the one that counts. In a body that is not JSON it may find anything:
// that is a 400 in any case.
type textWatch struct {
	most  int
	depth int
	at    [watchedDepth + 1]struct {
		list  bool
		value bool   // a colon has come
		key   string // of an object
	}

	text    bool // in a string
	isKey   bool
	word    []byte // the key so far
	escape  bool   // a backslash has come
	hex     int    // digits of \u that are to come
	watched bool
	count   int
	skip    bool // the character may be white space
}

// watchedDepth is how deep the watched strings lie: {"messages": [{"content": …}]}.
const watchedDepth = 3

// longestKey is longer than the names of all watched fields.
const longestKey = 16

// push takes a piece of the body. It returns the field of a text that is too long, "" for none.
func (w *textWatch) push(b []byte) (field string) {
	for _, c := range b {
		if !w.text {
			w.outside(c)
			continue
		}
		if w.inside(c); w.count > w.most {
			return w.at[1].key
		}
	}
	return ""
}

// outside takes a byte between strings.
func (w *textWatch) outside(c byte) {
	switch c {
	case '"':
		w.text, w.count, w.skip = true, 0, false
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

// watches reports whether the string that begins is a text of the prompt.
func (w *textWatch) watches() bool {
	switch w.depth {
	case 1:
		return w.at[1].key == "prompt" || w.at[1].key == "input"
	case 3:
		return w.at[1].key == "messages" && w.at[2].list && w.at[3].key == "content"
	}
	return false
}

// inside takes a byte of a string.
func (w *textWatch) inside(c byte) {
	switch {
	case w.escape: // counts as nothing: it may be a space
		if w.escape = false; c == 'u' {
			w.hex = 4
		}
	case w.hex > 0:
		w.hex--
	case c == '\\':
		w.escape = true
	case c == '"':
		w.text, w.count = false, 0
		if w.isKey {
			w.at[w.depth].key = string(w.word)
		}
	case w.isKey:
		if len(w.word) < longestKey {
			w.word = append(w.word, c)
		}
	case !w.watched || c <= ' ':
	case c < 0x80:
		w.count++
	case c >= 0xc0:
		// White space beyond ASCII begins with one of these.
		w.skip = c == 0xc2 || c >= 0xe1 && c <= 0xe3
		fallthrough
	default:
		if !w.skip {
			w.count++
		}
	}
}
