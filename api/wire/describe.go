package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/heftai/heft/api/internal/schema"
)

// Types describes an endpoint's input and output for the API description. Answer and Events are
// values of the types that are written as JSON; nil allows any value.
type Types struct {
	Summary string
	Reads   Input
	Form    any    // if Reads is ReadsForm: a struct of the form's fields
	Answer  any    // of a response that is sent at once
	Events  []any  // of a stream; nil: there is none
	Lines   bool   // the stream has lines of JSON instead of events
	Status  int    // of the response; 0 means 200
	Media   string // of a response that is not JSON, such as text/plain
}

// Input is where an endpoint reads its fields.
type Input uint8

// The inputs of endpoints.
const (
	ReadsNothing Input = iota
	ReadsBody          // JSON
	ReadsQuery
	ReadsForm // multipart/form-data
)

type describing struct{}

// Describing returns a context in which handlers add the fields of their requests to a schema, and
// send no response.
func Describing(ctx context.Context) (context.Context, *schema.Schema) {
	s := schema.Object()
	return context.WithValue(ctx, describing{}, s), s
}

// DescriptionOf returns fields that describe, if ctx is a context of Describing, and otherwise nil.
// Reading such a field adds it to the schema. All fields are missing, and Err is never nil.
func DescriptionOf(ctx context.Context) *Fields {
	s, ok := ctx.Value(describing{}).(*schema.Schema)
	if !ok {
		return nil
	}
	err := error(Invalidf("", "The request is described and not answered."))
	return &Fields{describes: s, err: &err}
}

// Describes reports whether f only describes; see [DescriptionOf].
func (f *Fields) Describes() bool { return f.describes != nil }

// describe adds a field with the schema s, or null.
func (f *Fields) describe(name string, s schema.Schema) {
	f.describes.Property(name)
	f.describes.Properties[name] = s.OrNull()
}

// Like adds the types of values to the description of a field. It reads nothing.
func (f *Fields) Like(name string, values ...any) {
	if !f.Describes() {
		return
	}
	s := schema.Of(values[0])
	if len(values) > 1 {
		s = &schema.Schema{}
		for _, v := range values {
			s.AnyOf = append(s.AnyOf, schema.Of(v))
		}
	}
	f.describes.Property(name)
	f.describes.Properties[name] = s
}

// Optional marks a field as optional, because another one may replace it. It reads nothing.
func (f *Fields) Optional(name string) {
	if f.Describes() {
		f.describes.Required = slices.DeleteFunc(f.describes.Required, func(s string) bool { return s == name })
	}
}

// describeBounds adds a number with its bounds.
func (f *Fields) describeBounds(name, kind string, least, most float64) {
	if f.Describes() {
		bounds := [2]float64{least, most}
		f.describe(name, schema.Schema{Type: schema.Types{kind}, Minimum: &bounds[0], Maximum: &bounds[1]})
	}
}

// describeType adds a value of a type.
func (f *Fields) describeType(name, kind string) {
	if f.Describes() {
		f.describe(name, schema.Schema{Type: schema.Types{kind}})
	}
}

// missing starts the message for a required field that is missing.
const missing = "Missing required parameter: "

// describeMissing marks a field of a body as required, if format says so and no other field may
// replace it. It ignores fields of inner objects, because they depend on the objects' other fields.
func (f *Fields) describeMissing(name, format string) {
	if f.Describes() && strings.HasPrefix(format, missing) && !strings.Contains(format, " or ") && !f.inside {
		f.describes.Require(name)
	}
}
