// Package vocab stores the tokens of a tokenizer as a trie over their bytes, so that an automaton
// finds the tokens that it can read without trying each of them.
//
// A [Vocab] is made once for a tokenizer. In the trie special tokens have names that are not UTF-8
// ([Special]). Text never matches them; a grammar uses the name to read one.
package vocab

import (
	"bytes"
	"slices"
)

// A Tokenizer gives the texts of a vocabulary's ids.
type Tokenizer interface {
	// VocabSize is one more than the largest id.
	VocabSize() int
	// TokenBytes returns the bytes of an id inside a text; ok is false if it has none.
	TokenBytes(id int32) (b []byte, ok bool)
	// IsSpecial reports whether id is a special token.
	IsSpecial(id int32) bool
	// Decode returns the text of ids at the start of a text.
	Decode(ids []int32, skipSpecial bool) string
}

// An Encoder is a Tokenizer that also encodes texts as parts of longer texts.
type Encoder interface{ EncodeText(text string) []int32 }

// MaxToken is the maximum length of a token in a constrained text, in bytes.
const MaxToken = 512

// A Vocab has the tokens of a tokenizer. It does not change after [New] and is safe for concurrent
// use.
type Vocab struct {
	Trie *Trie
	// Words is the length of a mask of all ids, in words of 64 bits.
	Words int
	// DropsSpace reports whether a decoder drops the space at the start of a text.
	DropsSpace bool
	// Encode encodes a text with the tokenizer. It is nil if that is unknown.
	Encode func(text string) []int32
	text   int      // bytes of names
	names  [][]byte // by id, in the trie; nil: not in it
}

// New makes the vocabulary of t. size is the number of ids of the model; larger ids are left out.
// It returns nil if t has no tokens with known bytes, such as WordPiece.
func New(t Tokenizer, size int) *Vocab {
	v := &Vocab{Words: (size + 63) / 64}
	size = min(size, t.VocabSize())
	v.names = make([][]byte, size)
	entries := make([]entry, 0, size)
	text := 0
	for id := range int32(size) {
		b, ok := t.TokenBytes(id)
		switch {
		case !ok || len(b) == 0 || len(b) > MaxToken:
			continue
		case t.IsSpecial(id):
			b = Special(id)
		case bytes.IndexByte(b, SpecialByte) >= 0:
			continue // no text contains this byte, and it must not spell the name of a special token
		default:
			text++
			if b[0] == ' ' && len(b) > 1 && !v.DropsSpace {
				v.DropsSpace = dropsSpace(t, id, b)
			}
		}
		b = slices.Clip(b)
		v.names[id] = b
		v.text += len(b)
		entries = append(entries, newEntry(b, id))
	}
	if text == 0 {
		return nil
	}
	v.Trie = newTrie(entries)
	if e, ok := t.(Encoder); ok {
		v.Encode = e.EncodeText
	}
	return v
}

// dropsSpace reports whether the decoder drops the space of the token b at the start of a text.
func dropsSpace(t Tokenizer, id int32, b []byte) bool {
	return t.Decode([]int32{id}, false) == string(b[1:])
}

// Bytes returns the approximate memory of v, including the bytes of its tokens.
func (v *Vocab) Bytes() int { return v.Trie.Size() + 24*len(v.names) + v.text }

// Name returns the bytes of id in the trie, or nil if it is not in the trie.
func (v *Vocab) Name(id int32) []byte {
	if id < 0 || int(id) >= len(v.names) {
		return nil
	}
	return v.names[id]
}

// SpecialByte is the first byte of a special token's name. It never occurs in UTF-8.
const SpecialByte = 0xFF

// Special returns the name of a special token in the trie.
func Special(id int32) []byte {
	return []byte{SpecialByte, byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
}

// IsSpecial reports whether name is that of a special token.
func IsSpecial(name []byte) bool { return len(name) == 5 && name[0] == SpecialByte }
