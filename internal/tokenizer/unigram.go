package tokenizer

import (
	"slices"
	"strings"
	"sync"
)

// unigram is SentencePiece's unigram model. It splits a word into the tokens with the highest sum of scores.
type unigram struct {
	*vocab
	scores       []float64
	trie         *edgeTrie
	unk          int32 // -1: none
	unkScore     float64
	widest       int // bytes of the longest token
	byteFallback bool
	fallback     [256]int32
	cache        *wordCache

	reached sync.Once // fills reach
	reach   reach     // of least
}

// longest implements model.
func (u *unigram) longest() int {
	if !u.byteFallback || slices.Contains(u.fallback[:], -1) {
		return 0
	}
	return u.widest
}

// covers implements model. A character with a token of its own is never unknown, unless it is part of the unknown
// token's name, because adjacent occurrences of that name are merged like unknown characters.
func (u *unigram) covers(c rune) int {
	unk, _ := u.token(u.unk)
	if u.id(string(c)) < 0 || strings.ContainsRune(unk, c) {
		return 0
	}
	return u.widest
}

// least implements model. Without a token for each byte the bound is 0, because any number of adjacent unknown
// characters becomes one token.
func (u *unigram) least(word string) int {
	if !u.byteFallback || slices.Contains(u.fallback[:], -1) {
		return 0
	}
	u.reached.Do(func() {
		for _, token := range u.all() {
			u.reach.add([]byte(token))
		}
	})
	return u.reach.least(word)
}

func (u *unigram) appendTokens(dst []token, word string) ([]token, error) {
	best, err := u.best(word, nil)
	if err != nil {
		return dst, err
	}
	for _, at := range u.path(best) {
		text := word[at.start:at.end]
		if id := u.id(text); id >= 0 {
			dst = append(dst, token{id: id, start: at.start, end: at.end})
			continue
		}
		if u.byteFallback && u.hasBytes(text) {
			for _, b := range []byte(text) {
				dst = append(dst, token{id: u.fallback[b], start: at.start, end: at.end})
			}
			continue
		}
		if u.unk < 0 {
			return dst, errNoUnk
		}
		dst = append(dst, token{u.unk, at.start, at.end, text})
	}
	return dst, nil
}

// hasBytes reports whether each byte of s has a token.
func (u *unigram) hasBytes(s string) bool {
	for i := range len(s) {
		if u.fallback[s[i]] < 0 {
			return false
		}
	}
	return true
}

func (u *unigram) appendIDs(dst []int32, word string, b *bounds) ([]int32, error) {
	short := len(word) <= cacheMaxWord
	slot := u.cache.slot(word[:min(len(word), cacheMaxWord)])
	if short {
		if hit := slot.Load(); hit != nil && hit.word == word {
			return append(dst, hit.ids...), nil
		}
	}
	from := len(dst)
	dst, err := u.appendBest(dst, word, b)
	if err != nil {
		return dst[:from], err
	}
	if short {
		u.cache.put(slot, word, dst[from:])
	}
	return dst, nil
}

// appendBest appends the ids of the best path. It follows the path from the end and then reverses the ids, so that it
// needs memory for the path and the ids only.
func (u *unigram) appendBest(dst []int32, word string, b *bounds) ([]int32, error) {
	best, err := u.best(word, b)
	if err != nil {
		return dst, err
	}
	from := len(dst)
	for end := len(best) - 1; end > 0; {
		n := best[end]
		start := int(n.start)
		if u.unk >= 0 && n.id == u.unk {
			for start > 0 && best[start].id == u.unk { // adjacent unknown characters become one
				start = int(best[start].start)
			}
			if dst, err = u.appendUnknown(dst, word[start:end]); err != nil {
				return dst, err
			}
		} else {
			dst = append(dst, n.id)
		}
		end = start
	}
	slices.Reverse(dst[from:])
	return dst, nil
}

// appendUnknown appends the ids of unknown characters, in reverse order.
func (u *unigram) appendUnknown(dst []int32, text string) ([]int32, error) {
	if id := u.id(text); id >= 0 {
		return append(dst, id), nil
	}
	if u.byteFallback && u.hasBytes(text) {
		for i := len(text) - 1; i >= 0; i-- {
			dst = append(dst, u.fallback[text[i]])
		}
		return dst, nil
	}
	return append(dst, u.unk), nil
}
