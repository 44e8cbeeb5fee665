package tokenizer

import (
	"slices"
	"unicode/utf8"
)

// pathNode is the last step of the best path to a position.
type pathNode struct {
	score float64
	start int32 // where the last token begins; -1 if no path is known
	id    int32
}

// pathBytes is the memory that a byte of a long word takes: a pathNode and an id.
const pathBytes = 16 + 4

// best finds the path with the highest score to each position of word, by Viterbi's algorithm.
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

// path follows best from the end of the word and returns the tokens in order. Adjacent unknown characters are one.
func (u *unigram) path(best []pathNode) []span {
	var out []span
	joins := false // the token that follows is unknown
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
	slices.Reverse(out)
	return out
}
