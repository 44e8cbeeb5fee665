package backend

// Halves is a matrix whose rows come in groups, of which the first rows are used together, and then the others: such
// as the keys and the values of each head.
type Halves struct{ Group, First int }

// Rows returns the rows of a group that one half has, and where they begin.
func (h Halves) Rows(second bool) (begin, count int) {
	if second {
		return h.First, h.Group - h.First
	}
	return 0, h.First
}
