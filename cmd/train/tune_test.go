package main

import (
	"path/filepath"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/tune"
	"github.com/heftai/heft/internal/testenv"
)

// TestTrainTunesReads: training reads weights by the same plan as serve, from the same file.
func TestTrainTunesReads(t *testing.T) {
	testenv.Need(t, "assembly", kernels.Names()[0] != "go", "kernels in Go have one pattern")
	before := fetch.Current()
	defer fetch.Use(before)
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	tuneReads(t.Context(), "", 1)
	report := (&tune.Store{Folder: tune.DefaultFolder()}).Load(tune.KeyOf("", 1))
	if report == nil || report.Plan != fetch.Current() {
		names, _ := filepath.Glob(filepath.Join(tune.DefaultFolder(), "*"))
		t.Errorf("the file has %v, in use is %v; files: %v", report, fetch.Current(), names)
	}
}
