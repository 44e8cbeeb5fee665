package chars

import (
	"slices"
	"sort"

	"github.com/heftai/heft/internal/grammar/dfa"
)

// maxRowBits is the maximum memory of all rows.
const maxRowBits = 1 << 25

// lengths says from which states a text of an allowed length can still end. The states depend on
// the number of characters that were read; neighbouring numbers often have the same ones.
type lengths struct {
	min, max int // max < 0: none
	rows     []row
}

// row has the states from which a text can end after at least from characters.
type row struct {
	from   int
	states []uint64
}

// newLengths finds the rows, from the longest text to the empty one.
func (a *auto) newLengths(least, most int, budget *dfa.Budget) (*lengths, error) {
	l := &lengths{min: least, max: most}
	words := (len(a.states) + 63) / 64
	ends, all := make([]uint64, words), make([]uint64, words)
	for i := range a.states {
		if a.states[i].accept {
			ends[i/64] |= 1 << (i % 64)
		}
		if a.states[i].accept || len(a.states[i].edges) > 0 {
			all[i/64] |= 1 << (i % 64)
		}
	}
	at, now := least, all // without a maximum: after the minimum, where any text may end
	if most >= 0 {
		at, now = most, ends
		if most < least {
			now = make([]uint64, words)
		}
	}
	l.rows = append(l.rows, row{at, now})
	for at > 0 {
		before := make([]uint64, words)
		if at-1 >= least {
			copy(before, ends)
		}
		for i := range a.states {
			for j := range a.states[i].edges {
				if to := a.states[i].edges[j].to; now[to/64]>>(to%64)&1 != 0 {
					before[i/64] |= 1 << (i % 64)
					break
				}
			}
		}
		if budget.Spend(4*(a.edges+len(a.states))) != nil || len(l.rows)*words*64 > maxRowBits {
			return nil, ErrTooLarge
		}
		at--
		switch {
		case !slices.Equal(before, now):
			l.rows = append(l.rows, row{at, before})
			now = before
		case at > least: // and so on, until shorter texts may no longer end
			at = least
			l.rows[len(l.rows)-1].from = at
		case at < least: // and so on
			at = 0
			l.rows[len(l.rows)-1].from = at
		default:
			l.rows[len(l.rows)-1].from = at
		}
	}
	slices.Reverse(l.rows)
	return l, nil
}

// alive returns the states from which a text of n characters can end.
func (l *lengths) alive(n int) []uint64 {
	i := sort.Search(len(l.rows), func(i int) bool { return l.rows[i].from > n }) - 1
	return l.rows[max(i, 0)].states
}

// after returns the number of characters after another one. Beyond the minimum it does not matter
// without a maximum.
func (l *lengths) after(n int) int {
	if l.max < 0 {
		return min(n+1, l.min)
	}
	return n + 1
}

// bytes returns the memory of l.
func (l *lengths) bytes() int { return len(l.rows) * (32 + 8*len(l.rows[0].states)) }
