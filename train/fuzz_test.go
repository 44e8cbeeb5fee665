package train

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/train/internal/checkpoint"
)

// FuzzLoadState: whatever stands in a file of a checkpoint, loading ends with an error or
// leaves a run that can be saved.
func FuzzLoadState(f *testing.F) {
	base := f.TempDir()
	first, err := newRun(nil, Config{})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := first.acc.SaveState(f.Context(), filepath.Join(base, "good")); err != nil {
		f.Fatal(err)
	}
	names := []string{checkpoint.ModelFile, checkpoint.OptimizerFile, checkpoint.SchedulerFile, checkpoint.RankFile(0), checkpoint.CustomFile(0)}
	for i, name := range names {
		b, err := os.ReadFile(filepath.Join(base, "good", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, b)
		f.Add(i, []byte("{}"))
		f.Add(i, []byte("null"))
	}
	f.Fuzz(func(t *testing.T, which int, content []byte) {
		if which < 0 || which >= len(names) {
			return
		}
		dir := t.TempDir()
		for _, name := range names {
			b, err := os.ReadFile(filepath.Join(base, "good", name))
			if name == names[which] {
				b, err = content, nil
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		c := Config{}
		c.DataLoader.UseStatefulDataLoader = true
		r, err := newRun(nil, c)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.acc.LoadState(t.Context(), dir); err != nil {
			return
		}
		n := 0
		for _, err := range r.loader.All(t.Context()) {
			if n++; err != nil || n > 3 {
				break
			}
		}
		if err := r.opt.Step(); err != nil {
			t.Fatal(err)
		}
	})
}
