package cpu

import "github.com/heftai/heft/internal/backend"

// scoring divides an indexer's rows among threads. If there are enough rows, a unit scores a row
// and chooses. Otherwise several rows are scored together, in parts of their places, and then
// chosen: a unit is then a part of a row's places, or a row. The scores of the i-th row are in
// the scratch memory of worker i. A place is one or several scored keys.
type scoring struct {
	rows    *sparseRows
	workers []*worker
	step    chooseStep
	first   int // the first row of those that are scored together
	each    int // places per part
	parts   int // parts per row
}

// chooseStep selects what a unit does.
type chooseStep int

const (
	chooseRow    chooseStep = iota // scores a row and chooses
	choosePart                     // scores a part of a row's places
	chooseScored                   // chooses among a row's places
)

// runAll runs t, which contains c, for all rows. score and choice are the numbers of steps per
// row.
func (c *scoring) runAll(b *Backend, t task, places, score, choice int) {
	c.workers = b.pool.workers
	n, threads := c.rows.rows, len(c.workers)
	if threads == 1 || n >= 2*threads {
		c.step = chooseRow
		b.run(t, n, n*score)
		return
	}
	c.each = ceil(places, 4*threads)
	c.parts = ceil(places, c.each)
	for c.first = 0; c.first < n; c.first += threads {
		rows := min(threads, n-c.first)
		c.step = choosePart
		b.run(t, rows*c.parts, rows*score)
		c.step = chooseScored
		b.run(t, rows, rows*choice)
	}
}

// unit returns the row of a unit: its span and its index there, the scores, which are w's or
// those of the row's worker, and the first place of the unit's part.
func (c *scoring) unit(w *worker, unit int) (s *backend.Span, i int, scores []float32, place int) {
	if c.step == choosePart {
		unit, place = unit/c.parts, unit%c.parts*c.each
	}
	if s, i = c.rows.at(c.first + unit); c.step != chooseRow {
		w = c.workers[unit]
	}
	return s, i, w.scratch.v, place
}
