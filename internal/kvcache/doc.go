// Package kvcache keeps the keys and values of many sequences in pages and lets
// prompts share what they begin with.
//
// A [Cache] owns the memory, cut into pages of [Config.PageTokens] tokens. A page has
// room for the keys and values of one group of layers: of all of them, where they see
// equally far. Where some see a window only, layers of one window make groups of about
// one size, so that any page serves any group. A [Sequence] has a page table for each
// group, of the pages that one request fills, from token 0 on.
//
// The flow of a step: [Sequence.Reserve] takes pages for the tokens to come,
// [Sequence.Append] says which tokens they are, [Sequence.Slots] where the backend
// stores them, and once the pass has succeeded [Sequence.Commit] declares their keys
// and values valid. It gives back pages that layers with a window will not see again,
// so that a long sequence holds a window of them and what one pass appends. A committed
// page that is full is registered under its tokens and everything before them: from then
// on nobody writes to it and [Sequence.Reuse] of another request may attach it, where
// the pages that the window before it needs are there too. Pages are counted by
// reference. A registered page that nobody uses stays cached and is evicted, least
// recently used first, when pages run out.
//
// Sharing is exact: a page is found by a SHA-256 over a secret, the scope and all tokens
// up to its end, so that neither chance nor intent finds another's.
//
// It knows no model, no scheduler and no text, and computes nothing. A Cache and its
// sequences belong to one goroutine.
package kvcache
