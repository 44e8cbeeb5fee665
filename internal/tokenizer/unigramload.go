package tokenizer

import (
	"fmt"
	"math"
	"strconv"
)

// unkPenalty is the difference between the worst token's score and an unknown character's.
const unkPenalty = 10

func parseUnigram(spec modelSpec) (model, error) {
	u := &unigram{unk: -1}
	s := spec.scan("vocab")
	if s == nil {
		return nil, errNoVocab
	}
	if err := u.parseVocab(s); err != nil {
		return nil, fmt.Errorf("model.vocab: %w", err)
	}
	var err error
	if u.byteFallback, err = spec.flag("byte_fallback"); err != nil {
		return nil, err
	}
	if s := spec.scan("unk_id"); s != nil {
		if u.unk, err = s.id(); err == nil && int(u.unk) >= u.size() {
			err = fmt.Errorf("got %d, want an id below the vocabulary's size %d", u.unk, u.size())
		}
		if err != nil {
			return nil, fmt.Errorf("model.unk_id: %w", err)
		}
	}
	u.finish()
	return u, nil
}

// finish sets the fields that follow from the vocabulary and its scores.
func (u *unigram) finish() {
	u.cache, u.trie = newWordCache(), newEdgeTrie()
	for i := range u.fallback {
		u.fallback[i] = u.id(fmt.Sprintf("<0x%02X>", i))
	}
	lowest := math.Inf(1)
	for id, score := range u.scores {
		lowest = min(lowest, score)
		token := u.name(int32(id))
		u.widest = max(u.widest, len(token))
		u.trie.add(token, u.id(token))
	}
	u.unkScore = lowest - unkPenalty
}

// parseVocab reads a list of [token, score]. A token's index is its id.
func (u *unigram) parseVocab(s *scanner) error {
	u.vocab = &vocab{names: newNames(len(s.Text)/28, len(s.Text)/3), top: -1}
	return s.Array("", func(i int) error {
		if i >= maxID {
			return s.fail("more than %d tokens", maxID)
		}
		return u.parsePair(s)
	})
}

// parsePair reads a token and its score.
func (u *unigram) parsePair(s *scanner) error {
	n := 0
	err := s.Array("", func(k int) error {
		n++
		if k == 0 {
			return u.parseToken(s)
		}
		return u.parseScore(s)
	})
	if err == nil && n != 2 {
		err = s.fail("not a pair of token and score")
	}
	return err
}

func (u *unigram) parseToken(s *scanner) error {
	name, err := s.String()
	if err != nil {
		return err
	}
	if !u.names.room(len(name)) {
		return s.fail("the tokens have more than %d bytes", math.MaxInt32)
	}
	u.push(name)
	return nil
}

func (u *unigram) parseScore(s *scanner) error {
	text, err := s.number()
	if err != nil {
		return err
	}
	score, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return s.fail("got %q, want a number", text)
	}
	u.scores = append(u.scores, score)
	return nil
}
