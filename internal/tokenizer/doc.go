// Package tokenizer turns text into token ids and back, as a checkpoint's
// tokenizer.json says and exactly as the reference library does it.
//
// A text passes through the parts the file names, in this order:
//
//	added tokens    cut out of the text first (those not normalized, then the others)
//	normalizer      rewrites what lies between them (NFC, Lowercase, Replace, …)
//	pre-tokenizer   cuts that into words (Split, ByteLevel, Metaspace, …)
//	model           turns each word into tokens (BPE, Unigram, WordPiece)
//	post-processor  adds the special tokens around the sequence
//
// and ids come back through the decoder. A [piece] is a stretch of text on its way
// through; it remembers, when offsets are wanted, which bytes of the original each
// of its bytes came from. Each role has a small interface and one constructor that
// reads the JSON of all its kinds; a model is one file behind the interface [model].
//
// [Parse] reads the JSON in one pass without building a tree: vocabularies have
// hundreds of thousands of entries. What stands beside
// it, the roles of special tokens and the chat templates, is package chat's.
//
// Regular expressions are Oniguruma's. They are compiled to a small backtracking
// machine whose work on a text is bounded (see [ErrTooSlow]), so that neither a
// hostile file nor a hostile text can make a server hang.
//
// Each part of the reference has the Unicode tables of its own year. unicode.txt holds
// what they make of every character, read off by scripts/tokenizer_unicode.py.
//
// The package knows nothing of models' weights, of requests or of chat messages.
// Truncation and padding written in the file are the caller's business and ignored.
package tokenizer
