package toolcall

import (
	"encoding/json"
	"slices"
	"strings"
)

// find locates the call in the text by the lesson's style.
func (l *lesson) find(text string, c probeCall) (span, bool) {
	name := strings.Index(text, c.name)
	if name < 0 {
		return span{}, false
	}
	switch l.style {
	case objectStyle:
		return l.findObject(text, name, c)
	case lastStyle:
		return findLast(text, name, c)
	}
	at := span{start: name, name: name}
	keys := probeKeys(c.arguments)
	if key := strings.Index(text, keys[0].key); key > name {
		at.name = strings.LastIndex(text[:key], c.name)
	}
	if id := strings.Index(text, l.id(c)); id >= 0 && id < at.start {
		at.start = id
	}
	after := at.name + len(c.name)
	if l.namedIDs && strings.HasPrefix(text[at.start:], l.id(c)) {
		after = at.start + len(l.id(c))
	}
	last := keys[len(keys)-1]
	switch l.style {
	case jsonStyle:
		open := strings.IndexByte(text[after:], '{')
		if open < 0 {
			return at, false
		}
		at.body = after + open
		n, v := decodeAt(text[at.body:])
		m, ok := v.(map[string]any)
		at.end = at.body + n
		return at, ok && len(m) == len(keys) && m["zqa"] != nil
	case pythonStyle:
		return at.enclosed(text, after, "("+keys[0].key+"=", last.value, ')')
	case bareStyle:
		return at.enclosed(text, after, "{"+keys[0].key+":", last.value, '}')
	}
	at.body, at.end = after, after
	for _, k := range keys {
		words := []string{k.key, k.value}
		if l.style == flippedStyle {
			slices.Reverse(words)
		}
		for _, word := range words {
			i := strings.Index(text[at.end:], word)
			if i < 0 {
				return at, false
			}
			at.end += i + len(word)
		}
	}
	return at, true
}

// enclosed completes the span of arguments that start with opening at body and end with closing
// after their last value.
func (at span) enclosed(text string, body int, opening, last string, closing byte) (span, bool) {
	at.body = body
	rest := text[body:]
	end := strings.Index(rest, last)
	if !strings.HasPrefix(rest, opening) || end < 0 {
		return at, false
	}
	n := strings.IndexByte(rest[end:], closing)
	at.end = body + end + n + 1
	return at, n >= 0
}

// A pair is an argument of a call that is examined.
type pair struct{ key, value string }

// probeKeys returns the arguments in order. Values are words or numbers.
func probeKeys(arguments string) []pair {
	var out []pair
	for _, part := range strings.Split(strings.Trim(arguments, "{}"), ", ") {
		key, value, _ := strings.Cut(part, ": ")
		out = append(out, pair{strings.Trim(key, `"`), strings.Trim(value, `"`)})
	}
	return out
}

// decodeAt decodes the JSON value at the start of text and returns its length.
func decodeAt(text string) (int, any) {
	d := json.NewDecoder(strings.NewReader(text))
	var v any
	if d.Decode(&v) != nil {
		return 0, nil
	}
	return int(d.InputOffset()), v
}

// findObject finds the outermost JSON object that is a call.
func (l *lesson) findObject(text string, name int, c probeCall) (span, bool) {
	for start := max(0, name-1<<10); start < name; start++ {
		if text[start] != '{' {
			continue
		}
		n, v := decodeAt(text[start:])
		m, ok := v.(map[string]any)
		if !ok || start+n <= name {
			continue
		}
		keys, keyed, ok := objectKeys(m, c, l.id(c))
		if !ok {
			continue
		}
		l.form.objects, l.form.keyed, l.form.keys = true, keyed, keys
		if l.form.pairs = findPairs(v); l.form.pairs != nil && !l.form.pairs.inOrder(text[start:start+n]) {
			return span{}, false
		}
		return span{start: start, name: name, body: start, end: start + n}, true
	}
	return span{}, false
}

// findLast finds arguments that precede the name.
func findLast(text string, name int, c probeCall) (span, bool) {
	for start := max(0, name-1<<10); start < name; start++ {
		if text[start] != '{' {
			continue
		}
		n, v := decodeAt(text[start:])
		if m, ok := v.(map[string]any); ok && start+n < name && isArguments(v) && len(m) == len(probeKeys(c.arguments)) {
			return span{start: start, name: name, body: start, end: name + len(c.name)}, true
		}
	}
	return span{}, false
}

// objectKeys finds the meanings of the keys of a call's object.
func objectKeys(m map[string]any, c probeCall, id string) (keys map[string]role, keyed, ok bool) {
	if v, has := m[c.name]; has && len(m) == 1 {
		return nil, true, isArguments(v)
	}
	keys = map[string]role{}
	var name, arguments bool
	for key, v := range m {
		switch {
		case v == c.name:
			keys[key], name = nameRole, true
		case v == id:
			keys[key] = idRole
		case isArguments(v):
			keys[key], arguments = argumentsRole, true
		}
	}
	if name && arguments {
		return keys, false, true
	}
	for key, v := range m {
		inner, _ := v.(map[string]any)
		if inner == nil {
			continue
		}
		if more, keyed, ok := objectKeys(inner, c, id); ok && !keyed {
			more[key] = functionRole
			for k, r := range keys {
				more[k] = r
			}
			return more, false, true
		}
	}
	return nil, false, false
}

// isArguments reports whether v is the arguments of a call, as an object or in a string.
func isArguments(v any) bool {
	if s, ok := v.(string); ok {
		_, v = decodeAt(s)
	}
	if m, ok := v.(map[string]any); ok {
		return m["zqa"] == "zqvalue"
	}
	_, list := v.([]any)
	return list && findPairs(v) != nil
}
