package disk_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/testenv"
)

// inCache returns the share of a model's file that is in the page cache.
func inCache(t *testing.T, dir string) float64 {
	t.Helper()
	m, err := hostmem.Map(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Release() }() // opened for reading
	n, err := m.Resident(0, int64(len(m.Bytes())))
	if err != nil {
		t.Fatal(err)
	}
	return float64(n) / float64(len(m.Bytes()))
}

// evictFile removes a model's file from the page cache, including pages that the system is still reading ahead.
func evictFile(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for quiet, tries := 0, 0; quiet < 3 && tries < 100; tries++ {
		if hostmem.DropCache(f, 0, 0); inCache(t, dir) == 0 {
			quiet++
		} else {
			quiet = 0
		}
		time.Sleep(5 * time.Millisecond)
	}
	testenv.Need(t, "pagecache", inCache(t, dir) < 0.1, "a file system whose pages can be evicted")
}

// TestColdWeightsGoStraightToMemory: weights of the cpu tier went through the page cache and were
// held there, too. Those that it does not hold are read directly, by the pass that needs them or in
// the background.
func TestColdWeightsGoStraightToMemory(t *testing.T) {
	dir := dispatchtest.LargeShape.Folder(t, rand.New(rand.NewPCG(8, 8)))
	ids, prompt := dispatchtest.LawIDs()
	o := dispatch.Options{Threads: 2}
	first := dispatchtest.OpenModel(t, dir, o)
	want := dispatchtest.ForcedLogits(t, first, ids, prompt, 7)
	first.Close() // mapped pages stay in the page cache
	for _, warm := range []bool{false, true} {
		leastInCache(t, dir, 0.25, func() {
			evictFile(t, dir)
			m := dispatchtest.OpenModel(t, dir, o)
			defer m.Close()
			evictFile(t, dir) // the header, and what the system read behind it
			if warm {
				m.Warm(context.Background())
				m.Promote(context.Background())
				dispatchtest.AwaitConversion(t, m)
			}
			dispatchtest.SameLogits(t, "cold weights", dispatchtest.ForcedLogits(t, m, ids, prompt, 7), want)
			st := m.Status()
			if held, all := st.Held["weights"], st.TierBytes[devicemap.CPU]; held < all*3/4 || held > all*5/4 {
				t.Errorf("warm %v: %d bytes of weights in memory, of %d", warm, held, all)
			}
		})
	}
}

// TestPromotedWeightsLeaveThePageCache: promotion unmapped pages, and left them in the page cache.
func TestPromotedWeightsLeaveThePageCache(t *testing.T) {
	dir := dispatchtest.LargeShape.Folder(t, rand.New(rand.NewPCG(8, 8)))
	leastInCache(t, dir, 0.75, func() { // the system may hold large pages across the ends of weights; it was 1
		evictFile(t, dir)
		m := dispatchtest.OpenModel(t, dir, dispatch.Options{Threads: 1})
		defer m.Close()
		if _, err := os.ReadFile(filepath.Join(dir, "model.safetensors")); err != nil {
			t.Fatal(err)
		}
		m.Warm(context.Background())
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
	})
}

// leastInCache checks that a load of a model leaves at most a share of its file in the page cache. The system
// may read ahead and hold on to pages on a busy machine, so one load of several is enough.
func leastInCache(t *testing.T, dir string, most float64, load func()) {
	t.Helper()
	least := 1.0
	for range 12 {
		load()
		if least = min(least, inCache(t, dir)); least <= most {
			return
		}
	}
	t.Errorf("%.0f %% of the file is in the page cache, too", 100*least)
}

// TestALookupReadsItsRow: a lookup in a table of the disk tier read megabytes around the row.
func TestALookupReadsItsRow(t *testing.T) {
	s := dispatchtest.LargeShape
	s.Vocab, s.Layers = 8192, 1
	dir := s.Folder(t, rand.New(rand.NewPCG(8, 8)))
	evictFile(t, dir)
	m := dispatchtest.OnDisk(t, dir, dispatch.Options{Threads: 1})
	evictFile(t, dir) // the header, and what the system read behind it
	dispatchtest.ForcedLogits(t, m, []int32{4000, 17, 8000, 5000}, 1, 1)
	info, err := os.Stat(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if n := inCache(t, dir) * float64(info.Size()); n > 256<<10 {
		t.Errorf("four rows of 1280 bytes left %.0f KiB in the page cache", n/1024)
	}
}
