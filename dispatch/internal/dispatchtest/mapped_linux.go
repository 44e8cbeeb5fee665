package dispatchtest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// mapping matches the first line of a mapping's entry.
var mapping = regexp.MustCompile(`^[0-9a-f]+-[0-9a-f]+ `)

// Mapped returns how much of a mapped file is in the process's memory, in KiB.
func Mapped(t *testing.T, file string) (kib int, known bool) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, false
	}
	inside := false
	for line := range strings.Lines(string(b)) {
		var n int
		switch {
		case mapping.MatchString(line):
			inside = strings.HasSuffix(strings.TrimSpace(line), file)
		case inside && strings.HasPrefix(line, "Rss:"):
			if _, err := fmt.Sscanf(line, "Rss: %d kB", &n); err != nil {
				t.Fatal(err)
			}
			kib += n
		}
	}
	return kib, true
}
