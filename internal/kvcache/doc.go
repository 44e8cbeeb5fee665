// Package kvcache keeps the keys and values of many sequences in pages and lets
// prompts share what they begin with.
//
// A [Cache] owns the memory: for every layer one tensor of keys and one of values,
// cut into pages of [Config.PageTokens] tokens. A page has one number and is the same
// page in all layers. A [Sequence] is the list of pages that one request fills, from
// token 0 on.
//
// The flow of a step: [Sequence.Reserve] takes pages for the tokens to come,
// [Sequence.Append] says which tokens they are, [Sequence.Slots] where the backend
// stores them, and once the pass has succeeded [Sequence.Commit] declares their keys
// and values valid. A committed page that is full is registered under its tokens and
// everything before them: from then on nobody writes to it and [Sequence.Reuse] of
// another request may attach it. Pages are counted by reference. A registered page
// that nobody uses stays cached and is evicted, least recently used first, when pages
// run out.
//
// Sharing is exact: pages are found by a hash, but the tokens and the identity of the
// page before are compared.
//
// It knows no model, no scheduler and no text, and computes nothing. A Cache and its
// sequences belong to one goroutine.
package kvcache
