// Package sample chooses the next token from a row of logits.
//
// [Params] says how: penalties, forbidden and biased ids, temperature, the filters
// that cut the tail of the distribution. Its zero value is greedy. [Step] is what
// the choice may look at: the prompt, what was generated so far, which ids are
// allowed now. A [Source] is one request's randomness. A [Sampler] holds scratch
// memory for a vocabulary and serves any number of requests, one call at a time.
//
// [Sampler.Next] copies the logits, adjusts single ids (bias, penalties, bans), and
// then either takes the best or keeps a list of candidates that each filter
// shortens, and draws from what is left. The order is that of transformers'
// generate: bias, repetition penalty, presence and frequency, no-repeat n-grams, bad
// words, minimum length, suppressed ids, temperature, top_h, top_k, top_p, min_p,
// typical_p, epsilon. [Sampler.LogProbs] reads the unprocessed logits.
//
// Nothing is remembered between calls but the Source: penalties are counted from the
// ids handed in, so a request may be stopped, recomputed and continued. Nothing is
// allocated per token. The package knows ids, not text, and no model.
package sample
