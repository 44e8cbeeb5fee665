package data

// RowsForMetrics says how many of rows gathered rows (or objects) are no padding: all
// of them but at the end of s, where the remainder is known and not 0. Accelerate's
// gather_for_metrics cuts every gathered tensor, and a gathered list of objects, so.
func RowsForMetrics(s State, rows int) int {
	if r := s.Remainder(); s.EndOfDataloader() && r > 0 {
		return min(r, rows)
	}
	return rows
}

// TrimForMetrics cuts the padding off what was gathered, in order of rank, in one step
// of s. Objects are counted one by one: a rank's whole batch in one object is one.
func TrimForMetrics[E any](s State, gathered []E) []E {
	return gathered[:RowsForMetrics(s, len(gathered))]
}
