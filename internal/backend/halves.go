package backend

// Halves describes a matrix whose rows come in groups. The first rows of all groups are used
// together, and then the others, such as the keys and the values of each head.
type Halves struct{ Group, First int }

// Rows returns the range of a group's rows that belong to one half.
func (h Halves) Rows(second bool) (begin, count int) {
	if second {
		return h.First, h.Group - h.First
	}
	return 0, h.First
}
