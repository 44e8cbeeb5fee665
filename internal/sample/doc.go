// Package sample chooses the next token from a row of logits.
//
// [Params] are the sampling parameters of a request: penalties, forbidden and biased ids,
// temperature, filters. The zero value is greedy. [Step] is the state of one choice: its prompt,
// its generated ids, the ids that are allowed now. A [Source] is the randomness of one choice. A
// [Sampler] holds scratch memory for a vocabulary. It serves any number of requests, one call at a
// time.
//
// [Sampler.Next] copies the logits and adjusts single ids (bias, penalties, bans). Then it takes
// the best id, or filters the candidates and draws one. The order is that of transformers'
// generate: bias, repetition penalty, presence and frequency penalties, no-repeat n-grams, bad
// words, minimum length, suppressed ids, temperature, top_h, top_k, top_p, min_p, typical_p,
// epsilon. [Sampler.LogProbs] reads the unprocessed logits.
//
// Only the Source changes between calls. Penalties are counted from the ids of the Step, so a
// request may be stopped, recomputed and continued. No call allocates per token. The package knows
// ids, not text, and no model.
package sample
