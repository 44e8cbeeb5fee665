package grammar

import (
	"slices"

	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/vocab"
)

// texts is a finite set of texts as a trie: texts that a terminal does not match although its
// automaton does.
type texts struct {
	nodes []textNode
}

type textNode struct {
	children []textEdge // by byte
	whole    bool       // a text ends here
}

type textEdge struct {
	b  byte
	to int32
}

// noText is the state after a byte that continues no text.
const noText int32 = -1

func newTexts(list []string) *texts {
	t := &texts{nodes: make([]textNode, 1)}
	for _, s := range list {
		at := int32(0)
		for i := range len(s) {
			to := t.step(at, s[i])
			if to == noText {
				to = int32(len(t.nodes))
				t.nodes = append(t.nodes, textNode{})
				t.nodes[at].children = append(t.nodes[at].children, textEdge{s[i], to})
			}
			at = to
		}
		t.nodes[at].whole = true
	}
	return t
}

func (t *texts) step(at int32, b byte) int32 {
	if at == noText {
		return noText
	}
	for _, e := range t.nodes[at].children {
		if e.b == b {
			return e.to
		}
	}
	return noText
}

// Except returns t without the texts of list. Each state of t's automaton that is not the end of a
// text must have infinitely many continuations.
func (t *Terminal) Except(list []string) *Terminal {
	return &Terminal{lex: t.lex, max: -1, except: newTexts(list)}
}

// stepExcept is step for a terminal with exceptions.
func (t *Terminal) stepExcept(q int64, b byte) int64 {
	n := int64(t.lex.d.States())
	to := t.lex.d.Step(int32(q%n), b)
	if to == dfa.Dead {
		return dead
	}
	at := t.except.step(int32(q/n)-1, b)
	if at != noText && t.except.nodes[at].whole {
		return dead
	}
	return int64(to) + n*int64(at+1)
}

// excluded returns the tokens with which the terminal in state q would match one of the exceptions.
func (t *Terminal) excluded(v *vocab.Vocab, q int64) []int32 {
	at := int32(q/int64(t.lex.d.States())) - 1
	if at == noText {
		return nil
	}
	return t.except.find(v.Trie, at, 0, int32(v.Trie.Len()), nil)
}

// find collects the tokens among the nodes from to end that start with the rest of a text.
func (t *texts) find(trie *vocab.Trie, at, from, end int32, ids []int32) []int32 {
	for _, e := range t.nodes[at].children {
		for i := from; i < end; i = trie.Skip[i] {
			if trie.Bytes[i] != e.b {
				continue
			}
			if t.nodes[e.to].whole {
				ids = append(ids, trie.IDs[trie.First[i]:trie.First[trie.Skip[i]]]...)
			} else {
				ids = t.find(trie, e.to, i+1, trie.Skip[i], ids)
			}
			break
		}
	}
	return ids
}

// without returns ids that are not in minus. It changes ids.
func without(ids, minus []int32) []int32 {
	if len(minus) == 0 {
		return ids
	}
	drop := make(map[int32]bool, len(minus))
	for _, id := range minus {
		drop[id] = true
	}
	return slices.DeleteFunc(ids, func(id int32) bool { return drop[id] })
}
