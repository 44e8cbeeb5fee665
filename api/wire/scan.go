package wire

import (
	"encoding/json"

	"github.com/heftai/heft/internal/jsonscan"
)

// The functions below scan valid JSON without decoding or copying it.

// The memory that decoding takes for a value in addition to its text, in bytes, as [valueBytes]
// counts it.
const (
	objectBytes = 512 // an object or a list
	stringBytes = 64
	memberBytes = 24 // a number, or a place in a list
)

// valueBytes returns the approximate memory that decoding raw takes.
func valueBytes(raw []byte) int {
	n := textCopies * len(raw)
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			n += stringBytes
			i, _ = jsonscan.StringEnd(raw, i)
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

// members returns the values of an object by name, as slices of raw. If a name occurs several
// times, the last value counts. values is nil if raw is not an object. ok is false if there are too
// many members.
func members(raw []byte) (values map[string]json.RawMessage, ok bool) {
	i := jsonscan.Space(raw, 0)
	if i == len(raw) || raw[i] != '{' {
		return nil, true
	}
	values = map[string]json.RawMessage{}
	i = jsonscan.Space(raw, i+1)
	for count := 0; i < len(raw) && raw[i] == '"'; count++ {
		if count == maxFields {
			return nil, false
		}
		end, _ := jsonscan.StringEnd(raw, i)
		var name string
		_ = json.Unmarshal(raw[i:end], &name)               // it is valid
		i = jsonscan.Space(raw, jsonscan.Space(raw, end)+1) // after the colon
		end, _ = jsonscan.ValueEnd(raw, i)
		values[name] = raw[i:end:end]
		i = jsonscan.Space(raw, jsonscan.Space(raw, end)+1) // after the comma
	}
	return values, true
}

// elements calls item with the values of a list until item returns false.
func elements(raw []byte, item func(i int, raw json.RawMessage) bool) {
	i := jsonscan.Space(raw, jsonscan.Space(raw, 0)+1)
	for k := 0; i < len(raw) && raw[i] != ']'; k++ {
		end, _ := jsonscan.ValueEnd(raw, i)
		if !item(k, raw[i:end:end]) {
			return
		}
		i = jsonscan.Space(raw, jsonscan.Space(raw, end)+1)
	}
}

// longestList returns the number of elements of a list of numbers, or of the longest of its lists.
// It is 0 if the list starts with another value.
func longestList(raw []byte) int {
	count, longest := 0, 0
	elements(raw, func(_ int, item json.RawMessage) bool {
		switch c := item[0]; {
		case c == '-' || '0' <= c && c <= '9':
			count++
		case c == '[' && count == 0:
			inner := 0
			elements(item, func(int, json.RawMessage) bool { inner++; return true })
			longest = max(longest, inner)
		default:
			return false
		}
		return true
	})
	return max(count, longest)
}
