package tokenizer

import "fmt"

// maxID is the largest id a vocabulary may use: ids index a slice, so a hostile
// file must not be able to ask for an arbitrary amount of memory.
const maxID = 1 << 24

// sparse is how far ids may run ahead of the number of tokens.
const sparse = 1 << 16

// vocab is a model's own vocabulary: tokens and ids both ways. It does not change
// after it is built.
type vocab struct {
	ids    map[string]int32
	tokens []string // by id; "" where no token has the id, or for the empty token
}

// id returns the id of token, or -1.
func (v *vocab) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

// bytesID is id for a token in a byte slice, without copying it.
func (v *vocab) bytesID(token []byte) int32 {
	if id, ok := v.ids[string(token)]; ok {
		return id
	}
	return -1
}

// token returns the token with the given id.
func (v *vocab) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return "", false
	}
	t := v.tokens[id]
	if t == "" {
		empty, ok := v.ids[""]
		return "", ok && empty == id
	}
	return t, true
}

// size is one more than the largest id.
func (v *vocab) size() int { return len(v.tokens) }

// count is the number of tokens.
func (v *vocab) count() int { return len(v.ids) }

// parseVocab reads an object of token: id. All tokens share one backing string.
func parseVocab(s *scanner) (*vocab, error) {
	type entry struct{ end, id int32 }
	arena := make([]byte, 0, len(s.b)/2)
	entries := make([]entry, 0, len(s.b)/20)
	top := int32(-1)
	err := s.object(func(key []byte) error {
		arena = append(arena, key...)
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
	if int(top) > 2*len(entries)+sparse {
		return nil, fmt.Errorf("the id %d in a vocabulary of %d", top, len(entries))
	}
	v := &vocab{ids: make(map[string]int32, len(entries)), tokens: make([]string, top+1)}
	all, start := string(arena), int32(0)
	for _, e := range entries {
		token := all[start:e.end]
		v.ids[token], v.tokens[e.id] = e.id, token
		start = e.end
	}
	return v, nil
}

// mustHave looks a token up that the file names elsewhere.
func (v *vocab) mustHave(token string) (int32, error) {
	id := v.id(token)
	if id < 0 {
		return 0, fmt.Errorf("%q is not in the vocabulary", token)
	}
	return id, nil
}
