package wire

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Unsupported is a parameter that other servers have, that changes their answer, and that this
// server does not support.
type Unsupported struct {
	Field  string
	Reason string // a sentence, such as "use logit_bias."
	// Off are the values, in JSON, that ask for nothing. null always does. nil stands for false,
	// "", [] and {}.
	Off []string
	// With are parameters without which this one has no effect: if one is there with a value that
	// asks for nothing, any value passes.
	With []string
}

var usuallyOff = []string{"false", `""`, "[]", "{}"}

// Refuse keeps an error about the first parameter of list that f has, unless its value asks for nothing
// (see [Unsupported]).
func (f *Fields) Refuse(list []Unsupported) {
	if f.Describes() {
		return
	}
	off := func(u *Unsupported) (given, off bool) {
		raw, ok := f.Raw(u.Field)
		values := u.Off
		if values == nil {
			values = usuallyOff
		}
		return ok, !ok || isOff(raw, values)
	}
	for i := range list {
		u := &list[i]
		if _, off := off(u); off {
			continue
		}
		switchedOff := slices.ContainsFunc(list, func(v Unsupported) bool {
			given, off := off(&v)
			return given && off && slices.Contains(u.With, v.Field)
		})
		if switchedOff {
			continue
		}
		f.Fail(u.Field, "{} is not supported: %s", u.Reason)
		return
	}
}

// isOff reports whether raw is one of values. Numbers are compared by value.
func isOff(raw json.RawMessage, values []string) bool {
	const longest = 64 // no value of the lists is longer
	if len(raw) > longest {
		return false
	}
	var text bytes.Buffer
	if json.Compact(&text, raw) == nil && slices.Contains(values, text.String()) {
		return true
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	return slices.ContainsFunc(values, func(s string) bool {
		var off float64
		return json.Unmarshal([]byte(s), &off) == nil && off == v
	})
}
