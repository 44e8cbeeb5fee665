package toolcall

import (
	"unicode/utf16"
	"unicode/utf8"
)

// An object reads a call that is a JSON object: {"name": …, "arguments": {…}}. Keys may come in any
// order and have any name that models use; other keys are skipped. Arguments may be JSON in a
// string.
type object struct {
	keyed  bool            // the object has one key, the name; its value is the arguments
	strict bool            // unknown keys and missing arguments are errors
	keys   map[string]role // of the form, before the usual ones
	pairs  *pairs          // arguments may be a list of these
	state  objectState
	role   role
	depth  int
	key    []byte
	text   stringReader
	list   pairReader
	value  value
	junk   []byte

	name, id string
	begun    bool // arguments have started
	complete bool // arguments have ended
}

type objectState uint8

const (
	objectFirstKey objectState = iota
	objectKey
	objectInKey
	objectColon
	objectValue
	objectInText // the string of a name or an id
	objectInArguments
	objectInString // arguments in a string
	objectInPairs
	objectInOther
	objectComma
)

// A role is the meaning of a key.
type role uint8

const (
	otherRole role = iota
	nameRole
	argumentsRole
	idRole
	functionRole // contains an object with name and arguments, or is the name
	typeRole
)

func roleOf(key string) role {
	switch key {
	case "name", "tool_name":
		return nameRole
	case "arguments", "parameters", "args":
		return argumentsRole
	case "id", "tool_call_id", "call_id":
		return idRole
	case "function":
		return functionRole
	case "type":
		return typeRole
	}
	return otherRole
}

const maxName = 512

// start prepares o for the text after "{".
func (o *object) start(f *form) {
	*o = object{keyed: f.keyed, strict: f.peek != "", keys: f.keys, pairs: f.pairs, depth: 1, key: o.key[:0], value: o.value, junk: o.junk}
}

// push reads a byte and appends the new part of the arguments to out.
func (o *object) push(c byte, out []byte) ([]byte, verdict) {
	switch o.state {
	case objectInKey, objectInText:
		return out, o.textByte(c)
	case objectInArguments:
		out, ver := o.value.push(c, out)
		if ver == done {
			o.state, o.complete = objectComma, true
			ver = more
		}
		return out, ver
	case objectInString:
		return o.stringByte(c, out)
	case objectInPairs:
		return o.pairByte(c, out)
	case objectInOther:
		var ver verdict
		o.junk, ver = o.value.push(c, o.junk[:0])
		switch ver {
		case before:
			o.state = objectComma
			return o.push(c, out)
		case done:
			o.state = objectComma
			ver = more
		}
		return out, ver
	}
	if isSpace(c) {
		return out, more
	}
	switch o.state {
	case objectFirstKey, objectKey:
		if c == '}' && o.state == objectFirstKey {
			return out, o.close()
		}
		if c != '"' {
			return out, bad
		}
		o.key, o.text, o.state = o.key[:0], stringReader{}, objectInKey
	case objectColon:
		if c != ':' {
			return out, bad
		}
		o.state = objectValue
	case objectValue:
		return o.beginValue(c, out)
	case objectComma:
		switch c {
		case ',':
			o.state = objectKey
		case '}':
			return out, o.close()
		default:
			return out, bad
		}
	}
	return out, more
}

func (o *object) close() verdict {
	o.depth--
	if o.depth > 0 {
		o.state = objectComma
		return more
	}
	if o.name == "" || o.strict && !o.begun {
		return bad
	}
	return done
}

// textByte reads a byte of a key, a name or an id.
func (o *object) textByte(c byte) verdict {
	var ver verdict
	if o.key, ver = o.text.push(c, o.key); ver == bad || len(o.key) > maxName {
		return bad
	}
	if ver == more {
		return more
	}
	if o.state == objectInKey {
		return o.endKey()
	}
	o.state = objectComma
	if o.role == idRole {
		o.id = string(o.key)
	} else if o.name = string(o.key); !isName(o.name) {
		return bad
	}
	return more
}

func (o *object) endKey() verdict {
	o.state = objectColon
	if o.keyed {
		if o.name != "" || !isName(string(o.key)) {
			return bad
		}
		o.name, o.role = string(o.key), argumentsRole
		return more
	}
	if r, ok := o.keys[string(o.key)]; ok {
		o.role = r
	} else {
		o.role = roleOf(string(o.key))
	}
	again := o.role == nameRole && o.name != "" || o.role == argumentsRole && o.begun
	if again || o.strict && o.role == otherRole {
		return bad
	}
	return more
}

func (o *object) beginValue(c byte, out []byte) ([]byte, verdict) {
	switch {
	case o.role == argumentsRole:
		return o.beginArguments(c, out)
	case o.role == functionRole && c == '{' && o.depth == 1:
		o.depth++
		o.state = objectFirstKey
		return out, more
	case (o.role == nameRole || o.role == functionRole || o.role == idRole) && c == '"':
		o.key = o.key[:0]
		o.text = stringReader{}
		o.state = objectInText
		return out, more
	case o.role == nameRole:
		return out, bad
	}
	o.state = objectInOther
	o.value.start(jsonFlavor)
	var ver verdict
	o.junk, ver = o.value.push(c, o.junk[:0])
	return out, ver
}

func (o *object) beginArguments(c byte, out []byte) ([]byte, verdict) {
	o.value.start(jsonFlavor)
	switch c {
	case '{':
		o.state, o.begun = objectInArguments, true
		return o.value.push(c, out)
	case '"':
		o.state = objectInString
		o.text = stringReader{}
		return out, more
	case '[':
		if o.pairs == nil {
			return out, bad
		}
		o.state, o.begun, o.list = objectInPairs, true, pairReader{}
		return append(out, '{'), more
	case 'n': // null means no arguments
		o.state = objectInOther
		var ver verdict
		o.junk, ver = o.value.push(c, o.junk[:0])
		return out, ver
	}
	return out, bad
}

// stringByte reads a byte of a string that contains the arguments.
func (o *object) stringByte(c byte, out []byte) ([]byte, verdict) {
	var buf [8]byte
	text, ver := o.text.push(c, buf[:0])
	if ver == bad {
		return out, bad
	}
	for _, b := range text {
		switch {
		case o.complete || !o.begun && isSpace(b):
			if !isSpace(b) {
				return out, bad
			}
			continue
		case !o.begun && b != '{':
			return out, bad
		}
		o.begun = true
		var inner verdict
		if out, inner = o.value.push(b, out); inner == bad {
			return out, bad
		}
		o.complete = inner == done
	}
	if ver == done {
		if o.begun && !o.complete {
			return out, bad
		}
		o.state = objectComma
	}
	return out, more
}

// A stringReader reads the bytes after a JSON string's opening quote and writes the decoded text.
// Unlike jsonscan.Unescape it can stop between any two bytes, even within an escape.
type stringReader struct {
	state uint8 // 0 plain, 1 after a backslash, 2 in the digits of \u
	n     int   // digits read
	unit  rune
	high  rune // the first half of a pair
}

func (r *stringReader) push(c byte, out []byte) ([]byte, verdict) {
	if r.state == 2 {
		return r.digit(c, out)
	}
	if r.high != 0 && !(r.state == 0 && c == '\\' || r.state == 1 && c == 'u') {
		out = utf8.AppendRune(out, utf8.RuneError)
		r.high = 0
	}
	if r.state == 0 {
		switch c {
		case '"':
			return out, done
		case '\\':
			r.state = 1
			return out, more
		}
		return append(out, c), more
	}
	r.state = 0
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r.state, r.n, r.unit = 2, 0, 0
		return out, more
	default:
		return out, bad
	}
	return append(out, c), more
}

func (r *stringReader) digit(c byte, out []byte) ([]byte, verdict) {
	var d byte
	switch {
	case '0' <= c && c <= '9':
		d = c - '0'
	case 'a' <= c && c <= 'f':
		d = c - 'a' + 10
	case 'A' <= c && c <= 'F':
		d = c - 'A' + 10
	default:
		return out, bad
	}
	r.unit = r.unit<<4 | rune(d)
	if r.n++; r.n < 4 {
		return out, more
	}
	r.state = 0
	if r.high != 0 {
		high := r.high
		r.high = 0
		if full := utf16.DecodeRune(high, r.unit); full != utf8.RuneError {
			return utf8.AppendRune(out, full), more
		}
		out = utf8.AppendRune(out, utf8.RuneError)
	}
	if 0xd800 <= r.unit && r.unit < 0xdc00 {
		r.high = r.unit
		return out, more
	}
	return utf8.AppendRune(out, r.unit), more
}

// isName reports whether s may be the name of a function: it has no white space, quotes or
// brackets.
func isName(s string) bool {
	for i := range len(s) {
		if !isNameByte(s[i]) {
			return false
		}
	}
	return s != "" && len(s) <= maxName
}

func isNameByte(c byte) bool {
	switch c {
	case '"', '\'', '`', '(', ')', '[', ']', '{', '}', '<', '>', ',', ';', '=', '\\', 0x7f:
		return false
	}
	return c > ' '
}
