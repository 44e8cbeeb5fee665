// Package kvcache stores the KV cache of many sequences in pages, and shares the pages of common
// prompt prefixes.
//
// A [Cache] owns the memory, divided into pages of [Config.PageTokens] tokens. A page stores the
// keys and values of one group of layers. Layers that all attend to the whole context form a
// single group. With sliding windows, layers with equal windows form groups of about equal size,
// so that any page serves any group. A [Sequence] has one page table per group, which lists the
// pages of one request from token 0 on.
//
// A step has four calls. [Sequence.Reserve] takes pages for new tokens. [Sequence.Append] records
// the tokens. [Sequence.Slots] returns where the backend stores them. [Sequence.Commit], called
// after the pass has succeeded, marks their keys and values valid. Commit also frees pages that
// have left a layer's window, so a long sequence holds at most one window plus the tokens of one
// pass. When a committed page is full, the cache registers it under a hash of its tokens and all
// tokens before it. A registered page is read-only, and [Sequence.Reuse] may attach it to another
// request if the earlier pages in its window are cached too. Pages are reference-counted. A
// registered page without references stays cached; when pages run out, the least recently used
// one is evicted first.
//
// Sharing is exact: a page is looked up by the SHA-256 of a secret, the scope and all tokens up
// to its end. Neither accident nor an attacker can produce a false match.
//
// A [Backing] may store full pages. [Sequence.Restore] reads them back in a goroutine of the
// cache, so that the cache's user can compute while a slow folder is read.
//
// The package does no computation and does not depend on models, schedulers or text. A Cache and
// its sequences must be used by one goroutine at a time.
package kvcache
