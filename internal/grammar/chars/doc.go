// Package chars reads sets of strings that are too large for an automaton over bytes: several
// patterns that a string must match together, patterns with limits of length, and complements.
//
// A [Part] is an automaton over characters, which may be nondeterministic. A [Language] is the
// intersection of parts with limits of length. [New] builds the product of the parts and finds the
// states from which no string of an allowed length ends, so that a reader never enters one.
//
// Characters that no part distinguishes form a class. An automaton over bytes, which all classes
// share, reads the spelling of one character. A state of a text is the set of states that the
// characters so far may lead to, and the bytes of the character that has begun. States are made
// when a text reaches them. [Words] are the tokens of a vocabulary, by the classes of their
// characters.
//
// The package does not know grammars, schemas or patterns.
package chars
