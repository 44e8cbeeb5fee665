// Package jinja renders Jinja templates as Jinja2 3.1 does inside an immutable
// sandbox, with the extensions chat templates expect: trim_blocks and
// lstrip_blocks, break and continue, the generation tag, a plain-JSON tojson
// filter, raise_exception, strftime_now.
//
// The nouns: a [Template] is parsed once and rendered many times, concurrently.
// A [Value] is a Python value (see its comment for the Go types); [Decode] turns
// JSON into Values and keeps the order of keys; a [Dict] is an ordered mapping.
// An [Error] says what kind of failure it is and on which line of the template.
//
// The flow: the lexer cuts the source into tokens, the parser makes a tree, the
// symbol pass decides for every name which variable of which function it is (as
// Jinja's compiler does, so that its scoping rules hold exactly), and the
// compiler turns the tree into Go closures over an array of slots.
//
// Templates come from strangers. Rendering is bounded in steps, memory, output
// and depth by [Limits], templates cannot change the values they are given, and
// nothing a template does panics.
//
// The package knows nothing of chat messages, models or tokens.
package jinja
