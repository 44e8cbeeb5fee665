package openai

import (
	"encoding/json"
	"strings"

	"github.com/heftai/heft/api/generate"
	"github.com/heftai/heft/api/wire"
)

// decodeConstraint reads the fields that restrict the content of an answer: OpenAI's
// response_format, vLLM's structured_outputs and guided_*, llama.cpp's grammar and json_schema,
// TGI's grammar. At most one of them may be set.
func decodeConstraint(f *wire.Fields) *generate.Constraint {
	d := &constraints{f: f}
	d.responseFormat()
	d.schema(f, "guided_json")
	d.schema(f, "json_schema")
	d.text(f, "guided_regex", func(c *generate.Constraint) *string { return &c.Regex })
	d.choice(f, "guided_choice")
	d.rules(f, "guided_grammar")
	d.grammar()
	d.structured()
	return d.found
}

// constraints collects the constraint of a request.
type constraints struct {
	f     *wire.Fields
	found *generate.Constraint
}

// add stores c, or an error if there is already a constraint.
func (d *constraints) add(c generate.Constraint) {
	if d.found != nil {
		d.f.FailAt(c.Field, "'%s' and '%s' exclude each other.", d.found.Field, c.Field)
		return
	}
	d.found = &c
}

// responseFormat reads {"type": "json_schema", "json_schema": {"schema": …}}, "json_object" with or
// without llama.cpp's schema, and "text".
func (d *constraints) responseFormat() {
	o, ok := d.f.Object("response_format")
	if !ok {
		return
	}
	var kind string
	if o.String("type", &kind); o.Err() != nil || kind == "" {
		d.f.Fail("response_format.type", "Missing or invalid 'response_format.type': expected a string.")
		return
	}
	switch kind {
	case "text":
	case "json_object":
		if o.Has("schema") {
			d.schema(o, "schema")
			return
		}
		d.add(generate.Constraint{Field: "response_format", Object: true})
	case "json_schema":
		s, ok := o.Object("json_schema")
		if !ok {
			if o.Has("schema") { // llama.cpp's form
				d.schema(o, "schema")
				return
			}
			o.Fail("json_schema", "Missing required parameter: {}.")
			return
		}
		strict := true
		s.Bool("strict", &strict) // a schema is always enforced
		if !s.Has("schema") {
			s.Fail("schema", "Missing required parameter: {}.")
		}
		d.schema(s, "schema")
	default:
		o.Fail("type", "{} of %q is not supported: use \"text\", \"json_object\" or \"json_schema\".", kind)
	}
}

// structured reads vLLM's structured_outputs.
func (d *constraints) structured() {
	o, ok := d.f.Object("structured_outputs")
	if !ok {
		return
	}
	d.schema(o, "json")
	d.text(o, "regex", func(c *generate.Constraint) *string { return &c.Regex })
	d.choice(o, "choice")
	d.rules(o, "grammar")
	object := false
	if o.Bool("json_object", &object); object {
		d.add(generate.Constraint{Field: o.Path("json_object"), Object: true})
	}
	o.Refuse([]wire.Unsupported{
		{Field: "structural_tag", Reason: "use tools."},
		{Field: "whitespace_pattern", Reason: "white space cannot be chosen."},
		{Field: "disable_additional_properties", Reason: "set additionalProperties in the schema."},
	})
	if d.found == nil {
		d.f.Fail("structured_outputs", "Missing in {}: one of 'json', 'regex', 'choice', 'grammar' and 'json_object'.")
	}
}

// rules reads a grammar of vLLM: GBNF, or Lark's notation if it has no "::=".
func (d *constraints) rules(o *wire.Fields, key string) {
	var src string
	if raw, _ := o.Raw(key); json.Unmarshal(raw, &src) == nil && !strings.Contains(src, "::=") {
		d.text(o, key, func(c *generate.Constraint) *string { return &c.Lark })
		return
	}
	d.text(o, key, func(c *generate.Constraint) *string { return &c.GBNF })
}

// grammar reads llama.cpp's grammar, a text, or TGI's {"type": "json", "value": …}.
func (d *constraints) grammar() {
	raw, ok := d.f.Raw("grammar")
	if !ok {
		return
	}
	if wire.TypeName(raw) != "an object" {
		d.text(d.f, "grammar", func(c *generate.Constraint) *string { return &c.GBNF })
		return
	}
	o, _ := d.f.Object("grammar")
	if o == nil {
		return
	}
	var kind string
	switch o.String("type", &kind); kind {
	case "json", "json_object":
		d.schema(o, "value")
	case "regex":
		d.text(o, "value", func(c *generate.Constraint) *string { return &c.Regex })
	default:
		o.Fail("type", "Invalid value for {}: expected \"json\" or \"regex\".")
	}
}

// schema reads a schema: an object, a boolean or a string that has either.
func (d *constraints) schema(f *wire.Fields, name string) {
	raw, ok := f.Raw(name)
	if !ok {
		return
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return
		}
		if raw = json.RawMessage(text); !json.Valid(raw) {
			f.Fail(name, "Invalid value for {}: it is not valid JSON.")
			return
		}
	}
	if c := strings.TrimSpace(string(raw)); c[0] != '{' && c != "true" && c != "false" {
		f.WrongType(name, "a JSON schema")
		return
	}
	d.add(generate.Constraint{Field: f.Path(name), Schema: raw})
}

// text reads a field that is a string.
func (d *constraints) text(f *wire.Fields, name string, to func(*generate.Constraint) *string) {
	c := generate.Constraint{Field: f.Path(name)}
	if f.String(name, to(&c)); *to(&c) != "" {
		d.add(c)
	}
}

// choice reads a list of texts.
func (d *constraints) choice(f *wire.Fields, name string) {
	raw, ok := f.Raw(name)
	if !ok {
		return
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		f.WrongType(name, "a list of strings")
		return
	}
	if len(list) == 0 {
		return
	}
	c := generate.Constraint{Field: f.Path(name)}
	for _, s := range list {
		if s == nil || *s == "" {
			f.Fail(name, "Invalid value for {}: expected strings that are not empty.")
			return
		}
		c.Choice = append(c.Choice, *s)
	}
	d.add(c)
}
