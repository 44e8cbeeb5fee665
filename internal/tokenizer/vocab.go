package tokenizer

import (
	"fmt"
	"iter"
	"math"
)

// maxID is the largest id that a vocabulary may use. The reference takes ids up to 2^32 - 1. Heft
// does not: ids are int32 everywhere, -1 stands for none, and a model whose embedding has a row for
// such an id would have two billion rows.
const maxID = math.MaxInt32

// vocab is a model's own vocabulary, from tokens to ids and back. It does not change after it is
// built.
type vocab struct {
	names  *names
	tokens idTable[uint32] // by id, the number of a name plus 1; 0 where no token has the id
	top    int32           // the largest id, -1 for none
}

// newVocab makes a vocabulary for n tokens of size bytes together, whose largest id is top.
func newVocab(n, size int, top int32) *vocab {
	return &vocab{names: newNames(n, size), tokens: newIDTable[uint32](n, top), top: top}
}

// id returns the id of token, or -1.
func (v *vocab) id(token string) int32 {
	id, _ := v.names.get(token)
	return id
}

// bytesID is id for a token in a byte slice, which it does not copy.
func (v *vocab) bytesID(token []byte) int32 {
	id, _ := v.names.getBytes(token)
	return id
}

// name returns the token with the given id, "" for none.
func (v *vocab) name(id int32) string {
	if n := v.tokens.get(id); n > 0 {
		return v.names.name(int(n) - 1)
	}
	return ""
}

// isNamed reports whether id is that of token. It is faster than bytesID where it is.
func (v *vocab) isNamed(id int32, token []byte) bool {
	n := v.tokens.get(id)
	return n > 0 && v.names.entries[n-1].id == id && v.names.name(int(n)-1) == string(token)
}

// token returns the token with the given id.
func (v *vocab) token(id int32) (string, bool) {
	t := v.name(id)
	if t == "" {
		empty, ok := v.names.get("")
		return "", ok && empty == id
	}
	return t, true
}

// set enters a token, for an id up to top.
func (v *vocab) set(token []byte, id int32) {
	v.tokens.set(id, uint32(v.names.set(token, id))+1)
}

// push enters a token with the next id.
func (v *vocab) push(token []byte) {
	v.top++
	v.tokens.push(uint32(v.names.set(token, v.top)) + 1)
}

// all yields every id that may have a token, in no order.
func (v *vocab) all() iter.Seq2[int32, string] {
	return func(yield func(int32, string) bool) {
		for id, n := range v.tokens.all() {
			name := ""
			if n > 0 {
				name = v.names.name(int(n) - 1)
			}
			if !yield(id, name) {
				return
			}
		}
	}
}

// size returns one more than the largest id.
func (v *vocab) size() int { return int(v.top) + 1 }

// count returns the number of tokens.
func (v *vocab) count() int { return v.names.live }

// parseVocab reads an object of token: id. All tokens share one backing string. Memory
// grows with the number of tokens, not with the largest id.
func parseVocab(s *scanner) (*vocab, error) {
	v := &vocab{names: newNameList(len(s.Text)/28, len(s.Text)/3), top: -1}
	var name []byte
	err := s.Object("", func(key []byte) error {
		if !v.names.room(len(key)) {
			return s.fail("the tokens have more than %d bytes", math.MaxInt32)
		}
		name = append(name[:0], key...)
		id, err := s.id()
		if err != nil {
			return err
		}
		v.names.add(name, id)
		v.top = max(v.top, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.tokens = newIDTable[uint32](len(v.names.entries), v.top)
	v.names.index(func(id int32, entry int) { v.tokens.set(id, uint32(entry)+1) })
	return v, nil
}

// mustHave looks up a token that another part of the file names.
func (v *vocab) mustHave(token string) (int32, error) {
	id := v.id(token)
	if id < 0 {
		return 0, fmt.Errorf("%q is not in the vocabulary", token)
	}
	return id, nil
}
