package grammar

import (
	"bytes"

	"github.com/heftai/heft/internal/grammar/vocab"
)

// only is the token that a state allows because the text that follows it is certain.
type only struct {
	known bool
	ok    bool
	id    int32
}

// maxCertain is the maximum number of bytes of a certain text that are examined.
const maxCertain = 48

// only returns the token with which the tokenizer would encode the text that must follow s, so that
// a text has only one tokenization. ok is false if several texts may follow, or if a token may
// extend beyond the text that is certain.
func (g *Grammar) only(s *state) (id int32, ok bool, err error) {
	if !s.only.known && g.vocab.Encode != nil {
		if s.only, err = g.findOnly(s); err != nil {
			return 0, false, err
		}
	}
	return s.only.id, s.only.ok, nil
}

func (g *Grammar) findOnly(s *state) (only, error) {
	var text []byte
	special := false
	for at := s; len(text) < maxCertain && !at.ends; {
		b, ok := g.onlyByte(at)
		if special = ok && b == vocab.SpecialByte; !ok || special {
			break
		}
		next, err := g.step(at, b)
		if err != nil {
			return only{}, err
		}
		text = append(text, b)
		at = next
	}
	none := only{known: true}
	if len(text) == 0 {
		return none, nil
	}
	t := g.vocab.Trie
	if node := t.Find(text); !special && node >= 0 && t.Skip[node] > node+1 {
		return none, nil // a token may start with the whole certain text and continue
	}
	for _, before := range []string{"", "\n"} { // some tokenizers put a space before a text
		rest := []byte(before)
		for _, id := range g.vocab.Encode(before + string(text)) {
			name := g.vocab.Name(id)
			if len(rest) > 0 {
				if len(name) == 0 || !bytes.HasSuffix(name, rest) {
					break
				}
				rest = nil
				continue
			}
			if len(name) > 0 && bytes.HasPrefix(text, name) {
				return only{true, true, id}, nil
			}
			break
		}
	}
	return none, nil
}

// onlyByte returns the only byte that may follow s.
func (g *Grammar) onlyByte(s *state) (b byte, ok bool) {
	for i, h := range s.heads {
		one, certain := h.onlyByte(g.terms[g.ops[h.at].arg])
		if !certain || i > 0 && one != b {
			return 0, false
		}
		b, ok = one, true
	}
	return b, ok
}

// onlyByte returns the only byte that may follow in h, which reads t.
func (h *head) onlyByte(t *Terminal) (b byte, ok bool) {
	if t.lang == nil {
		return t.onlyByte(h.q)
	}
	return theOnly(func(b byte) bool { return t.lang.Step(h.lang.State, b) != nil })
}

// theOnly returns the only byte that may follow.
func theOnly(may func(b byte) bool) (only byte, ok bool) {
	for i := range 256 {
		if !may(byte(i)) {
			continue
		}
		if ok {
			return 0, false
		}
		only, ok = byte(i), true
	}
	return only, ok
}

// onlyByte returns the only byte that may follow in state q.
func (t *Terminal) onlyByte(q int64) (b byte, ok bool) {
	if t.counts == nil && t.except == nil {
		// If a terminal may end or continue, the next one may start: s then has heads for both.
		return t.lex.d.Only(int32(q))
	}
	return theOnly(func(b byte) bool { return t.step(q, b) != dead })
}
