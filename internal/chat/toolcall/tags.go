package toolcall

import (
	"bytes"
	"strings"

	"github.com/heftai/heft/internal/layout"
)

// A literal matches one of several texts byte by byte.
type literal struct{ word []byte }

// push reads c if the bytes so far are a prefix of one of texts. If the verdict is done, which is
// the index of the complete text.
func (l *literal) push(c byte, texts ...string) (which int, ver verdict) {
	l.word = append(l.word, c)
	ver = bad
	for i, t := range texts {
		if t == string(l.word) {
			l.word = l.word[:0]
			return i, done
		}
		if len(l.word) < len(t) && t[:len(l.word)] == string(l.word) {
			ver = more
		}
	}
	if ver == bad {
		l.word = l.word[:len(l.word)-1]
	}
	return 0, ver
}

const (
	maxValue   = 64 << 10 // bytes of a value that is read before its type is known
	cdataOpen  = "<![CDATA["
	cdataClose = "]]>"
)

type tagState uint8

const (
	tagSeek  tagState = iota // the next parameter or the end of the call
	tagKey                   // the key
	tagGap                   // the text before the value
	tagFirst                 // the start of the value
	tagText
	tagValue // JSON, which needs no end
)

// A tagReader reads parameters between tags and writes them as one JSON object.
type tagReader struct {
	tags  *tags
	end   string   // text that ends the call; empty if only a text that is not a parameter ends it
	stops []string // without an end: texts that follow a call
	types func(parameter string) types

	state   tagState
	lit     literal
	n       int    // parameters so far
	word    []byte // the key
	hold    []byte // may be the start of the text's end
	text    []byte // kept while its type is unknown
	allowed types
	ends    [2]string
	closing string // of the parameter
	typed   bool   // the type is still unknown, text is kept
	value   value
	keys    []string // keys in the function's schema; nil if it lists none
	gap     int      // spaces that still belong to the key
}

func (r *tagReader) start(t *tags, end string, of func(string) types, keys []string) {
	*r = tagReader{tags: t, end: end, types: of, keys: keys, lit: literal{r.lit.word[:0]}, word: r.word[:0], hold: r.hold[:0], text: r.text[:0], value: r.value}
}

func (r *tagReader) push(c byte, out []byte) ([]byte, verdict) {
	switch r.state {
	case tagSeek:
		return r.seek(c, out)
	case tagKey:
		out, ver := r.keyByte(c, out)
		if ver == bad && r.end == "" {
			return out, r.stop(r.tags.open + string(r.word))
		}
		return out, ver
	case tagGap:
		if len(r.lit.word) == 0 && isSpace(c) {
			return out, more
		}
		which, ver := r.lit.push(c, r.tags.value...)
		if ver == done {
			if r.tags.typed {
				r.allowed = stringType
				if which == 1 {
					r.allowed = anyType &^ stringType
				}
			}
			r.beginText()
			ver = more
		}
		return out, ver
	case tagValue:
		out, ver := r.value.push(c, out)
		switch ver {
		case before:
			if r.state = tagSeek; !r.value.stopped {
				return r.seek(c, out)
			}
			r.value.stopped = false
			switch out, ver = r.seek('.', out); ver {
			case more:
				return r.push(c, out)
			case done:
				return out, ended
			}
			return out, ver
		case done:
			r.state, ver = tagSeek, more
		}
		return out, ver
	case tagFirst:
		if c == ' ' && r.gap > 0 {
			r.gap--
			return out, more
		}
		r.state = tagText
		if r.tags.lines && c == '\n' {
			return out, more
		}
	}
	if r.tags.plain != nil {
		return r.plainByte(c, out)
	}
	return r.textByte(c, out)
}

func (r *tagReader) seek(c byte, out []byte) ([]byte, verdict) {
	if len(r.lit.word) == 0 && isSpace(c) {
		return out, more
	}
	if r.tags.named {
		return r.elementByte(c, out)
	}
	switch {
	case r.end == "":
		return r.seekWithoutEnd(c, out)
	case r.tags.open != "" && begins(r.end, r.tags.open):
		return r.seekLonger(c, out)
	}
	which, ver := r.lit.push(c, r.tags.open, r.end, r.between())
	switch {
	case ver == bad && r.tags.open == "":
		r.state, r.word = tagKey, append(r.word[:0], r.lit.word...)
		r.lit.word = r.lit.word[:0]
		return r.keyByte(c, out)
	case ver != done:
		return out, ver
	case which == 2:
		return out, more
	case which == 0:
		r.state, r.word = tagKey, r.word[:0]
		return out, more
	}
	return r.endCall(out), done
}

// waits reports whether the next byte decides the meaning of the last one: white space then ends a
// call.
func (r *tagReader) waits() bool {
	return r.state == tagValue && r.value.stopped ||
		r.state == tagText && r.tags.endsByLine(r.end) && r.lineEnd(string(r.hold)+"\n") == endOfCall
}

// endCall ends the object of arguments, which starts with the first of them.
func (r *tagReader) endCall(out []byte) []byte {
	if r.n == 0 {
		out = append(out, '{')
	}
	return append(out, '}')
}

// seekLonger is seek if the end of the call starts like a parameter.
func (r *tagReader) seekLonger(c byte, out []byte) ([]byte, verdict) {
	word := append(r.lit.word, c)
	text := string(word)
	rest, opened := strings.CutPrefix(text, r.tags.open)
	switch {
	case text == r.end:
		r.lit.word = word[:0]
		return r.endCall(out), done
	case begins(r.end, text), begins(r.tags.open, text):
		r.lit.word = word
		return out, more
	case opened:
		r.lit.word, r.state = word[:0], tagKey
		r.word = append(r.word[:0], rest[:len(rest)-1]...)
		return r.keyByte(c, out)
	}
	return out, bad
}

// between returns the text that may occur between two parameters whose values need no end.
func (r *tagReader) between() string {
	if r.tags.ended && r.n > 0 {
		return r.tags.close
	}
	return ""
}

// elementByte reads a byte of an element's start or of the end of the call.
func (r *tagReader) elementByte(c byte, out []byte) ([]byte, verdict) {
	open, key := r.tags.open, r.tags.key
	word := append(r.lit.word, c)
	text := string(word)
	rest, opened := strings.CutPrefix(text, open)
	name, named := strings.CutSuffix(rest, key)
	switch {
	case text == r.end:
		r.lit.word = word[:0]
		return r.endCall(out), done
	case opened && named && name != "" && name[0] != '/' && isName(name):
		r.lit.word = word[:0]
		return r.beginKey([]byte(name), out), more
	case begins(r.end, text), begins(open, text), opened && len(rest) <= maxName && beginsElement(rest, key):
		r.lit.word = word
		return out, more
	case r.end == "":
		return out, before
	}
	return out, bad
}

// beginsElement reports whether text is a prefix of a name and its end.
func beginsElement(text, key string) bool {
	for n := min(len(text), len(key)-1); n >= 0; n-- {
		if name, ok := strings.CutSuffix(text, key[:n]); ok && (name == "" && n == 0 || isName(name)) {
			return true
		}
	}
	return false
}

func (r *tagReader) keyByte(c byte, out []byte) ([]byte, verdict) {
	if r.tags.flipped {
		return r.flippedByte(c, out)
	}
	if len(r.word) == 0 && (c == ' ' || c == '\t') {
		return out, more
	}
	r.word = append(r.word, c)
	if !bytes.HasSuffix(r.word, []byte(r.tags.key)) {
		if len(r.word) > maxName {
			r.word = r.word[:len(r.word)-1]
			return out, bad
		}
		return out, more
	}
	key := bytes.TrimSpace(r.word[:len(r.word)-len(r.tags.key)])
	if r.tags.counted != "" {
		name, _ := r.uncounted(string(key))
		key = []byte(name) // none without a number
	}
	if r.tags.ended && len(key) == 0 || (r.tags.plain != nil || r.tags.open == "" && !r.tags.ended) && !isName(string(key)) || r.end == "" && !r.mayBeKey(string(key), true) {
		r.word = r.word[:len(r.word)-1]
		return out, bad
	}
	out = r.beginKey(key, out)
	r.word = r.word[:0]
	return out, more
}

// beginKey writes the key and prepares r for its text.
func (r *tagReader) beginKey(key, out []byte) []byte {
	prefix := `{"`
	if r.n > 0 {
		prefix = `, "`
	}
	r.n++
	out = append(out, prefix...)
	for _, b := range key {
		out = appendEscaped(out, b)
	}
	out = append(out, `": `...)
	r.allowed, r.closing = r.types(string(key)), r.tags.close
	if r.tags.named {
		r.closing = strings.ReplaceAll(r.closing, layout.KeyMark, string(key))
	}
	if r.tags.json {
		r.allowed = anyType // a string has quotes
	}
	if r.tags.ended {
		r.state = tagValue
		r.value.start(jsonFlavor)
		r.value.stops = strings.HasPrefix(r.end, ".") || strings.HasPrefix(r.tags.close, ".")
	} else if r.tags.value != nil {
		r.state = tagGap
	} else {
		r.beginText()
	}
	return out
}

func (r *tagReader) beginText() {
	r.state = tagFirst
	r.text, r.hold, r.typed = r.text[:0], r.hold[:0], true
	r.ends = [2]string{r.closing}
	if r.tags.plain != nil {
		r.gap = r.tags.plain.gap
	}
	if r.tags.lines {
		r.ends[1] = "\n" + r.closing
	}
}

// textByte reads a byte of the text, which ends with one of r.ends.
func (r *tagReader) textByte(c byte, out []byte) ([]byte, verdict) {
	if len(r.hold) == 0 && c != '\n' && c != r.ends[0][0] && c != cdataOpen[0] {
		return r.addText(c, out), more
	}
	r.hold = append(r.hold, c)
	for len(r.hold) > 0 {
		held := string(r.hold)
		switch {
		case (held == r.ends[0] || held == r.ends[1]) && !r.unfinished():
			r.state, r.hold = tagSeek, r.hold[:0]
			return r.endText(out), more
		case r.tags.cdata && r.typed && len(r.text) == 0 && held == cdataOpen:
			r.ends = [2]string{cdataClose + r.closing}
			r.hold, r.allowed, r.typed = r.hold[:0], stringType, false
			return append(out, '"'), more
		case begins(r.ends[0], held), begins(r.ends[1], held), r.tags.cdata && r.typed && len(r.text) == 0 && begins(cdataOpen, held):
			return out, more
		}
		out = r.addText(held[0], out)
		r.hold = append(r.hold[:0], held[1:]...)
	}
	return out, more
}

// unfinished reports whether the text so far is an incomplete JSON value, or an incomplete object
// or list if the parameter must be one. A text that looks like the end is then a part of the value.
func (r *tagReader) unfinished() bool {
	text := bytes.TrimSpace(r.text)
	if r.typed && r.tags.json {
		return balance(text, `"`) > 0
	}
	if !r.typed || len(text) == 0 || text[0] != '{' && text[0] != '[' || r.allowed&stringType != 0 || r.allowed&(objectType|arrayType) == 0 {
		return false
	}
	return balance(text, `"'`) > 0
}

// balance returns the number of open brackets of a text outside of its strings; an open string
// counts as one. Each byte of quotes starts a string.
func balance(text []byte, quotes string) (n int) {
	var quote byte
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
		case strings.IndexByte(quotes, c) >= 0:
			quote = c
		case c == '{' || c == '[' || c == '(':
			n++
		case c == '}' || c == ']' || c == ')':
			n--
		}
	}
	if quote != 0 {
		return n + 1
	}
	return n
}

func begins(text, prefix string) bool {
	return len(prefix) < len(text) && text[:len(prefix)] == prefix
}

// addText reads a byte of the value. A value that can only be a string is written immediately.
func (r *tagReader) addText(c byte, out []byte) []byte {
	if !r.typed {
		return appendEscaped(out, c)
	}
	r.text = append(r.text, c)
	if r.allowed != stringType && len(r.text) <= maxValue && (len(r.text) > 1 || r.allowed&stringType == 0 || r.tags.json || maybeValue(c)) {
		return out
	}
	r.typed = false
	out = append(out, '"')
	for _, b := range r.text {
		out = appendEscaped(out, b)
	}
	return out
}

func (r *tagReader) endText(out []byte) []byte {
	switch {
	case !r.typed:
		return append(out, '"')
	case r.allowed == stringType: // and no byte came
		return append(out, `""`...)
	}
	if r.tags.json {
		if value, ok := convert(r.text, jsonFlavor); ok {
			return append(out, value...)
		}
	}
	return appendTyped(out, r.text, r.allowed)
}

// maybeValue reports whether c may start a value other than a string.
func maybeValue(c byte) bool {
	return isSpace(c) || c == '{' || c == '[' || c == '(' || c == '-' || c == '.' || '0' <= c && c <= '9' ||
		bytes.IndexByte([]byte("tfnTFN"), c) >= 0
}

// rest returns the bytes of the parameters that were read and not yet written.
func (r *tagReader) rest() []byte {
	if r.state == tagValue {
		return r.value.rest()
	}
	return bytes.Join([][]byte{r.word, r.text[:r.kept()], r.hold}, nil)
}

func (r *tagReader) kept() int {
	if r.typed && r.state == tagText {
		return len(r.text)
	}
	return 0
}
