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
	ids    map[string]int32
	tokens idTable[string] // "" where no token has the id, or for the empty token
	top    int32           // the largest id, -1 for none
}

// id returns the id of token, or -1.
func (v *vocab) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

// bytesID is id for a token in a byte slice, which it does not copy.
func (v *vocab) bytesID(token []byte) int32 {
	if id, ok := v.ids[string(token)]; ok {
		return id
	}
	return -1
}

// token returns the token with the given id.
func (v *vocab) token(id int32) (string, bool) {
	t := v.tokens.get(id)
	if t == "" {
		empty, ok := v.ids[""]
		return "", ok && empty == id
	}
	return t, true
}

// all yields every id that may have a token, in no order.
func (v *vocab) all() iter.Seq2[int32, string] { return v.tokens.all() }

// size returns one more than the largest id.
func (v *vocab) size() int { return int(v.top) + 1 }

// count returns the number of tokens.
func (v *vocab) count() int { return len(v.ids) }

// parseVocab reads an object of token: id. All tokens share one backing string. Memory
// grows with the number of tokens, not with the largest id.
func parseVocab(s *scanner) (*vocab, error) {
	type entry struct{ end, id int32 }
	arena := make([]byte, 0, len(s.Text)/2)
	entries := make([]entry, 0, len(s.Text)/20)
	top := int32(-1)
	err := s.Object("", func(key []byte) error {
		arena = append(arena, key...)
		if len(arena) > math.MaxInt32 {
			return s.fail("the tokens have more than %d bytes", math.MaxInt32)
		}
		id, err := s.id()
		if err != nil {
			return err
		}
		entries = append(entries, entry{int32(len(arena)), id})
		top = max(top, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	v := &vocab{ids: make(map[string]int32, len(entries)), tokens: newIDTable[string](len(entries), top), top: top}
	all, start := string(arena), int32(0)
	for _, e := range entries {
		token := all[start:e.end]
		v.ids[token] = e.id
		v.tokens.set(e.id, token)
		start = e.end
	}
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
