package chars

import (
	"slices"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// maxClasses is the maximum number of classes of characters. A byte is the number of a class.
const maxClasses = 255

// classSet is a set of classes.
type classSet [4]uint64

func (s *classSet) add(k int)      { s[k>>6] |= 1 << (k & 63) }
func (s *classSet) has(k int) bool { return s[k>>6]>>(k&63)&1 != 0 }
func (s *classSet) or(t *classSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

func (s *classSet) and(t *classSet) (both classSet) {
	for i := range s {
		both[i] = s[i] & t[i]
	}
	return both
}

func (s *classSet) empty() bool { return s[0]|s[1]|s[2]|s[3] == 0 }

// cut is a character at which a set begins or ends.
type cut struct {
	at  rune
	set int32
}

// partition splits all characters into classes that none of sets distinguishes. of has the classes
// of each set.
func partition(sets [][]dfa.Range, budget *dfa.Budget) (classes [][]dfa.Range, of []classSet, err error) {
	all := dfa.Normalise([]dfa.Range{{Lo: 0, Hi: dfa.MaxRune}})
	cuts := []cut{}
	for i, ranges := range append(slices.Clone(sets), all) {
		for _, r := range ranges {
			cuts = append(cuts, cut{r.Lo, int32(i)}, cut{r.Hi + 1, int32(i)})
		}
	}
	if err := budget.Spend(100 * len(cuts)); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(cuts, func(a, b cut) int { return int(a.at - b.at) })
	of = make([]classSet, len(sets))
	in, ids := make([]byte, (len(sets)+8)/8), map[string]int{}
	for i := 0; i < len(cuts); {
		at := cuts[i].at
		for ; i < len(cuts) && cuts[i].at == at; i++ {
			in[cuts[i].set/8] ^= 1 << (cuts[i].set % 8)
		}
		if in[len(sets)/8]>>(len(sets)%8)&1 == 0 { // surrogates, and beyond the last character
			continue
		}
		if err := budget.Spend(10 * len(in)); err != nil {
			return nil, nil, err
		}
		id, ok := ids[string(in)]
		if !ok {
			id = len(classes)
			if id == maxClasses {
				return nil, nil, ErrTooLarge
			}
			ids[string(in)] = id
			classes = append(classes, nil)
			for s := range sets {
				if in[s/8]>>(s%8)&1 != 0 {
					of[s].add(id)
				}
			}
		}
		classes[id] = append(classes[id], dfa.Range{Lo: at, Hi: cuts[i].at - 1})
	}
	return classes, of, nil
}

// speller reads the spelling of one character.
type speller struct {
	d     *dfa.DFA
	class []int16    // of the character that ends in a state; -1 within one
	reach []classSet // the classes of the characters that may end after a state
}

// newSpeller returns the speller of classes, which are disjoint.
func newSpeller(classes [][]dfa.Range, sp *Spelling, budget *dfa.Budget) (*speller, error) {
	alts := make([]*dfa.Expr, len(classes))
	for i, ranges := range classes {
		alts[i] = dfa.Concat(sp.Char(ranges), dfa.Byte(byte(i), byte(i))) // its number tells where it ends
	}
	d, err := dfa.Compile(dfa.Alt(alts...), budget)
	if err != nil {
		return nil, err
	}
	s := &speller{d: d, class: make([]int16, d.States()), reach: make([]classSet, d.States())}
	done := make([]bool, d.States())
	var visit func(q int32)
	visit = func(q int32) {
		done[q], s.class[q] = true, -1
		for b := range 256 {
			to := d.Step(q, byte(b))
			if to == dfa.Dead {
				continue
			}
			if d.Accepts(to) {
				s.class[q] = int16(b)
				s.reach[q].add(b)
				continue
			}
			if !done[to] {
				visit(to)
			}
			s.reach[q].or(&s.reach[to])
		}
	}
	if !d.IsEmpty() {
		visit(d.Start())
	}
	return s, nil
}

// step returns the state after a byte and, if a character ends there, its class; otherwise -1.
func (s *speller) step(q int32, b byte) (to int32, class int) {
	if s.class[q] >= 0 { // only its number follows
		return dfa.Dead, -1
	}
	if to = s.d.Step(q, b); to == dfa.Dead {
		return to, -1
	}
	return to, int(s.class[to])
}
