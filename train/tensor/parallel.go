package tensor

import (
	"sync"
	"sync/atomic"
)

// parallel calls f for each unit on up to tp.threads goroutines. Units depend on the shapes alone
// and write disjoint memory, so results do not depend on the number of threads.
func (tp *Tape) parallel(units int, f func(unit int)) {
	workers := min(tp.threads, units)
	if workers <= 1 {
		for i := range units {
			f(i)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= units {
				return
			}
			f(i)
		}
	}
	for range workers - 1 {
		all.Go(work)
	}
	work()
	all.Wait()
}

// grain is the approximate number of elements of pointwise work per unit.
const grain = 1 << 14

// ranges splits n elements into units of about grain and calls f for each.
func (tp *Tape) ranges(n int, f func(lo, hi int)) {
	tp.rows(n, 1, f)
}

// rows splits n rows of width elements into units of about grain elements.
func (tp *Tape) rows(n, width int, f func(lo, hi int)) {
	step := max(grain/max(width, 1), 1)
	tp.parallel((n+step-1)/step, func(i int) { f(i*step, min((i+1)*step, n)) })
}
