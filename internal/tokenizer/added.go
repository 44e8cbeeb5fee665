package tokenizer

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// AddedToken is a token that is found in a text before all other processing. The fields are those
// of tokenizer.json.
type AddedToken struct {
	ID      int32
	Content string
	// SingleWord matches only between characters that are not part of a word.
	SingleWord bool
	// LStrip and RStrip include the white space before or after the token.
	LStrip, RStrip bool
	// Normalized matches in the normalized text instead of the given one.
	Normalized bool
	// Special tokens are left out by a decode that skips special tokens.
	Special bool
}

// addedVocab is the set of added tokens. It does not change after it is built.
type addedVocab struct {
	tokens         []AddedToken // in the file's order
	byID           map[int32]int
	byContent      map[string]int
	names          []string // what each decodes to: the normalized content where that is matched
	skipped        []bool   // left out by a decode that skips special tokens
	raw, afterNorm trie     // those matched before and after normalization
}

// newAddedVocab gives the tokens their ids as the reference does: that of the
// model's vocabulary if the token is in it, else one more than the largest id of the
// added tokens so far, and at least the number of tokens of the model. It does not look at
// the ids in the file.
func newAddedVocab(list []AddedToken, m model, norm normalizer) (*addedVocab, error) {
	a := &addedVocab{byID: map[int32]int{}, byContent: map[string]int{}}
	top := int32(-1) // the largest id of an added token
	for _, t := range list {
		if t.Content == "" {
			continue
		}
		if k, ok := a.byContent[t.Content]; ok {
			t.ID = a.tokens[k].ID
			a.tokens[k] = t
			continue
		}
		if t.ID = m.id(t.Content); t.ID < 0 {
			next := max(int(top)+1, m.count())
			if next > maxID {
				return nil, fmt.Errorf("added_tokens: no id is left for %q", t.Content)
			}
			t.ID = int32(next)
		}
		top = max(top, t.ID)
		a.byContent[t.Content], a.byID[t.ID] = len(a.tokens), len(a.tokens)
		a.tokens = append(a.tokens, t)
	}
	special, bytes := map[string]bool{}, 0
	for _, t := range a.tokens {
		bytes += len(t.Content)
	}
	limits := &bounds{steps: manyPatterns * allowance(bytes)}
	for _, t := range a.tokens {
		name := t.Content
		if t.Normalized && norm != nil {
			p := newPiece(name)
			p.bounds = limits
			p, err := norm.normalize(p)
			if err != nil {
				return nil, fmt.Errorf("added_tokens: %q: %w", t.Content, err)
			}
			name = p.s
		}
		a.names = append(a.names, name)
		special[t.Content] = special[t.Content] || t.Special
	}
	for _, name := range a.names {
		// Looked up by name: a special token that normalization changes is not skipped.
		a.skipped = append(a.skipped, special[name])
	}
	a.enter(true)
	a.enter(false)
	return a, nil
}

// enter puts the special tokens, or the others, into the tries. Of equal patterns the first wins,
// so special tokens are entered first. A token that normalization makes empty matches between all characters.
func (a *addedVocab) enter(special bool) {
	for i, t := range a.tokens {
		switch {
		case t.Special != special || t.Content == "":
		case t.Normalized:
			a.afterNorm.add(a.names[i], i)
		default:
			a.raw.add(t.Content, i)
		}
	}
}

// cut emits the pieces of p between the tokens of t, and the tokens.
func (a *addedVocab) cut(p piece, t *trie, splitSpecial bool, emit func(piece) error) error {
	from := 0
	steps := stepsBase + stepsPerByte*len(p.s)
	for at, last := 0, -1; ; {
		start, end, k := t.find(p.s, at, last, &steps)
		if steps < 0 {
			return ErrTooSlow
		}
		if k < 0 {
			break
		}
		at, last = end, end
		tok := &a.tokens[k]
		if splitSpecial && tok.Special || tok.SingleWord && !standsAlone(p.s, start, end) {
			continue
		}
		if tok.LStrip {
			if start < from {
				start = from
			} else {
				start = from + len(strings.TrimRightFunc(p.s[from:start], unicode.IsSpace))
			}
		}
		if tok.RStrip { // from end to from there is space, if anything
			end = len(p.s) - len(strings.TrimLeftFunc(p.s[max(from, end):], unicode.IsSpace))
		}
		if from < start {
			if err := emit(p.cut(from, start)); err != nil {
				return err
			}
		}
		if c := p.cut(start, end); c.s != "" {
			c.added = tok.ID
			if err := emit(c); err != nil {
				return err
			}
		}
		// A token inside white space that was just stripped is still matched next, as
		// the reference does.
		from = end
	}
	if from < len(p.s) {
		return emit(p.cut(from, len(p.s)))
	}
	return nil
}

// standsAlone reports whether no word character touches s[start:end].
func standsAlone(s string, start, end int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:start])
	after, k := utf8.DecodeRuneInString(s[end:])
	return !(n > 0 && isWord(before)) && !(k > 0 && isWord(after))
}

// trie finds the longest of many strings at the leftmost place.
type trie struct {
	nodes []trieNode // nodes[0] is the root; none if the trie is empty
}

// trieNode has its children in a table from byte lo on.
type trieNode struct {
	next  []int32 // 0: none
	lo    byte
	value int32 // what ends here, plus one
}

// add enters s, unless it is there already.
func (t *trie) add(s string, value int) {
	if t.nodes == nil {
		t.nodes = make([]trieNode, 1)
	}
	at := int32(0)
	for i := range len(s) {
		next := t.child(at, s[i])
		if next == 0 {
			next = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{})
			t.nodes[at].set(s[i], next)
		}
		at = next
	}
	if t.nodes[at].value == 0 {
		t.nodes[at].value = int32(value) + 1
	}
}

// set makes c lead to next. It widens the table if needed.
func (n *trieNode) set(c byte, next int32) {
	switch {
	case len(n.next) == 0:
		n.lo, n.next = c, []int32{0}
	case c < n.lo:
		n.next = append(make([]int32, n.lo-c), n.next...)
		n.lo = c
	}
	for int(c-n.lo) >= len(n.next) {
		n.next = append(n.next, 0)
	}
	n.next[c-n.lo] = next
}

func (t *trie) child(at int32, c byte) int32 {
	n := &t.nodes[at]
	if i := int(c) - int(n.lo); i >= 0 && i < len(n.next) {
		return n.next[i]
	}
	return 0
}

// find returns the leftmost longest match at or after at, with its value, or -1 if there is none. An empty one does not begin
// at last. find subtracts its work from steps and stops below zero.
func (t *trie) find(s string, at, last int, steps *int) (start, end, value int) {
	if len(t.nodes) == 0 {
		return 0, 0, -1
	}
	empty := int(t.nodes[0].value) - 1
	for ; at < len(s); at++ {
		if t.child(0, s[at]) != 0 {
			end, value, read := t.longest(s, at)
			if value >= 0 {
				return at, end, value
			}
			if *steps -= read; *steps < 0 {
				return 0, 0, -1
			}
		}
		if empty >= 0 && at != last && utf8.RuneStart(s[at]) {
			return at, at, empty
		}
	}
	if empty >= 0 && at == len(s) && at != last {
		return at, at, empty
	}
	return 0, 0, -1
}

// each implements matcher.
func (t *trie) each(s string, left *int, found func(start, end int) error) error {
	steps := math.MaxInt
	if left != nil {
		steps = *left
		defer func() { *left = steps }()
	}
	for at, last := 0, -1; ; {
		start, end, k := t.find(s, at, last, &steps)
		switch {
		case steps < 0:
			return ErrTooSlow
		case k < 0:
			return nil
		}
		if err := found(start, end); err != nil {
			return err
		}
		at, last = end, end
	}
}

// longest returns the end and the value of the longest match at a place, or a value of -1, and how many bytes it read.
func (t *trie) longest(s string, at int) (end, value, read int) {
	value = -1
	node, i := t.child(0, s[at]), at+1
	for node != 0 {
		if v := t.nodes[node].value; v > 0 {
			value, end = int(v)-1, i
		}
		if i == len(s) {
			break
		}
		if node = t.child(node, s[i]); node != 0 {
			i++
		}
	}
	return end, value, i - at
}
