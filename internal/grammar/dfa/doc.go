// Package dfa builds deterministic finite automata over bytes.
//
// An [Expr] is a regular expression over bytes; [Runes] gives the UTF-8 encodings of characters.
// [Compile] converts it to a [DFA] through a nondeterministic automaton. [Intersect] and [Subtract]
// combine automata. All states of a DFA are useful: an accepting state is reachable from each of
// them.
//
// Expressions may be hostile. A [Budget] limits the nodes, states and steps of all calls that share
// it. Calls that exceed it return [ErrTooLarge].
package dfa
