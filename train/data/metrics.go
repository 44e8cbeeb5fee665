package data

// RowsForMetrics returns how many of rows gathered rows (or objects) are not padding: all, except
// at the end of s if its remainder is known and not 0. Accelerate's gather_for_metrics cuts every
// gathered tensor and list that way.
func RowsForMetrics(s LoaderState, rows int) int {
	if r := s.Remainder(); s.EndOfDataloader() && r > 0 {
		return min(r, rows)
	}
	return rows
}

// TrimForMetrics cuts the padding from results that were gathered, in order of rank, in one step of
// s. Objects are counted one by one: a rank's whole batch in one object counts as one.
func TrimForMetrics[E any](s LoaderState, gathered []E) []E {
	return gathered[:RowsForMetrics(s, len(gathered))]
}
