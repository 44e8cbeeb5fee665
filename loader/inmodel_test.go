package loader_test

import (
	"errors"
	"os"
	"testing"

	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// TestLoadCheckpointInModel fills a skeleton of config.json alone.
func TestLoadCheckpointInModel(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, demo.Files()); err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfigFile(dir + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	model, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loader.LoadCheckpointInModel(model, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Checkpoint().Close()
	dtype, values, err := b.Values(model.Root.Find("model.norm").Params[0])
	if err != nil || dtype != meta.BFloat16 || len(values) != 2*192 {
		t.Errorf("got %v of %d bytes, %v", dtype, len(values), err)
	}
	if _, err := loader.LoadCheckpointInModel(model, t.TempDir()); err == nil {
		t.Error("an empty folder is a checkpoint")
	}
	model.Root.Find("model.norm").Params[0].Shape = []int{7}
	var bind *loader.BindError
	if _, err := loader.LoadCheckpointInModel(model, dir); !errors.As(err, &bind) {
		t.Errorf("a misshapen parameter: %v", err)
	}
}
