package jsonschema

import "strings"

// known are the keywords that are enforced, or that contain or identify schemas.
var known = words(`type enum const allOf anyOf oneOf not if then else
	properties patternProperties additionalProperties unevaluatedProperties propertyNames required minProperties maxProperties
	dependencies dependentRequired dependentSchemas
	items prefixItems additionalItems unevaluatedItems contains minContains maxContains minItems maxItems uniqueItems
	minLength maxLength pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
	$schema $id id $ref $dynamicRef $recursiveRef $anchor $dynamicAnchor $recursiveAnchor $defs definitions $vocabulary`)

// annotations are keywords that do not affect validity: those of JSON Schema and of OpenAPI, and
// those that generators and editors add.
var annotations = words(`title description default examples example deprecated readOnly writeOnly $comment
	contentMediaType contentEncoding contentSchema
	externalDocs xml discriminator
	enumNames enumDescriptions propertyOrdering order markdownDescription errorMessage defaultSnippets strict`)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// keywords returns an error if the schema has a keyword that cannot be enforced: one that is
// refused, or one that no draft of JSON Schema defines, such as a misspelled one. It accepts
// annotations and names that start with x-.
func (r *reader) keywords() error {
	for _, key := range r.o.keys {
		why, bad := refused[key]
		switch {
		case key == "nullable" && r.o.values[key] == false:
		case bad:
			return fail(join(r.path, key), "%s", why)
		case !known[key] && !annotations[key] && !strings.HasPrefix(key, "x-"):
			return fail(join(r.path, key), "the keyword is not one of JSON Schema; names of annotations begin with x-")
		}
	}
	return nil
}
