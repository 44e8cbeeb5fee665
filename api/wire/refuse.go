package wire

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Unsupported is a parameter of other servers that changes their answer and that this server does
// not support.
type Unsupported struct {
	Field  string
	Reason string // a sentence, such as "use logit_bias."
	// Off has the JSON values that request nothing. null never requests anything. nil means false,
	// "", [] and {}.
	Off []string
	// With has parameters that this one depends on. If one of them is present and its value
	// requests nothing, any value of this one is accepted.
	With []string
}

var usuallyOff = []string{"false", `""`, "[]", "{}"}

// Refuse keeps an error about the first parameter of list that is present in f, unless its value
// requests nothing (see [Unsupported]).
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
