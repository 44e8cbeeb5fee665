// Package tokenizer converts text to token ids and back as tokenizer.json says, or another file with a
// vocabulary, exactly like the reference library.
//
// A text passes through these parts of the file, in this order:
//
//	added tokens    are cut out of the text (first those matched before normalization)
//	normalizer      rewrites the text between them (NFC, Lowercase, Replace, …)
//	pre-tokenizer   splits it into words (Split, ByteLevel, Metaspace, …)
//	model           splits each word into tokens (BPE, Unigram, WordPiece)
//	post-processor  adds the special tokens around the sequence
//
// The decoder converts ids to text. A [piece] is a part of the text on its way through; if offsets are
// requested it knows the original bytes of each of its bytes. Each part has a small interface and one
// constructor that reads the JSON of all its kinds. A model is one file that implements [model].
//
// [Parse] reads the JSON in one pass without building a tree, because vocabularies have hundreds of
// thousands of entries. Chat templates and the roles of special tokens belong to package chat.
//
// Files and texts may be hostile. Memory grows with the tokens of a vocabulary, not with their ids.
// [Tokenizer.EncodeIDs] takes at most 40 bytes per byte of text and can reserve them first.
// Regular expressions have Oniguruma's syntax and run on a backtracking machine with a limited number
// of steps per text (see [ErrTooSlow]). Normalizers may lengthen a text by a limited factor (see
// [ErrTooLong]), decoders share a limited amount of work.
//
// Each part of the reference uses the Unicode tables of its own year. unicode.txt contains the
// properties of every character, written by scripts/tokenizer_unicode.py.
//
// A folder without tokenizer.json may have its vocabulary in another format: vocab.json with merges.txt,
// tokenizer.model, tiktoken.model, tekken.json. Each is one file here that makes the model from it
// ([folder.build] adds the parts around it, as transformers does for the tokenizer's class).
//
// The package knows no weights, requests or chat messages. It ignores truncation and padding in the
// file.
package tokenizer
