package residency

import (
	"math"
	"slices"
)

// A forecast predicts which of a set of numbered items is used next. After two items in a row it
// expects the item that followed these two the last time, as in the steps of training. It is
// certain after several of its predictions in a row were right; a wrong one halves its certainty.
// It is not safe for concurrent use.
type forecast struct {
	log  []int          // uses, oldest first; repeated uses of an item count once
	base int            // the number of the first use in log
	at   int            // the number of the use that the latest one repeats, or of the latest itself
	sure int            // grows with right predictions
	last map[[2]int]int // the number of the second item's last use right after the first's
	uses map[int][]int  // the numbers of each item's uses, ascending
}

const (
	sureEnough = 8       // right predictions in a row from which predictions are used
	mostSure   = 16      // maximum value of sure
	mostLogged = 1 << 15 // maximum length of log
	never      = math.MaxInt
)

// used records a use of x.
func (f *forecast) used(x int) {
	before := -1
	if n := len(f.log); n > 0 {
		if before = f.log[n-1]; before == x {
			return
		}
	}
	if f.last == nil {
		f.last, f.uses = map[[2]int]int{}, map[int][]int{}
	}
	now, pair := f.base+len(f.log), [2]int{before, x}
	if next := f.at + 1; next < now && next >= f.base && f.log[next-f.base] == x {
		f.at, f.sure = next, min(f.sure+1, mostSure)
	} else {
		f.at, f.sure = now, f.sure/2
		if at, ok := f.last[pair]; ok {
			f.at = at
		}
	}
	f.last[pair] = now
	f.log, f.uses[x] = append(f.log, x), append(f.uses[x], now)
	if len(f.log) >= mostLogged {
		f.forget(len(f.log) / 2)
	}
}

// forget drops the n oldest uses.
func (f *forecast) forget(n int) {
	f.log, f.base = slices.Delete(f.log, 0, n), f.base+n
	for pair, at := range f.last {
		if at < f.base {
			delete(f.last, pair)
		}
	}
	for x, uses := range f.uses {
		i, _ := slices.BinarySearch(uses, f.base)
		if f.uses[x] = slices.Delete(uses, 0, i); len(uses) == i {
			delete(f.uses, x)
		}
	}
}

// certain reports whether recent predictions were right.
func (f *forecast) certain() bool { return f.sure >= sureEnough }

// next returns the number of the use that the next use of x repeats, or never.
func (f *forecast) next(x int) int {
	uses := f.uses[x]
	if i, _ := slices.BinarySearch(uses, f.at+1); i < len(uses) {
		return uses[i]
	}
	return never
}

// coming returns up to n items that are predicted to be used next, in order, and the number of
// the first use.
func (f *forecast) coming(n int) (list []int, first int) {
	first = max(f.at+1, f.base)
	from := min(first-f.base, len(f.log))
	return f.log[from:min(from+n, len(f.log))], first
}
