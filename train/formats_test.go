package train

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/train/internal/checkpoint"
)

// someCheckpoint saves a run in the middle of an accumulation window.
func someCheckpoint(t *testing.T) string {
	t.Helper()
	r, err := newRun(nil, exact(t))
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := r.train(t.Context(), 1, func() error {
		if r.seen.Batches == 5 {
			return enough
		}
		return nil
	}); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	dir, err := r.acc.SaveState(t.Context(), filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// docs/formats.md names every file of a checkpoint, every field of those in JSON, and every slot.
func TestCheckpointFormatIsDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(golden.Module(t), "docs", "formats.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	said := func(file, name string) {
		if !strings.Contains(doc, "`"+name+"`") {
			t.Errorf("docs/formats.md does not say what `%s` of %s is", name, file)
		}
	}
	dir := someCheckpoint(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 6 {
		t.Fatalf("the checkpoint has %d files", len(entries))
	}
	for _, e := range entries {
		name := strings.NewReplacer("random_states_0", "random_states_RANK", "gradients_0", "gradients_RANK", "custom_checkpoint_0", "custom_checkpoint_N").Replace(e.Name())
		if !strings.Contains(doc, "\n### "+name+"\n") {
			t.Errorf("docs/formats.md has no heading for %s", name)
		}
		if filepath.Ext(name) == ".json" && !strings.HasPrefix(name, "custom") && name != checkpoint.ChecksumFile {
			var fields map[string]any
			if b, err := os.ReadFile(filepath.Join(dir, e.Name())); err != nil || json.Unmarshal(b, &fields) != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for field := range fields {
				said(name, field)
			}
		}
	}
	optimizer, err := loader.Open(filepath.Join(dir, checkpoint.OptimizerFile))
	if err != nil {
		t.Fatal(err)
	}
	defer optimizer.Close()
	for _, field := range regexp.MustCompile(`"(\w+)":`).FindAllStringSubmatch(optimizer.Metadata()["optimizer"], -1) {
		said("optimizer.safetensors", field[1])
	}
	for name := range optimizer.Names() {
		_, slot, _ := strings.Cut(name, ".")
		said("optimizer.safetensors", slot)
	}
}
