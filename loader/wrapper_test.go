package loader_test

import (
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestWrapperFilesBind binds the files of wrappers, whose names differ from the tree's, to skeletons
// built with and without their headers. Tensors of vision towers are counted, not reported.
func TestWrapperFilesBind(t *testing.T) {
	for _, name := range []string{"llava-1", "qwen2-5-vl-1", "qwen3-vl-1", "gemma3-1", "idefics3-1", "kimi-k25-1"} {
		dir := golden.OwnDir(t, "family-"+name)
		config, err := meta.ReadConfigFile(filepath.Join(dir, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		bare, err := meta.New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := loader.LoadCheckpointInModel(bare, dir)
		if err != nil {
			t.Errorf("%s, without headers: %v", name, err)
			continue
		}
		if others := b.Others(); others.Tensors == 0 || others.Bytes == 0 || len(b.Unexpected()) > 0 {
			t.Errorf("%s: others %+v, unexpected %q", name, others, b.Unexpected())
		}
		b.Checkpoint().Close()
		model, ck, err := loader.OpenModel(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loader.Bind(ck, model); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ck.Close()
	}
}
