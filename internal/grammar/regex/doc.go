// Package regex parses regular expressions in the syntax of JSON Schema and of clients of
// constrained decoding, and makes automata from them, or programs of a grammar if an automaton would
// be large.
//
// The syntax is that of ECMAScript, with Python's named groups. \d and \w are ASCII. If ECMAScript
// and Python differ, a class has the characters on which both agree. Lookahead is supported at the
// start of an expression, after ^. Lookbehind, word boundaries and back-references are errors,
// because they are not regular or need a context that an automaton over bytes lacks.
package regex
