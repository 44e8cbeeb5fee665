package tensor

import (
	"sync"
	"sync/atomic"
)

// parallel calls f for each unit on up to tp.threads goroutines. Units are cut by the
// shapes alone and write apart from each other, so their results do not depend on the
// number of threads.
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

// grain is about how many elements of pointwise work make a unit.
const grain = 1 << 14

// ranges cuts n elements into units of about grain and calls f for each piece.
func (tp *Tape) ranges(n int, f func(lo, hi int)) {
	tp.rows(n, 1, f)
}

// rows cuts n rows of width elements into pieces of about grain elements.
func (tp *Tape) rows(n, width int, f func(lo, hi int)) {
	step := max(grain/max(width, 1), 1)
	tp.parallel((n+step-1)/step, func(i int) { f(i*step, min((i+1)*step, n)) })
}
