// Package draft proposes tokens that may come next in a text, and decides how many of them a forward
// pass should verify.
//
// A model that reads its weights from memory or from a disk takes about as long for a few tokens as
// for one. So a pass may compute guessed tokens behind the last known one: each guess that equals what
// the sampler then chooses is a token gained, and the others are forgotten. Answers do not change.
//
// A [Lookup] guesses by copying: it finds where the last tokens of a text occurred before, and what
// followed them there. [Odds] are how often guesses were right, by how many tokens agreed before them.
// [Costs] are how long passes took, by their number of tokens. [Decide] takes as many tokens of each
// [Offer] as give the most tokens per second, none if a pass of known tokens alone gives more.
//
// The package knows ids, numbers and durations, neither models nor requests. Its values belong to one
// goroutine, and allocate nothing once they are made.
package draft
