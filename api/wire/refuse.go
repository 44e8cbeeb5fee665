package wire

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Unsupported is a parameter that would change the answer and that this server does not have.
type Unsupported struct {
	Field  string
	Reason string // a sentence, such as "use logit_bias."
	// Off are values, in JSON, that ask for nothing. null, false, "", [] and {} are always
	// among them.
	Off []string
}

// alwaysOff are values that ask for nothing, whatever the parameter.
var alwaysOff = []string{"null", "false", `""`, "[]", "{}"}

// Refuse fails with the first of list that f has with a value that asks for something.
func (f *Fields) Refuse(list []Unsupported) {
	for _, u := range list {
		raw, ok := f.Raw(u.Field)
		if !ok || isOff(raw, alwaysOff) || isOff(raw, u.Off) {
			continue
		}
		f.Fail(u.Field, "{} is not supported: %s", u.Reason)
	}
}

// isOff reports whether raw is one of values. Numbers are compared by value.
func isOff(raw json.RawMessage, values []string) bool {
	const longest = 64 // no value of the lists is longer
	if len(raw) > longest {
		return false
	}
	if slices.Contains(values, compact(raw)) {
		return true
	}
	var v float64
	if json.Unmarshal(raw, &v) != nil {
		return false
	}
	return slices.ContainsFunc(values, func(s string) bool {
		var off float64
		return json.Unmarshal([]byte(s), &off) == nil && s != "null" && off == v
	})
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return ""
	}
	return b.String()
}
