package residency

import (
	"math"
	"slices"
)

// A forecast predicts which of numbered things are used next. It expects that the use of two of them one after the
// other is followed by what followed it the last time, as in the steps of training. It is certain after some of
// its predictions in a row came true, and a wrong one halves that. Its methods are for one goroutine at a time.
type forecast struct {
	log  []int          // uses, oldest first; a use and its repetition are one
	base int            // the number of the first use in log
	at   int            // the number of the use that the latest one repeats, or the latest's own
	sure int            // grows with predictions that come true
	last map[[2]int]int // the number of the second thing's last use right after the first's
	uses map[int][]int  // the numbers of each thing's uses, ascending
}

const (
	sureEnough = 8       // successes in a row from which predictions are used
	mostSure   = 16      // more do not count
	mostLogged = 1 << 15 // uses
	never      = math.MaxInt
)

// used notes a use of x.
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

// certain reports whether predictions have come true lately.
func (f *forecast) certain() bool { return f.sure >= sureEnough }

// next returns the number of the use that repeats next for x, or never.
func (f *forecast) next(x int) int {
	uses := f.uses[x]
	if i, _ := slices.BinarySearch(uses, f.at+1); i < len(uses) {
		return uses[i]
	}
	return never
}

// coming returns what is expected to be used next, in order, n things at most, and the number of the first use.
func (f *forecast) coming(n int) (list []int, first int) {
	first = max(f.at+1, f.base)
	from := min(first-f.base, len(f.log))
	return f.log[from:min(from+n, len(f.log))], first
}
