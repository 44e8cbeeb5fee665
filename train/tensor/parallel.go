package tensor

import "github.com/heftai/heft/internal/backend/cpu"

// parallel calls f for each unit on up to tp.threads threads of a backend. Units depend only on
// the shapes and write disjoint memory, so results do not depend on the number of threads.
func (tp *Tape) parallel(units int, f func(unit int)) {
	if min(tp.threads, units) <= 1 {
		for i := range units {
			f(i)
		}
		return
	}
	tp.compute("parallel", func(b *cpu.Backend) { b.Parallel(units, f) })
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
