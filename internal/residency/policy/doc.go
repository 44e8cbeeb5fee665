// Package policy decides which experts stay in memory.
//
// A segment is what is read and evicted as a whole: one expert. The segments of a layer have the
// same size. [Cache.Request] gets the segments that a router selected and returns moves: which
// segments to evict and which to load, in order. The caller executes them.
//
// A forecast estimates for each segment how likely the next pass of its layer requests it. The cache
// evicts the segment with the smallest forecast per time until that pass. A segment that
// was just loaded may be that one: then the next load replaces it and the others stay. Therefore a
// memory smaller than one token's working set still has hits, where least recently used has none.
//
// The package is pure: it holds no memory, reads no clock and starts no goroutine. The same requests
// give the same moves, so that [Replay] of a recorded [Trace] predicts the hits of a store exactly.
package policy
