package backend

// RowGroups describes a matrix whose rows come in groups. The first rows of all groups are used
// together, and then the others, such as the keys and the values of each head.
type RowGroups struct{ Size, First int }

// Rows returns the range of the rows of each group that are used together: the first ones, or the
// others.
func (g RowGroups) Rows(second bool) (begin, count int) {
	if second {
		return g.First, g.Size - g.First
	}
	return 0, g.First
}
