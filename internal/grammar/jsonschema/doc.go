// Package jsonschema converts JSON schemas (draft 2020-12 and draft 7) to grammars.
//
// The grammar accepts only valid documents, and only in one form: properties in the order of the
// schema, then required ones that the schema does not list, then additional ones; little white
// space; integers without a fraction; keys and restricted strings in their shortest spelling.
//
// A schema is a set of nodes. A [conj] is several nodes that a value must satisfy together.
// Normalising a conj gives a [set]: for each JSON type the alternatives that are allowed.
// References are followed one level at a time, so schemas may be recursive.
//
// A keyword that cannot be enforced exactly is an [*Error] that names it and its path.
package jsonschema
