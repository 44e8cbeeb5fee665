package chars

import (
	"encoding/binary"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// A Spelling says how the characters of a text are written.
type Spelling struct {
	// Char matches one character of ranges. No spelling may be the beginning of another one.
	Char func(ranges []dfa.Range) *dfa.Expr
	// Escape returns the bytes of a character below 0x80 as automata of whole strings read it.
	Escape func(c byte) string
	// Open and Close are the bytes around a text in automata of whole strings.
	Open, Close string
}

// piece is a range of characters that lead to the same state.
type piece struct {
	lo, hi rune
	to     int32
}

// byteReader finds the characters that an automaton over bytes reads.
type byteReader struct {
	d      *dfa.DFA
	sp     *Spelling
	tails  map[tailKey][]piece
	budget *dfa.Budget
}

// tailKey is a state in which n continuation bytes are missing.
type tailKey struct {
	q int32
	n int
}

// FromDFA returns the part of the strings that d reads in the spelling sp.
func FromDFA(d *dfa.DFA, sp *Spelling, budget *dfa.Budget) (*Part, error) {
	b := NewBuilder(budget)
	begin := d.Start()
	for i := 0; i < len(sp.Open) && begin != dfa.Dead; i++ {
		begin = d.Step(begin, sp.Open[i])
	}
	if begin == dfa.Dead {
		none, err := b.Split()
		if err != nil {
			return nil, err
		}
		return b.Part(none)
	}
	r := &byteReader{d: d, sp: sp, tails: map[tailKey][]piece{}, budget: budget}
	p := &Part{}
	ids, order := map[int32]int32{begin: 0}, []int32{begin}
	total := 0
	for i := 0; i < len(order); i++ {
		pieces, err := r.pieces(order[i])
		if err != nil {
			return nil, err
		}
		byTarget, targets := map[int32][]dfa.Range{}, []int32(nil)
		for _, c := range pieces {
			if _, ok := byTarget[c.to]; !ok {
				targets = append(targets, c.to)
			}
			byTarget[c.to] = append(byTarget[c.to], dfa.Range{Lo: c.lo, Hi: c.hi})
		}
		s := partState{accept: r.ends(order[i])}
		for _, to := range targets {
			id, ok := ids[to]
			if !ok {
				id = int32(len(order))
				ids[to] = id
				order = append(order, to)
			}
			s.edges = append(s.edges, edge{b.set(byTarget[to]), id})
		}
		if total += len(targets); total > maxEdges || len(order) > maxStates || budget.Spend(100*len(pieces)) != nil {
			return nil, ErrTooLarge
		}
		p.states = append(p.states, s)
	}
	p.sets = b.sets
	return p, nil
}

// ends reports whether a text may end in q.
func (r *byteReader) ends(q int32) bool {
	for i := 0; i < len(r.sp.Close) && q != dfa.Dead; i++ {
		q = r.d.Step(q, r.sp.Close[i])
	}
	return q != dfa.Dead && r.d.Accepts(q)
}

// pieces returns where the characters lead from q.
func (r *byteReader) pieces(q int32) ([]piece, error) {
	var out []piece
	for c := range 0x80 {
		to := q
		for _, b := range []byte(r.sp.Escape(byte(c))) {
			if to = r.d.Step(to, b); to == dfa.Dead {
				break
			}
		}
		if to != dfa.Dead {
			out = join(out, piece{rune(c), rune(c), to})
		}
	}
	for lead := 0xC2; lead < 0xF5; lead++ {
		to := r.d.Step(q, byte(lead))
		if to == dfa.Dead {
			continue
		}
		missing, base := 1, rune(lead&0x1F)
		switch {
		case lead >= 0xF0:
			missing, base = 3, rune(lead&0x07)
		case lead >= 0xE0:
			missing, base = 2, rune(lead&0x0F)
		}
		tail, err := r.tail(tailKey{to, missing})
		if err != nil {
			return nil, err
		}
		for _, t := range tail {
			out = join(out, piece{base<<(6*missing) + t.lo, base<<(6*missing) + t.hi, t.to})
		}
	}
	return out, nil
}

// tail returns where the continuation bytes lead.
func (r *byteReader) tail(key tailKey) ([]piece, error) {
	if found, ok := r.tails[key]; ok {
		return found, nil
	}
	if err := r.budget.Spend(2000); err != nil {
		return nil, err
	}
	var out []piece
	for c := range rune(0x40) {
		to := r.d.Step(key.q, byte(0x80+c))
		switch {
		case to == dfa.Dead:
		case key.n == 1:
			out = join(out, piece{c, c, to})
		default:
			rest, err := r.tail(tailKey{to, key.n - 1})
			if err != nil {
				return nil, err
			}
			shift := c << (6 * (key.n - 1))
			for _, t := range rest {
				out = join(out, piece{shift + t.lo, shift + t.hi, t.to})
			}
		}
	}
	r.tails[key] = out
	return out, nil
}

// join appends a piece, or extends the last one.
func join(list []piece, p piece) []piece {
	if n := len(list); n > 0 && list[n-1].to == p.to && list[n-1].hi+1 == p.lo {
		list[n-1].hi = p.hi
		return list
	}
	return append(list, p)
}

// appendInts appends numbers to a key.
func appendInts(key []byte, list []int32) []byte {
	for _, v := range list {
		key = binary.LittleEndian.AppendUint32(key, uint32(v))
	}
	return key
}
