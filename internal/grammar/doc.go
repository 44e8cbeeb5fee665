// Package grammar computes the tokens that may come next in a text that must match a grammar.
//
// A [Builder] makes a [Grammar]. It is a program of positions, each of which reads a [Terminal] (a
// regular language over bytes), calls a rule, repeats or chooses. Subpackages build programs:
// jsonschema from JSON schemas, gbnf from llama.cpp's notation, regex from regular expressions,
// lark from Lark grammars.
//
// A [Matcher] reads one text. Its state is a set of heads. A head has a position, the state of the
// terminal's automaton, and a stack of frames that say where to continue after a rule. States,
// frames and masks are computed at first use and cached, so that most steps are lookups.
//
// A mask has two parts. Tokens that end within a terminal depend on its automaton only. They are
// computed once for each state of the automaton and shared by all grammars of a vocabulary. Tokens
// that continue after the terminal are few. They are read through the grammar, once for each state
// of the grammar.
//
// Grammars may be hostile: building, states and masks have limits of time and memory. If building a
// grammar exceeds them, it fails with [ErrTooLarge].
//
// The package depends on bytes and ids only, not on models, requests or JSON.
package grammar
