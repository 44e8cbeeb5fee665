package model_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader/demo"
)

// TestTuneReads: a model measures once, stores the result, holds no memory afterwards and reads what is stored, and
// measures nothing under a small limit.
func TestTuneReads(t *testing.T) {
	if set, err := kernels.Select(""); err != nil || set.Level == isa.Go {
		return // kernels in Go have one pattern
	}
	before := fetch.Current()
	defer fetch.Use(before)
	folder := t.TempDir()
	tune := func(limit float64, cancelled bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if cancelled {
			cancel()
		}
		ledger := new(dispatch.Ledger)
		m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: limit}}, Ledger: ledger})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		other := ledger.Held()["other"]
		<-m.TuneReads(ctx, folder)
		<-m.TuneReads(ctx, folder) // does nothing
		if got := ledger.Held()["other"]; got != other {
			t.Errorf("%d bytes are held, want %d", got, other)
		}
	}
	files := func() int {
		found, err := filepath.Glob(filepath.Join(folder, "fetch-*.json"))
		if err != nil {
			t.Fatal(err)
		}
		return len(found)
	}
	if tune(256<<20, false); files() != 0 {
		t.Error("it measured under a small limit")
	}
	if tune(1<<30, true); files() != 0 {
		t.Error("it measured although it was cancelled")
	}
	if tune(1<<30, false); files() != 1 {
		t.Errorf("it left %d files, want 1", files())
	}
	plan := fetch.Current()
	fetch.Use(fetch.Default(""))
	if tune(256<<20, false); fetch.Current() != plan {
		t.Errorf("the plan is %v, want the stored %v", fetch.Current(), plan)
	}
}

// TestOpenTunesByDefault: a Go program that only opens a model gets the fastest way to read weights on this
// processor. The measurement is in the file that later programs read; "none" measures and keeps nothing.
func TestOpenTunesByDefault(t *testing.T) {
	testenv.Need(t, "assembly", kernels.Names()[0] != "go", "kernels in Go have one pattern")
	before := fetch.Current()
	defer fetch.Use(before)
	folder := t.TempDir()
	open := func(dir string) {
		t.Helper()
		m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{MeasurementsDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
	open(folder)
	names, err := filepath.Glob(filepath.Join(folder, "fetch-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("files: %v, %v, want one", names, err)
	}
	plan := fetch.Current()
	fetch.Use(fetch.Default("AuthenticAMD"))
	open("none")
	if fetch.Current() != fetch.Default("AuthenticAMD") {
		t.Error("the plan changed with none")
	}
	open(folder)
	if fetch.Current() != plan {
		t.Errorf("the plan is %v, want %v of the file", fetch.Current(), plan)
	}
}

// TestOpenInTestsWritesNoMeasurements: every test that opened a model with the default options left a
// file in the cache folder of the user who ran it.
func TestOpenInTestsWritesNoMeasurements(t *testing.T) {
	before := fetch.Current()
	defer fetch.Use(before)
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	m, err := dispatch.OpenFS("demo", demo.Files(), dispatch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if entries, err := os.ReadDir(home); err != nil || len(entries) != 0 {
		t.Errorf("the cache has %v, %v, want nothing", entries, err)
	}
}
