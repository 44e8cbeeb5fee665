// Package policy decides which experts stay in memory.
//
// A segment is the unit of reading and eviction: one expert. The segments of a layer have the
// same size. [Cache.Request] takes the segments that a router selected and returns moves: which
// segments to evict and which to load, in order. The caller executes them.
//
// A forecast estimates for each segment the probability that the next pass of its layer requests
// it. The cache evicts the segment with the smallest probability per time until that pass. That
// may be a segment that was just loaded: the next load then replaces it and the others stay. A
// memory smaller than the working set of one token therefore still has hits, where LRU has none.
//
// The package is deterministic: it holds no weights, reads no clock and starts no goroutine. The
// same requests give the same moves, so that [Replay] of a recorded [Trace] predicts the hits of
// a store exactly.
package policy
