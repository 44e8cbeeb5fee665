// Package jinja renders Jinja templates as Jinja2 3.1 does inside an immutable sandbox, with the
// extensions that chat templates expect: trim_blocks and lstrip_blocks, break and continue, the
// generation tag, a plain-JSON tojson filter, raise_exception, strftime_now.
//
// A [Template] is parsed once and rendered many times, also concurrently. A [Value] is a Python
// value (see its comment for the Go types). [Decode] converts JSON to Values and keeps the order of
// keys. A [Dict] is an ordered mapping. An [Error] has the kind of the failure and the line of the
// template.
//
// The lexer splits the source into tokens, and the parser builds a tree. The symbol pass resolves
// every name to a variable of a function, as Jinja's compiler does, so that its scoping rules hold
// exactly. The compiler converts the tree to Go closures over an array of slots.
//
// Templates are untrusted. [Limits] bound the steps, memory, output and depth of rendering.
// Templates cannot change the values that they are given, and no template causes a panic.
//
// The package does not depend on chat messages, models or tokens.
package jinja
