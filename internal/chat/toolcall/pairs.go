package toolcall

import "strings"

// pairs are the keys of the objects in a list of arguments: [{"name": KEY, "value": VALUE}, …]. The
// key must precede the value, and there are no other keys. With lists, the items are lists: [[KEY,
// VALUE], …].
type pairs struct {
	key, value string
	lists      bool
}

// findPairs finds such a list in v, a JSON value that contains the examined call. It returns nil if
// there is none.
func findPairs(v any) *pairs {
	switch v := v.(type) {
	case []any:
		if len(v) == 2 && v[0] == "zqa" && v[1] == "zqvalue" {
			return &pairs{lists: true}
		}
		for _, item := range v {
			if found := findPairs(item); found != nil {
				return found
			}
		}
	case map[string]any:
		var p pairs
		for key, word := range v {
			switch word {
			case "zqa":
				p.key = key
			case "zqvalue":
				p.value = key
			}
		}
		if len(v) == 2 && p.key != "" && p.value != "" {
			return &p
		}
		for _, inner := range v {
			if found := findPairs(inner); found != nil {
				return found
			}
		}
	}
	return nil
}

// inOrder reports whether the key precedes the value in the text of the call.
func (p *pairs) inOrder(text string) bool {
	return strings.Index(text, "zqa") < strings.Index(text, "zqvalue")
}

type pairState uint8

const (
	pairFirst pairState = iota // an item or the end of the list
	pairItem                   // an item
	pairKey                    // the opening quote of one of the item's keys
	pairInKey
	pairColon
	pairValue // the name of the parameter, or its value
	pairInName
	pairInValue
	pairNext // a comma or the end of the item
	pairEnd  // a comma or the end of the list
)

// A pairReader reads such a list after its "[".
type pairReader struct {
	state pairState
	value bool // after the name: the value follows or was read
	n     int  // items so far
}

// pairByte reads a byte of the list and writes the pairs as an object, whose "{" is already
// written.
func (o *object) pairByte(c byte, out []byte) ([]byte, verdict) {
	r := &o.list
	switch r.state {
	case pairInKey, pairInName:
		return o.pairText(c, out)
	case pairInValue:
		out, ver := o.value.push(c, out)
		switch ver {
		case before:
			r.state = pairNext
			return o.pairByte(c, out)
		case done:
			r.state, ver = pairNext, more
		}
		return out, ver
	}
	if isSpace(c) {
		return out, more
	}
	switch r.state {
	case pairFirst, pairItem, pairEnd:
		return o.betweenPairs(c, out)
	case pairKey:
		r.state = pairInKey
		return out, o.beginPairText(c)
	case pairColon:
		r.state = pairValue
		return out, only(c, ':')
	case pairValue:
		if !r.value {
			r.state = pairInName
			return out, o.beginPairText(c)
		}
		r.state = pairInValue
		o.value.start(jsonFlavor)
		return o.value.push(c, out)
	}
	switch { // pairNext
	case c == ',' && !r.value:
		r.state, r.value = pairKey, true
		if o.pairs.lists {
			r.state = pairValue
		}
		return out, more
	case r.value && (c == '}' && !o.pairs.lists || c == ']' && o.pairs.lists):
		r.state = pairEnd
		return out, more
	}
	return out, bad
}

// betweenPairs reads a byte outside the items.
func (o *object) betweenPairs(c byte, out []byte) ([]byte, verdict) {
	r := &o.list
	switch {
	case c == ']' && r.state != pairItem:
		o.state, o.complete = objectComma, true
		return append(out, '}'), more
	case c == '{' && r.state != pairEnd && !o.pairs.lists:
		r.state, r.value = pairKey, false
		return out, more
	case c == '[' && r.state != pairEnd && o.pairs.lists:
		r.state, r.value = pairValue, false
		return out, more
	case c == ',' && r.state == pairEnd:
		r.state = pairItem
		return out, more
	}
	return out, bad
}

// beginPairText reads the opening quote of a key or a name.
func (o *object) beginPairText(c byte) verdict {
	o.key, o.text = o.key[:0], stringReader{}
	return only(c, '"')
}

// pairText reads a byte of a key or a name.
func (o *object) pairText(c byte, out []byte) ([]byte, verdict) {
	var ver verdict
	if o.key, ver = o.text.push(c, o.key); ver == bad || len(o.key) > maxName {
		return out, bad
	}
	if ver == more {
		return out, more
	}
	r := &o.list
	if r.state == pairInKey {
		want := o.pairs.key
		if r.value {
			want = o.pairs.value
		}
		if r.state = pairColon; string(o.key) != want {
			return out, bad
		}
		return out, more
	}
	if r.n++; r.n > 1 {
		out = append(out, ", "...)
	}
	out = append(out, '"')
	for _, b := range o.key {
		out = appendEscaped(out, b)
	}
	r.state = pairNext
	return append(out, `": `...), more
}

// only is bad if c is not want.
func only(c, want byte) verdict {
	if c != want {
		return bad
	}
	return more
}
