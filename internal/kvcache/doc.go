// Package kvcache stores the keys and values of many sequences in pages, and shares pages between
// prompts with a common prefix.
//
// A [Cache] owns the memory. It is divided into pages of [Config.PageTokens] tokens. A page holds the
// keys and values of one group of layers. If all layers have the same window there is one group;
// otherwise layers with the same window form groups of about one size, so that any page serves any
// group. A [Sequence] has a page table for each group. It lists the pages of one request, from token 0
// on.
//
// A step has four calls. [Sequence.Reserve] takes pages for the next tokens. [Sequence.Append] names
// these tokens. [Sequence.Slots] says where the backend stores their keys and values.
// [Sequence.Commit] marks them as valid after the pass has succeeded. Commit also frees pages outside
// the windows of their layers, so a long sequence holds one window and the tokens of one pass.
//
// A full, committed page is registered under its tokens and all tokens before it, and does not change
// any more. [Sequence.Reuse] attaches registered pages to another request. Pages are counted by
// reference. A registered page without a sequence stays cached until pages run out; then the least
// recently used one is evicted.
//
// Sharing is exact: the key of a page is a SHA-256 of a secret, the scope and all tokens up to the
// page's end, so neither chance nor an attacker finds the page of another prompt.
//
// The package knows no model, scheduler or text, and computes nothing. A Cache and its sequences
// belong to one goroutine.
package kvcache
