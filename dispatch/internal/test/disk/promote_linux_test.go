package disk_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// resident is how many bytes of this process's mappings of files in dir are in its memory.
func resident(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines, within := bufio.NewScanner(f), false
	for lines.Scan() {
		var kib int64
		switch line := lines.Text(); {
		case strings.Contains(line, "-") && strings.Contains(line, " r"):
			within = strings.Contains(line, dir+string(filepath.Separator))
		case within && strings.HasPrefix(line, "Rss:"):
			if _, err := fmt.Sscanf(line, "Rss: %d kB", &kib); err != nil {
				t.Fatal(err)
			}
			bytes += kib << 10
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestPromotionFreesMappedPages: once weights were copied, their mapped pages are unmapped, with requests in between
// and without. A server that waits does not hold weights twice.
func TestPromotionFreesMappedPages(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1})
	m.Warm(context.Background())
	for ; !m.Status().Loading.Done; time.Sleep(time.Millisecond) {
		if err := m.Status().Loading.Err; err != nil {
			t.Fatal(err)
		}
	}
	mapped := resident(t, dir)
	m.Promote(context.Background())
	dispatchtest.AwaitConversion(t, m)
	if left, table := resident(t, dir), int64(230*192*2); left > mapped/4+table {
		t.Errorf("%d KiB are mapped still, of %d before weights moved", left>>10, mapped>>10)
	}
}
