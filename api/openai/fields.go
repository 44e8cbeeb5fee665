package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"

	"github.com/heftai/heft/api/generate"
)

// fields takes the JSON object of a request apart. Its methods read one field each into
// what they are given, and leave it alone where the field is missing or null. The first
// error is kept, and names its field; nothing is read after it.
type fields struct {
	raw map[string]json.RawMessage
	err error
}

// readBody reads a body. The error is of type *Error or *generate.Error.
func readBody(body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &Error{Status: http.StatusRequestEntityTooLarge, Type: typeInvalid, Code: "request_too_large",
			Message: "The body of your request is larger than this server takes."}
	}
	var own *Error
	if errors.As(err, &own) {
		return nil, own
	}
	if err != nil {
		return nil, &generate.Error{Kind: generate.Interrupted, Message: "The body of your request ended early.", Err: err}
	}
	return b, nil
}

// parseFields takes a body apart. The error is of type *generate.Error.
func parseFields(b []byte) (*fields, error) {
	f := &fields{}
	err := json.Unmarshal(b, &f.raw)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return nil, generate.Invalidf("", "We could not parse the JSON body of your request: %v (byte %d of %d).", err, syntax.Offset, len(b))
	}
	if err != nil || f.raw == nil {
		return nil, generate.Invalidf("", "The JSON body of your request must be an object, it is %s.", jsonType(b))
	}
	return f, nil
}

// get is a field that is there, and not null, as long as there was no error.
func (f *fields) get(name string) (json.RawMessage, bool) {
	raw, ok := f.raw[name]
	return raw, ok && f.err == nil && !isNull(raw)
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = generate.Invalidf(name, format, args...)
	}
}

func (f *fields) wrongType(name, want string, raw json.RawMessage) {
	f.fail(name, "Invalid type for '%s': expected %s, but got %s.", name, want, jsonType(raw))
}

func (f *fields) boolean(name string, to *bool) {
	if raw, ok := f.get(name); ok && json.Unmarshal(raw, to) != nil {
		f.wrongType(name, "a boolean", raw)
	}
}

func (f *fields) text(name string, to *string) {
	if raw, ok := f.get(name); ok && json.Unmarshal(raw, to) != nil {
		f.wrongType(name, "a string", raw)
	}
}

// number reads a number between least and most.
func (f *fields) number(name string, to *float64, least, most float64) {
	raw, ok := f.get(name)
	if !ok {
		return
	}
	v := math.NaN()
	if err := json.Unmarshal(raw, &v); err != nil {
		f.wrongType(name, "a number", raw)
		return
	}
	if v < least || v > most {
		f.fail(name, "Invalid value for '%s': %v is not between %v and %v.", name, v, least, most)
		return
	}
	*to = v
}

// integer reads a whole number between least and most.
func (f *fields) integer(name string, to *int, least, most int) {
	raw, ok := f.get(name)
	if !ok {
		return
	}
	v, err := wholeNumber(raw)
	if errors.Is(err, errTooLarge) {
		f.fail(name, "Invalid value for '%s': %.40s is not between %d and %d.", name, raw, least, most)
		return
	}
	if err != nil {
		f.wrongType(name, "an integer", raw)
		return
	}
	if v < int64(least) || v > int64(most) {
		f.fail(name, "Invalid value for '%s': %d is not between %d and %d.", name, v, least, most)
		return
	}
	*to = int(v)
}

var (
	errNotWhole = errors.New("openai: not a whole number")
	errTooLarge = errors.New("openai: not within 64 bits")
)

// wholeNumber takes 3 and 3.0, as Python clients write both.
func wholeNumber(raw json.RawMessage) (int64, error) {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n, nil
	}
	var v float64
	if err := json.Unmarshal(raw, &v); err != nil {
		if jsonType(raw) == "an integer" {
			return 0, errTooLarge // even for a float
		}
		return 0, err
	}
	const exact = 1 << 53
	switch {
	case v != math.Trunc(v):
		return 0, errNotWhole
	case math.Abs(v) > exact:
		return 0, errTooLarge
	}
	return int64(v), nil
}

// ids reads a list of token ids below vocab.
func (f *fields) ids(name string, to *[]int32, vocab int) {
	raw, ok := f.get(name)
	if !ok {
		return
	}
	var list []int32
	if json.Unmarshal(raw, &list) != nil || bytes.Contains(raw, []byte("null")) {
		f.wrongType(name, "a list of token ids", raw)
		return
	}
	for _, id := range list {
		if id < 0 || int(id) >= vocab {
			f.fail(name, "Invalid value for '%s': %d is not one of the %d token ids.", name, id, vocab)
			return
		}
	}
	*to = list
}

// object reads a field that is an object of its own.
func (f *fields) object(name string) (*fields, bool) {
	raw, ok := f.get(name)
	if !ok {
		return nil, false
	}
	in := &fields{}
	if json.Unmarshal(raw, &in.raw) != nil {
		f.wrongType(name, "an object", raw)
		return nil, false
	}
	return in, true
}

// unsupported is a field that would change the answer and cannot be honoured.
type unsupported struct{ field, reason string }

// refuse says that fields are not supported: those that are there and neither null, false
// nor empty.
func (f *fields) refuse(list []unsupported) {
	for _, u := range list {
		raw, ok := f.get(u.field)
		if !ok {
			continue
		}
		switch string(bytes.TrimSpace(raw)) {
		case "false", "[]", "{}", `""`, "0":
			continue
		}
		f.fail(u.field, "'%s' is not supported: %s", u.field, u.reason)
	}
}

// jsonType is what a client calls the type of a value.
func jsonType(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch c := raw[0]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case bytes.ContainsAny(raw, ".eE"):
		return "a number"
	default:
		return "an integer"
	}
}
