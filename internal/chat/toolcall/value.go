package toolcall

import (
	"bytes"
	"strings"
)

// A verdict is the result of reading a byte.
type verdict uint8

const (
	more   verdict = iota // consumed; more must follow
	done                  // consumed; it was the last byte
	before                // not consumed: the value was complete before it
	ended                 // not consumed: the call was complete before it
	bad                   // not consumed: it is not allowed here
)

// A flavor is a notation of values.
type flavor uint8

const (
	// jsonFlavor is JSON, copied unchanged.
	jsonFlavor flavor = iota
	// pythonFlavor is the notation of Python's repr: either quote, True, None, tuples.
	pythonFlavor
	// bareFlavor has bare keys, and strings between special quotes.
	bareFlavor
)

type valueState uint8

const (
	atValue     valueState = iota // a value must come
	atFirstItem                   // an item or the end of the list
	atItem                        // an item after a comma
	atFirstKey                    // a key or the end of the object
	atKey                         // a key after a comma
	atColon
	atComma // a comma or the end
	inString
	inEscape // after a backslash
	inHex    // digits of \u, \x or \U
	inToken  // a number or a word
	inQuote  // a quote of several bytes
	atQuote  // after a quote that may end the string
	inBareKey
)

const (
	maxDepth = 256
	maxToken = 1 << 10
)

// A value reads one value byte by byte and writes it as JSON. Its memory is bounded
// by maxDepth and maxToken.
//
// It does not use package jsonscan. A Scanner needs the whole text and calls its caller back,
// so it cannot stop between two bytes. A value must: text arrives in pieces of any size, each
// byte is passed on at once, and a byte that breaks a rule turns the rest into content. One
// machine also reads three notations, of which only the first is JSON.
type value struct {
	flavor flavor
	state  valueState
	isKey  bool   // the string is a key
	quote  byte   // ends the string; 0 is bare
	bare   string // the quote of bareFlavor
	hex    int    // digits still to come
	stack  []byte // open containers: { [ and ( for a tuple, k for keyword arguments, g for an object whose brace has come
	word   []byte // token, bare key, escape or part of a quote
	// stops means that a period may follow a JSON value. A period after a token is then held in
	// stopped: a digit shows that it belongs to the number.
	stops, stopped bool
}

// start prepares v for a value.
func (v *value) start(f flavor) {
	*v = value{flavor: f, bare: v.bare, stack: v.stack[:0], word: v.word[:0]}
}

// startInside prepares v for the inside of a container of kind k or g.
func (v *value) startInside(f flavor, kind byte) {
	v.start(f)
	v.stack = append(v.stack, kind)
	v.state = atFirstKey
}

// push reads c, and appends its meaning to out.
func (v *value) push(c byte, out []byte) ([]byte, verdict) {
	switch v.state {
	case inString:
		return v.stringByte(c, out)
	case inEscape:
		return v.escapeByte(c, out)
	case inHex:
		return v.hexByte(c, out)
	case inQuote:
		v.word = append(v.word, c)
		switch {
		case string(v.word) == v.bare:
			v.word, v.state = v.word[:0], inString
			return append(out, '"'), more
		case strings.HasPrefix(v.bare, string(v.word)):
			return out, more
		}
		v.word = v.word[:len(v.word)-1]
		return out, bad
	case inBareKey:
		return v.bareKeyByte(c, out)
	case atQuote:
		return v.afterQuote(c, out)
	case inToken:
		if v.stops && len(v.stack) == 0 {
			if c == '.' && !v.stopped {
				v.stopped = true
				return out, more
			}
			if v.stopped && '0' <= c && c <= '9' {
				v.stopped = false
				v.word, out = append(v.word, '.'), append(out, '.')
			}
		}
		if !v.stopped && isTokenByte(c) {
			if len(v.word) == maxToken {
				return out, bad
			}
			v.word = append(v.word, c)
			if v.flavor == jsonFlavor {
				out = append(out, c)
			}
			return out, more
		}
		var ok bool
		if out, ok = v.endToken(out); !ok {
			return out, bad
		}
		if len(v.stack) == 0 {
			return out, before
		}
	}
	return v.structure(c, out)
}

// finish ends the value at the end of the text and reports whether it is complete.
func (v *value) finish(out []byte) ([]byte, bool) {
	if v.state == inToken && len(v.stack) == 0 {
		return v.endToken(out)
	}
	return out, v.state == atComma && len(v.stack) == 0
}

// structure reads a byte between strings and tokens.
func (v *value) structure(c byte, out []byte) ([]byte, verdict) {
	if isSpace(c) {
		if v.flavor == jsonFlavor && len(v.stack) > 0 {
			out = append(out, c)
		}
		return out, more
	}
	switch v.state {
	case atColon:
		if c != ':' && !(c == '=' && v.top() == 'k') {
			return out, bad
		}
		v.state = atValue
		return v.print(out, c, ": "), more
	case atComma:
		if c != ',' {
			return v.close(c, out)
		}
		v.state = atKey
		if v.top() == '[' || v.top() == '(' {
			v.state = atItem
		}
		return v.print(out, c, ""), more
	case atFirstKey, atKey:
		if c == '}' || c == ')' {
			return v.close(c, out)
		}
		return v.beginKey(c, out)
	case atFirstItem, atItem:
		if c == ']' || c == ')' {
			return v.close(c, out)
		}
		if v.state == atItem {
			out = v.print(out, 0, ", ")
		}
	}
	return v.beginValue(c, out)
}

// print writes a separator: unchanged for JSON, or in one form for all other notations.
func (v *value) print(out []byte, c byte, loose string) []byte {
	if v.flavor != jsonFlavor {
		return append(out, loose...)
	}
	if c != 0 {
		out = append(out, c)
	}
	return out
}

func (v *value) top() byte { return v.stack[len(v.stack)-1] }

func (v *value) beginValue(c byte, out []byte) ([]byte, verdict) {
	loose := v.flavor != jsonFlavor
	switch {
	case c == '{' || c == '[' || c == '(' && v.flavor == pythonFlavor:
		if len(v.stack) == maxDepth {
			return out, bad
		}
		v.stack = append(v.stack, c)
		v.state = atFirstItem
		if c == '{' {
			v.state = atFirstKey
			return append(out, '{'), more
		}
		return append(out, '['), more
	case c == '"' || c == '\'' && loose:
		v.state, v.quote, v.isKey = inString, c, false
		return append(out, '"'), more
	case v.flavor == bareFlavor && c == v.bare[0]:
		v.beginQuote(c)
		v.isKey = false
		if v.state == inString {
			out = append(out, '"')
		}
		return out, more
	case isTokenByte(c):
		v.state = inToken
		v.word = append(v.word[:0], c)
		if !loose {
			out = append(out, c)
		}
		return out, more
	}
	return out, bad
}

func (v *value) beginKey(c byte, out []byte) ([]byte, verdict) {
	kind := v.top()
	prefix := ", "
	if v.state == atFirstKey {
		prefix = ""
		if kind == 'k' || kind == 'g' {
			prefix = "{" // its own brace came before the value, or there was none
		}
	}
	v.isKey = true
	switch {
	case c == '"' && kind != 'k' || c == '\'' && v.flavor == pythonFlavor && kind != 'k':
		v.state, v.quote = inString, c
		return append(v.print(out, 0, prefix), '"'), more
	case v.flavor == bareFlavor && c == v.bare[0]:
		v.beginQuote(c)
		out = v.print(out, 0, prefix)
		if v.state == inString {
			out = append(out, '"')
		}
		return out, more
	case v.flavor == bareFlavor && c != ',' && c != ':', v.flavor == pythonFlavor && isTokenByte(c):
		if v.state == atFirstKey {
			v.quote = '{'
		} else {
			v.quote = ','
		}
		v.state = inBareKey
		v.word = append(v.word[:0], c)
		return out, more
	}
	return out, bad
}

// beginQuote reads the first byte of the quote of bareFlavor.
func (v *value) beginQuote(c byte) {
	v.state, v.quote = inQuote, 0
	v.word = append(v.word[:0], c)
	if len(v.bare) == 1 {
		v.state, v.word = inString, v.word[:0]
	}
}

// bareKeyByte reads a byte of a key without quotes. It writes the key only at its end, because a
// word may turn out not to be a key.
func (v *value) bareKeyByte(c byte, out []byte) ([]byte, verdict) {
	end := c == ':' && v.top() != 'k' || c == '=' && v.top() == 'k'
	if !end {
		if len(v.word) == maxToken || v.flavor == pythonFlavor && !isTokenByte(c) && c != ' ' {
			return out, bad
		}
		v.word = append(v.word, c)
		return out, more
	}
	switch {
	case v.quote == ',':
		out = append(out, ", "...)
	case v.top() == 'k' || v.top() == 'g':
		out = append(out, '{')
	}
	out = append(out, '"')
	for _, b := range bytes.TrimSpace(v.word) {
		out = appendEscaped(out, b)
	}
	v.word, v.state = v.word[:0], atValue
	return append(out, "\": "...), more
}

// close ends the innermost container with c.
func (v *value) close(c byte, out []byte) ([]byte, verdict) {
	kind := v.top()
	if c != closer(kind) || v.flavor == jsonFlavor && (v.state == atKey || v.state == atItem) {
		return out, bad
	}
	if v.state == atFirstKey && (kind == 'k' || kind == 'g') {
		out = append(out, '{')
	}
	v.stack = v.stack[:len(v.stack)-1]
	if c == ')' {
		c = ']'
		if kind == 'k' {
			c = '}'
		}
	}
	return v.ended(append(out, c))
}

func closer(kind byte) byte {
	switch kind {
	case '{', 'g':
		return '}'
	case '[':
		return ']'
	}
	return ')'
}

// ended follows a complete value.
func (v *value) ended(out []byte) ([]byte, verdict) {
	v.state = atComma
	if len(v.stack) == 0 {
		return out, done
	}
	return out, more
}

// rest returns the bytes that were read and not yet written.
func (v *value) rest() []byte {
	if v.state == inToken && v.flavor == jsonFlavor {
		return nil
	}
	return v.word
}
