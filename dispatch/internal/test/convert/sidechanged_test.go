package convert_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestAnOverwrittenSidecarIsNoticed: converted weights that another process overwrote while they were served changed
// the answer silently. The pass fails, whether this process wrote the file or found it, and the next start converts
// them again.
func TestAnOverwrittenSidecarIsNoticed(t *testing.T) {
	dir, cache := dispatchtest.DemoFolder(t), t.TempDir()
	o := dispatch.Options{Quantize: meta.QuantQ8, CacheDir: cache, Threads: 2}
	want := converted(t, dir, "cpu", dispatch.Options{Quantize: meta.QuantQ8, Threads: 2}, false)
	policy, err := devicemap.ParsePolicy("disk")
	if err != nil {
		t.Fatal(err)
	}
	o.DeviceMap = policy
	for _, start := range []string{"the file is written", "the file is found"} {
		m, err := dispatch.Open(dir, o)
		if err != nil {
			t.Fatal(err)
		}
		m.Warm(context.Background())
		m.Promote(context.Background())
		dispatchtest.AwaitConversion(t, m)
		if got := inABatchOf(t, m, []int32{1, 5, 9, 2, 7, 3, 3, 8}, 8); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
			t.Errorf("%s: other logits than with weights converted in memory", start)
		}
		name := sideFile(t, cache)
		overwrite(t, name)
		s := m.NewSequence()
		_, err = m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1}, Logits: dispatch.LogitsLast}}})
		var broken *dispatch.WeightError
		if !errors.Is(err, dispatch.ErrChanged) || !errors.As(err, &broken) || broken.File == "" {
			t.Errorf("%s: got %v, want an error that the file was changed", start, err)
		}
		s.Free()
		m.Close()
	}
	if got := converted(t, dir, "disk", o, true); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("the next start: other logits than with weights converted in memory")
	}
}

// sideFile is the largest file in a folder.
func sideFile(t *testing.T, folder string) (name string) {
	t.Helper()
	largest := int64(-1)
	for _, path := range dispatchtest.FileNames(t, folder) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > largest {
			name, largest = path, info.Size()
		}
	}
	return name
}

// overwrite flips a bit of each number in the middle half of a file.
func overwrite(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size()/2)
	if _, err = f.ReadAt(b, info.Size()/4); err == nil {
		for i := range b {
			b[i] ^= 1
		}
		_, err = f.WriteAt(b, info.Size()/4)
	}
	if err != nil {
		t.Fatal(err)
	}
}
