// Package grammar decides which tokens may come next in a text that must match a grammar.
//
// A [Builder] makes a [Grammar]: a program of positions, each of which reads a [Terminal] (a
// regular language over bytes), calls a rule, repeats or chooses. Packages below write programs:
// jsonschema from JSON schemas, gbnf from llama.cpp's notation, regex from regular expressions.
//
// A [Matcher] reads one text. Its state is a set of heads: a position, the state of the terminal's
// automaton there, and a stack of frames that says where to go on after the rule. States, frames and
// masks are made when they are first needed and kept, so that most steps are lookups.
//
// A mask has two parts. Tokens that end within a terminal depend on that automaton alone: they are
// found once for each state of the automaton and shared by all grammars of one vocabulary. Tokens
// that go on behind the terminal are few. They are read on through the grammar, once for each state
// of the grammar.
//
// Grammars may be hostile: building, states and masks have limits of time and memory. A grammar that
// exceeds them when it is built fails with [ErrTooLarge].
//
// The package knows bytes and ids. It knows no models, requests or JSON.
package grammar
