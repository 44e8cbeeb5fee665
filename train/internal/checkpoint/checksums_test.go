package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// TestASaveReadsNoFileForItsChecksums: each save read its weights and optimizer state once more.
// Files that change between write and commit keep the checksums of the bytes written, and
// those of a hook are read.
func TestASaveReadsNoFileForItsChecksums(t *testing.T) {
	f := &Folder{Target: filepath.Join(t.TempDir(), "checkpoint")}
	if err := f.Begin("mark"); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteTensors("model.safetensors", []Array{{Name: "w", Shape: []int{2, 3}, Data: []float32{1, 2, 3, 4, 5, 6}}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteJSON("state.json", map[string]int{"step": 7}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(f.Temp(), "of_a_hook"), []byte("hook"), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"model.safetensors", "state.json"}
	want := map[string][]byte{}
	for _, name := range names {
		path := filepath.Join(f.Temp(), name)
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append([]byte{b[0] + 1}, b[1:]...), 0o600) // a sum of what is read now would be wrong
		}
		if err != nil {
			t.Fatal(err)
		}
		want[name] = b
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := Verify(f.Target, name); err == nil {
			t.Errorf("%s was read for its checksum", name)
		}
		if err := os.WriteFile(filepath.Join(f.Target, name), want[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(names, "of_a_hook") {
		if err := Verify(f.Target, name); err != nil {
			t.Error(err)
		}
	}
}
