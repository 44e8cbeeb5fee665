package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/heftai/heft/api/internal/schema"
	"github.com/heftai/heft/internal/jsonscan"
)

// Fields reads the fields of a JSON object. Each method reads one field into its argument, and does
// not change the argument if the field is missing or null. The first error is kept with the field's
// path; after an error nothing is read. Inner objects share that error.
//
// A Fields is for use by one goroutine.
type Fields struct {
	raw  map[string]json.RawMessage
	path string // of the object; "" for the body
	err  *error // shared with inner objects

	describes *schema.Schema // see DescriptionOf; nil: the fields are those of a request
	inside    bool           // of an inner object

	claim   *Claim          // memory for decoding; nil: it is not counted
	charged map[string]bool // fields whose memory is reserved
}

// maxFields is the maximum number of fields of an object.
const maxFields = 1 << 12

// byteOrderMark may precede a body, as in requests of some clients on Windows. RFC 8259 lets
// parsers ignore it.
var byteOrderMark = []byte("\ufeff")

// ParseFields parses a body. It returns an *Error if the body is not a JSON object. The fields are
// slices of body, which must not change while they are in use.
func ParseFields(body []byte) (*Fields, error) {
	f := &Fields{err: new(error)}
	body = bytes.TrimPrefix(body, byteOrderMark)
	if !json.Valid(body) {
		err := json.Unmarshal(body, new(struct{}))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, Invalidf("", "We could not parse the JSON body of your request: %v (byte %d of %d).", err, syntax.Offset, len(body))
		}
		return nil, Invalidf("", "We could not parse the JSON body of your request.")
	}
	var ok bool
	if f.raw, ok = members(body); !ok {
		return nil, Invalidf("", "The JSON body of your request has more than %d fields.", maxFields)
	}
	if f.raw == nil {
		return nil, Invalidf("", "The JSON body of your request must be an object, it is %s.", TypeName(body))
	}
	return f, nil
}

// CountIn makes f reserve memory in c before it decodes a field. Without CountIn f reserves none.
func (f *Fields) CountIn(c *Claim) { f.claim, f.charged = c, map[string]bool{} }

// Work reserves n bytes for decoding, in addition to those of the fields. If there is no memory, it
// keeps an error and returns false.
func (f *Fields) Work(n int) bool {
	if *f.err == nil {
		*f.err = f.claim.Work(n)
	}
	return *f.err == nil
}

// charge reserves the memory of a field, once.
func (f *Fields) charge(name string, raw json.RawMessage) bool {
	if f.claim == nil || f.charged[name] {
		return true
	}
	f.charged[name] = true
	return f.Work(valueBytes(raw))
}

// Err returns the first error, an *Error, or nil.
func (f *Fields) Err() error { return *f.err }

// Path returns the path of a field, such as stream_options.include_usage.
func (f *Fields) Path(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

// Raw returns a field. ok is false if it is missing or null, or after an error.
func (f *Fields) Raw(name string) (json.RawMessage, bool) {
	if f.Describes() {
		f.describes.Property(name)
	}
	raw, ok := f.peek(name)
	if !ok || !f.charge(name, raw) {
		return nil, false
	}
	return raw, true
}

func (f *Fields) peek(name string) (json.RawMessage, bool) {
	raw, ok := f.raw[name]
	return raw, ok && *f.err == nil && !IsNull(raw)
}

// Has reports whether a field is neither missing nor null. After an error it returns false.
func (f *Fields) Has(name string) bool {
	if f.Describes() { // the caller may read the field
		return true
	}
	_, ok := f.peek(name)
	return ok
}

// Each reads a list that may be long. want describes it in errors, such as "a list of messages".
// Each calls item with the elements in order, until item returns false or an error is kept. Memory
// is reserved element by element, so that a list with an error is decoded only up to the error.
func (f *Fields) Each(name, want string, item func(i int, raw json.RawMessage) bool) {
	if f.Describes() {
		f.describes.Property(name)
	}
	list, ok := f.peek(name)
	if !ok {
		return
	}
	if at := jsonscan.Space(list, 0); list[at] != '[' {
		f.WrongType(name, want)
		return
	}
	elements(list, func(i int, raw json.RawMessage) bool {
		return f.Work(valueBytes(raw)) && item(i, raw) && *f.err == nil
	})
}

// Objects reads a list of objects as [Fields.Each] does. want describes it in errors, such as "a
// list of items". The objects share f's error.
func (f *Fields) Objects(name, want string, item func(i int, in *Fields) bool) {
	if f.Describes() {
		in := &Fields{describes: schema.Object(), inside: true, err: f.err}
		f.describe(name, schema.Schema{Type: schema.Types{"array"}, Items: in.describes})
		item(0, in)
		return
	}
	f.Each(name, want, func(i int, raw json.RawMessage) bool {
		at := fmt.Sprintf("%s[%d]", name, i)
		in := &Fields{path: f.Path(at), err: f.err}
		var ok bool
		switch in.raw, ok = members(raw); {
		case !ok:
			f.Fail(at, "Invalid value for {}: more than %d fields.", maxFields)
		case in.raw == nil:
			f.Fail(at, "Invalid type for {}: expected an object, but got %s.", TypeName(raw))
		default:
			return item(i, in)
		}
		return false
	})
}

// Null reports whether the field is present and null.
func (f *Fields) Null(name string) bool {
	raw, ok := f.raw[name]
	return ok && IsNull(raw)
}

// FailAt keeps an error about the field at path, if it is the first error. The path starts at the
// body.
func (f *Fields) FailAt(path, format string, args ...any) {
	if *f.err == nil {
		*f.err = Invalidf(path, format, args...)
	}
}

// FailWith keeps err, if it is not nil and there is no earlier error.
func (f *Fields) FailWith(err error) {
	if *f.err == nil && err != nil {
		*f.err = err
	}
}

// Fail keeps an error about a field, if it is the first error. In format, {} stands for the quoted
// path.
func (f *Fields) Fail(name, format string, args ...any) {
	path := f.Path(name)
	f.describeMissing(name, format)
	f.FailAt(path, strings.ReplaceAll(format, "{}", "'"+escapePercent(path)+"'"), args...)
}

func escapePercent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// WrongType keeps an error about a field of the wrong type. want describes the right one, such as
// "a string".
func (f *Fields) WrongType(name, want string) {
	f.Fail(name, "Invalid type for {}: expected %s, but got %s.", want, TypeName(f.raw[name]))
}

// Bool reads true or false.
func (f *Fields) Bool(name string, to *bool) {
	f.describeType(name, "boolean")
	if raw, ok := f.Raw(name); ok && json.Unmarshal(raw, to) != nil {
		f.WrongType(name, "a boolean")
	}
}

// String reads a string.
func (f *Fields) String(name string, to *string) {
	f.describeType(name, "string")
	if raw, ok := f.Raw(name); ok && json.Unmarshal(raw, to) != nil {
		f.WrongType(name, "a string")
	}
}

// Number reads a number from least to most.
func (f *Fields) Number(name string, to *float64, least, most float64) {
	f.describeBounds(name, "number", least, most)
	raw, ok := f.Raw(name)
	if !ok {
		return
	}
	v := math.NaN()
	if err := json.Unmarshal(raw, &v); err != nil {
		switch TypeName(raw) {
		case "a number", "an integer":
			f.Fail(name, "Invalid value for {}: %.40s is not between %v and %v.", raw, least, most)
		default:
			f.WrongType(name, "a number")
		}
		return
	}
	if v < least || v > most {
		f.Fail(name, "Invalid value for {}: %v is not between %v and %v.", v, least, most)
		return
	}
	*to = v
}

// Integer reads an integer from least to most. It accepts 3 and 3.0.
func (f *Fields) Integer(name string, to *int, least, most int) {
	f.describeBounds(name, "integer", float64(least), float64(most))
	raw, ok := f.Raw(name)
	if !ok {
		return
	}
	v, err := WholeNumber(raw)
	if errors.Is(err, ErrNumberTooLarge) {
		f.Fail(name, "Invalid value for {}: %.40s is not between %d and %d.", raw, least, most)
		return
	}
	if err != nil {
		f.WrongType(name, "an integer")
		return
	}
	if v < int64(least) || v > int64(most) {
		f.Fail(name, "Invalid value for {}: %d is not between %d and %d.", v, least, most)
		return
	}
	*to = int(v)
}

var (
	errNotWhole = errors.New("wire: the number is not whole")
	// ErrNumberTooLarge is the error of an integer that does not fit into 64 bits.
	ErrNumberTooLarge = errors.New("wire: the number does not fit 64 bits")
)

// WholeNumber parses 3 and 3.0, because Python clients write both. It returns ErrNumberTooLarge if
// the number does not fit, and another error if raw is not an integer.
func WholeNumber(raw json.RawMessage) (int64, error) {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n, nil
	}
	var v float64
	if err := json.Unmarshal(raw, &v); err != nil {
		if TypeName(raw) == "an integer" {
			return 0, ErrNumberTooLarge // also too large for a float64
		}
		return 0, err
	}
	const exact = 1 << 53
	switch {
	case v != math.Trunc(v):
		return 0, errNotWhole
	case math.Abs(v) > exact:
		return 0, ErrNumberTooLarge
	}
	return int64(v), nil
}

// IDs reads a list of token ids below vocab.
func (f *Fields) IDs(name string, to *[]int32, vocab int) {
	if f.Describes() {
		f.Like(name, []int32{})
	}
	raw, ok := f.Raw(name)
	if !ok {
		return
	}
	var list []int32
	if json.Unmarshal(raw, &list) != nil || bytes.Contains(raw, []byte("null")) {
		if TypeName(raw) == "a list" {
			f.Fail(name, "Invalid type for {}: expected a list of token ids, which are whole numbers, but got a list with other items.")
			return
		}
		f.WrongType(name, "a list of token ids")
		return
	}
	for _, id := range list {
		if id < 0 || int(id) >= vocab {
			f.Fail(name, "Invalid value for {}: %d is not one of the %d token ids.", id, vocab)
			return
		}
	}
	*to = list
}

// Texts reads an object whose values are strings. An error about a value has the value's path.
func (f *Fields) Texts(name string, to *map[string]string) {
	f.Like(name, map[string]string{})
	raw, ok := f.Raw(name)
	if !ok || json.Unmarshal(raw, to) == nil {
		return
	}
	in, ok := f.Object(name)
	if !ok {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(in.raw)) {
		var value string
		in.String(key, &value)
	}
}

// Object reads a field that is an object. The result shares f's error.
func (f *Fields) Object(name string) (*Fields, bool) {
	if f.Describes() {
		if f.describes.Property(name).Properties == nil {
			f.describe(name, *schema.Object())
		}
		return &Fields{describes: f.describes.Properties[name], inside: true, err: f.err}, true
	}
	raw, ok := f.Raw(name)
	if !ok {
		return nil, false
	}
	in := &Fields{path: f.Path(name), err: f.err}
	if in.raw, ok = members(raw); !ok {
		f.Fail(name, "Invalid value for {}: more than %d fields.", maxFields)
		return nil, false
	}
	if in.raw == nil {
		f.WrongType(name, "an object")
		return nil, false
	}
	return in, true
}

// Count returns the number of elements of a list of numbers, or of the longest list in a list of
// such lists. It decodes nothing. For any other value it returns 0.
func (f *Fields) Count(name string) int {
	raw, ok := f.peek(name)
	if !ok || raw[jsonscan.Space(raw, 0)] != '[' {
		return 0
	}
	return longestList(raw)
}

// ReadQuery calls read with the parameters of r's query. It returns the first error.
func ReadQuery(r *http.Request, read func(*Fields)) error {
	f, err := queryFields(r)
	if err != nil {
		return err
	}
	read(f)
	return f.Err()
}

// Order reads the order of a list. descending is true unless the field is "asc".
func (f *Fields) Order(name string, descending *bool) {
	order := "desc"
	f.String(name, &order)
	if order != "asc" && order != "desc" {
		f.Fail(name, "Invalid value for {}: expected \"asc\" or \"desc\".")
	}
	*descending = order == "desc"
}

// queryFields returns the parameters of a query as fields. true, false and integers become JSON
// values, all others strings.
func queryFields(r *http.Request) (*Fields, error) {
	if f := DescriptionOf(r.Context()); f != nil {
		return f, nil
	}
	values := map[string]json.RawMessage{}
	for name, list := range r.URL.Query() {
		raw := json.RawMessage(list[len(list)-1])
		if kind := TypeName(raw); !json.Valid(raw) || kind != "a boolean" && kind != "an integer" {
			quoted, err := json.Marshal(string(raw))
			if err != nil {
				return nil, err
			}
			raw = quoted
		}
		values[name] = raw
	}
	body, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	return ParseFields(body)
}
