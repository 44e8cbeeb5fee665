package wire

import (
	"context"
	"slices"
	"strings"

	"github.com/heftai/heft/api/internal/schema"
)

// Types are the types of an endpoint's answers, and how it is called, for the document of the API. Answer and Event are values of
// the types that are written as JSON; nil allows everything.
type Types struct {
	Summary string
	Reads   Input
	Form    any    // with Reads of ReadsForm: a struct of the form's fields
	Answer  any    // of an answer that is sent at once
	Events  []any  // of a stream; nil: there is none
	Lines   bool   // the stream has lines of JSON in place of events
	Status  int    // of the answer; 0 is 200
	Media   string // of an answer that is not JSON, such as text/plain
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

// Describing returns a context in which handlers describe the fields of their requests in a schema, and answer nothing.
func Describing(ctx context.Context) (context.Context, *schema.Schema) {
	s := schema.Object()
	return context.WithValue(ctx, describing{}, s), s
}

// DescriptionOf returns fields that describe, if ctx is one of Describing: reading a field adds it to the schema, every field
// is missing, and Err is never nil. Otherwise it returns nil.
func DescriptionOf(ctx context.Context) *Fields {
	s, ok := ctx.Value(describing{}).(*schema.Schema)
	if !ok {
		return nil
	}
	err := error(Invalidf("", "The request is described and not answered."))
	return &Fields{describes: s, err: &err}
}

// Describes reports whether f describes: see [DescriptionOf].
func (f *Fields) Describes() bool { return f.describes != nil }

// describe adds a field of the schema s, or null.
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

// Optional describes a field as one that may be missing, because another one may take its place. It reads
// nothing.
func (f *Fields) Optional(name string) {
	if f.Describes() {
		f.describes.Required = slices.DeleteFunc(f.describes.Required, func(s string) bool { return s == name })
	}
}

// describeBounds adds a number from least to most.
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

// missing says that a field must be there.
const missing = "Missing required parameter: "

// describeMissing notes that a field of a body is required, if format says so and no other may be there in its place. The
// fields that an object inside requires depend on its other fields.
func (f *Fields) describeMissing(name, format string) {
	if f.Describes() && strings.HasPrefix(format, missing) && !strings.Contains(format, " or ") && !f.inside {
		f.describes.Require(name)
	}
}
