package devicemap

import (
	"strings"

	"github.com/heftai/heft/internal/spelling"
)

// didYouMean returns the end of a message that suggests names.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(names, " or ") + "?"
}

// near returns paths of the tree that path may have meant: those with the same end, or else those
// that differ in a few letters.
func (t *table) near(path string) []string {
	const most = 3
	var ends, all []string
	for i := 1; i < len(t.nodes); i++ {
		p := t.nodes[i].path
		if strings.HasSuffix(p, "."+path) {
			ends = append(ends, p)
		}
		if len(p) <= 2*len(path)+8 {
			all = append(all, p)
		}
	}
	if len(ends) > 0 {
		return ends[:min(most, len(ends))]
	}
	return spelling.Nearest(path, all, most)
}
