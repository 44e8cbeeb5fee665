package model

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train/tensor"
)

// failedStep computes losses of a window, calls damage before Backward, and returns Backward's error. The trained values must stay
// as they were, and no session may be in use.
func failedStep(t *testing.T, m *Model, damage func()) error {
	t.Helper()
	before := map[string][]float32{}
	for name, p := range m.Parameters() {
		before[name] = slices.Clone(p.Data())
	}
	tp := tensor.NewTape(tensor.Options{})
	losses, err := m.Losses(tp, window{batches: 3}.uneven(m.spec.Vocab), make([]Options, 3))
	if err != nil {
		t.Fatal(err)
	}
	damage()
	for _, l := range losses {
		if err = tp.Backward(l, 1); err != nil {
			break
		}
	}
	for name, p := range m.Parameters() {
		if !slices.Equal(p.Data(), before[name]) {
			t.Errorf("%s has changed", name)
		}
	}
	if reset := tp.Reset(); err == nil {
		err = reset
	}
	if n := len(m.sessions.lent); n > 0 {
		t.Errorf("%d sessions are in use after an error", n)
	}
	return err
}

// TestAFailedReadOfWeightsFailsTheSweep: a base that shrinks between the sweeps fails Backward with the name of its file.
func TestAFailedReadOfWeightsFailsTheSweep(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(ownModel(t, "gemma2"))); err != nil {
		t.Fatal(err)
	}
	m := adapted(t, dir, MaxMemory(1))
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	err = failedStep(t, m, func() {
		if err := os.Truncate(files[0], 4096); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), filepath.Base(files[0])) {
		t.Errorf("got error %v, want one that names %s", err, files[0])
	}
}

// TestADamagedBlockInputFailsTheSweep: a stored block input that reads back as other bytes fails Backward, and the next step works.
func TestADamagedBlockInputFailsTheSweep(t *testing.T) {
	dir := t.TempDir()
	m := adapted(t, ownModel(t, "gemma2"), MaxMemory(1), Activations(1, dir))
	err := failedStep(t, m, func() {
		files, err := filepath.Glob(filepath.Join(dir, ".heft-tmp-*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		f, err := os.OpenFile(files[0], os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		size, err := f.Seek(0, io.SeekEnd)
		if err == nil {
			_, err = f.WriteAt(make([]byte, size), 0)
		}
		if err != nil || size == 0 {
			t.Fatal(size, err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "states of batch") {
		t.Errorf("got error %v, want one that names the states of a batch", err)
	}
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
	w := window{batches: 3, together: true}
	if got, want := w.learn(t, m), w.learn(t, adapted(t, ownModel(t, "gemma2"), MaxMemory(1))); string(got) != string(want) {
		t.Error("another adapter after an error")
	}
}
