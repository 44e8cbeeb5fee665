package wire

import (
	"bytes"
	"encoding/json"
)

// The functions below walk JSON that is valid, without decoding or copying it.

// What decoding takes for a value beside its text, in bytes, as [valueBytes] counts it.
const (
	objectBytes = 512 // an object or a list
	stringBytes = 64
	memberBytes = 24 // a number, or a place in a list
)

// valueBytes is about the memory that decoding raw takes.
func valueBytes(raw []byte) int {
	n := textCopies * len(raw)
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			n += stringBytes
			i = stringEnd(raw, i)
			continue
		case '{', '[':
			n += objectBytes
		case ',', ':':
			n += memberBytes
		}
		i++
	}
	return n
}

// space is the first place from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// stringEnd is the place behind the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; i < len(b); {
		k := bytes.IndexByte(b[i:], '"')
		if k < 0 {
			return len(b)
		}
		end, slashes := i+k, 0
		for end-slashes > i && b[end-slashes-1] == '\\' {
			slashes++
		}
		if i = end + 1; slashes%2 == 0 {
			return i
		}
	}
	return i
}

// valueEnd is the place behind the value that begins at i.
func valueEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	return i
}

// members are the values of an object by name, as parts of raw; of several with one name the last
// counts. They are nil if raw is no object. ok is false if there are too many.
func members(raw []byte) (values map[string]json.RawMessage, ok bool) {
	i := space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return nil, true
	}
	values = map[string]json.RawMessage{}
	i = space(raw, i+1)
	for count := 0; i < len(raw) && raw[i] == '"'; count++ {
		if count == maxFields {
			return nil, false
		}
		end := stringEnd(raw, i)
		var name string
		_ = json.Unmarshal(raw[i:end], &name) // it is valid
		i = space(raw, space(raw, end)+1)     // behind the colon
		end = valueEnd(raw, i)
		values[name] = raw[i:end:end]
		i = space(raw, space(raw, end)+1) // behind the comma
	}
	return values, true
}

// elements calls item with the values of a list until it returns false.
func elements(raw []byte, item func(i int, raw json.RawMessage) bool) {
	i := space(raw, space(raw, 0)+1)
	for k := 0; i < len(raw) && raw[i] != ']'; k++ {
		end := valueEnd(raw, i)
		if !item(k, raw[i:end:end]) {
			return
		}
		i = space(raw, space(raw, end)+1)
	}
}
