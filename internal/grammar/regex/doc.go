// Package regex reads regular expressions as JSON Schema and clients of constrained decoding write
// them, and makes automata of them.
//
// The syntax is that of ECMAScript, with Python's named groups. \d and \w are ASCII. Where ECMAScript
// and Python differ, a class has the characters on which both agree. Lookahead is read at the
// beginning of an expression, after ^. Lookbehind, word boundaries and back-references are errors,
// because they are not regular or need a context that an automaton over bytes lacks.
package regex
