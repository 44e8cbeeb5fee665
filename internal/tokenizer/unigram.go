package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// unigram is SentencePiece's unigram model. It cuts a word into the tokens with the highest sum of
// scores.
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
	reach   reach
}

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

// finish sets what follows from the vocabulary and its scores.
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
		parts := 0
		err := s.Array("", func(k int) error {
			parts++
			if k == 0 {
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
		})
		if err == nil && parts != 2 {
			err = s.fail("not a pair of token and score")
		}
		return err
	})
}

// pathNode is the best path to a position.
type pathNode struct {
	score float64
	start int32 // where the last token begins, -1 if there is no way yet
	id    int32
}

// pathBytes is the memory for a byte of a long word: a node of the path, and an id.
const pathBytes = 16 + 4

// best finds the best path to each position of word.
func (u *unigram) best(word string, b *bounds) ([]pathNode, error) {
	if len(word) > longWord {
		if err := b.memory(len(word) * pathBytes); err != nil {
			return nil, err
		}
	}
	best := make([]pathNode, len(word)+1)
	for i := range best {
		best[i].start = -1
	}
	steps := stepsBase + stepsPerByte*len(word)
	for at, r := range word {
		if err := b.step(); err != nil {
			return nil, err
		}
		size := utf8.RuneLen(r)
		here, single := best[at].score, false
		offer := func(end int, id int32, score float64) {
			if to := &best[end]; to.start < 0 || score > to.score {
				*to = pathNode{score, int32(at), id}
			}
		}
		node := int32(0)
		for end := at; end < len(word); {
			next, id, ok := u.trie.edge(node, word[end])
			if !ok {
				break
			}
			node, end, steps = next, end+1, steps-1
			if id >= 0 {
				offer(end, id, here+u.scores[id])
				single = single || end-at == size
			}
		}
		if steps < 0 {
			return nil, ErrTooSlow
		}
		if !single {
			if u.unk < 0 {
				return nil, errNoUnk
			}
			offer(at+size, u.unk, here+u.unkScore)
		}
	}
	return best, nil
}

// path follows best from the end and returns the parts in order.
func (u *unigram) path(best []pathNode) []span {
	var out []span
	joins := false // the stretch behind is unknown
	for end := len(best) - 1; end > 0; {
		n := best[end]
		unknown := u.unk >= 0 && n.id == u.unk
		if unknown && joins {
			out[len(out)-1].start = int(n.start)
		} else {
			out = append(out, span{int(n.start), end})
		}
		joins, end = unknown, int(n.start)
	}
	for i, k := 0, len(out)-1; i < k; i, k = i+1, k-1 {
		out[i], out[k] = out[k], out[i]
	}
	return out
}

// longest implements model.
func (u *unigram) longest() int {
	if !u.byteFallback || slices.Contains(u.fallback[:], -1) {
		return 0
	}
	return u.widest
}

// covers implements model. A character with a token of its own is never unknown, unless it is part of
// the unknown token's name: neighbours of that name become one, too.
func (u *unigram) covers(c rune) int {
	unk, _ := u.token(u.unk)
	if u.id(string(c)) < 0 || strings.ContainsRune(unk, c) {
		return 0
	}
	return u.widest
}

// least implements model: any number of unknown neighbours become one token, unless there is one
// for each byte.
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

// appendBest appends the ids of the best path. It needs memory for that path and the ids only. It
// follows the path from the end and then reverses the ids.
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
			for start > 0 && best[start].id == u.unk { // unknown neighbours become one
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

// appendUnknown appends the ids of a part without tokens, the last one first.
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

// edgeTrie is a trie of many strings with its edges in one hash table: a node and a byte lead to
// the next node and the id of the string that ends there.
type edgeTrie struct {
	edges *pairTable
	nodes int32
}

func newEdgeTrie() *edgeTrie { return &edgeTrie{newPairTable(1 << 10), 0} }

// add enters s with an id. It ignores the empty string.
func (t *edgeTrie) add(s string, id int32) {
	node := int32(0)
	for i := range len(s) {
		if int(t.nodes) > len(t.edges.slots)*2/3 {
			t.edges = t.edges.grown()
		}
		slot, key := t.edges.slot(node, int32(s[i]))
		if slot.key == 0 {
			t.nodes++
			*slot = pairSlot{key, -1, t.nodes}
		}
		if i == len(s)-1 {
			slot.rank = id
		}
		node = slot.fused
	}
}

// edge follows the byte c from node. id is -1 if no string ends there.
func (t *edgeTrie) edge(node int32, c byte) (next, id int32, ok bool) {
	id, next, ok = t.edges.get(node, int32(c))
	return next, id, ok
}
