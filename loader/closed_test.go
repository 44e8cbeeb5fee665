package loader

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// TestTensorsOfAClosedCheckpointPanicked: those of a mapped file; one that was not mapped yet was mapped for ever, and
// tensors in memory were read.
func TestTensorsOfAClosedCheckpointPanicked(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (*Checkpoint, error){
		"folder": func() (*Checkpoint, error) { return Open(dir) },
		"memory": func() (*Checkpoint, error) { return OpenFS("demo", demo.Files()) },
	} {
		for _, mapped := range []bool{false, true} {
			ck, err := open()
			if err != nil {
				t.Fatal(err)
			}
			tensor, ok := ck.Lookup("model.embed_tokens.weight")
			if !ok {
				t.Fatal("no embedding")
			}
			if mapped {
				if _, err := tensor.Bytes(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := ck.Close(); err != nil {
					t.Fatal(err)
				}
			}
			_, bytes := tensor.Bytes()
			_, read := tensor.ReadAt(make([]byte, 4), 0)
			for call, err := range map[string]error{"Bytes": bytes, "ReadAt": read} {
				if !errors.Is(err, fs.ErrClosed) || !strings.Contains(err.Error(), "model.safetensors: ") {
					t.Errorf("%s, mapped %v: %s: got %v, want that the file is closed", name, mapped, call, err)
				}
			}
		}
	}
}

// TestSavingATensorWithoutBytesPanicked.
func TestSavingATensorWithoutBytesPanicked(t *testing.T) {
	tensors := func(yield func(NamedTensor) bool) {
		yield(NamedTensor{Name: "a", DType: meta.Float32, Shape: []int{1}})
	}
	err := Save(t.TempDir(), tensors, SaveOptions{})
	if err == nil || !strings.Contains(err.Error(), "tensor a: cannot be saved: it has neither Bytes nor Write") {
		t.Errorf("got %v", err)
	}
}
