package golden

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// TestUnpackedWeights: a folder whose weights are gzipped is copied with plain ones. The others, those of other roots
// among them, are read where they are.
func TestUnpackedWeights(t *testing.T) {
	weights := bytes.Repeat([]byte("weights "), 100)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(weights); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	folder := func(name, file string, b []byte) string {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, b := range map[string][]byte{"config.json": []byte("{}"), file: b} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	if plain := folder("plain", "model.safetensors", weights); Unpacked(t, plain) != plain {
		t.Error("a folder of plain weights was copied")
	}
	dir := folder("packed", "model.safetensors.gz", packed.Bytes())
	var copied string
	t.Run("within", func(t *testing.T) {
		copied = Unpacked(t, dir)
		got, err := os.ReadFile(filepath.Join(copied, "model.safetensors"))
		if err != nil || !bytes.Equal(got, weights) {
			t.Errorf("%d bytes, %v, want %d", len(got), err, len(weights))
		}
		if b, err := os.ReadFile(filepath.Join(copied, "config.json")); err != nil || string(b) != "{}" {
			t.Errorf("config %q, %v", b, err)
		}
		files, err := os.ReadDir(copied)
		if err != nil || len(files) != 2 || filepath.Base(copied) != "packed" {
			t.Errorf("%d files in %s, %v", len(files), copied, err)
		}
	})
	if _, err := os.Stat(copied); !os.IsNotExist(err) {
		t.Errorf("the copy outlived its test: %v", err)
	}
}
