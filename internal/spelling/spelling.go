// Package spelling finds names that a misspelled word may have meant: [Nearest] lists them by their [Distance],
// which counts letters.
package spelling

import "slices"

// Nearest returns the names closest to text, up to most and no further off than a third of
// its length.
func Nearest(text string, names []string, most int) []string {
	const longest = 200
	if len(text) > longest {
		return nil
	}
	type scored struct {
		name     string
		distance int
	}
	var list []scored
	limit := max(1, len(text)/3)
	for _, name := range names {
		if d := Distance(text, name, limit); d <= limit {
			list = append(list, scored{name, d})
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int { return a.distance - b.distance })
	var near []string
	for _, s := range list[:min(most, len(list))] {
		near = append(near, s.name)
	}
	return near
}

// Distance returns the number of bytes to insert, delete or replace to turn a into b, or
// more than limit where it is more.
func Distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		least := row[0]
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
			least = min(least, row[j+1])
		}
		if least > limit {
			return limit + 1
		}
	}
	return row[len(b)]
}
