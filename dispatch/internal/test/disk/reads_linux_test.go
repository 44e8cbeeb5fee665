package disk_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/meta"
)

// readBytes are the bytes that the process has asked the system for with read calls.
func readBytes(t *testing.T) (n int64) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	testenv.Need(t, "proc", err == nil, "/proc/self/io, which counts reads")
	if _, err := fmt.Sscanf(string(b), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOpeningReadsNoWeight counts reads and compares with the documentation: planning, binding and offloading
// read config and headers, and map no weight, whatever the tier.
func TestOpeningReadsNoWeight(t *testing.T) {
	dir := dispatchtest.DemoFolder(t)
	shard := filepath.Join(dir, "model.safetensors")
	const headers = 128 << 10 // config.json, the shard's header, and what /proc/self/io takes itself
	open := map[string]func() (*dispatch.Model, func(), error){
		"Open": func() (*dispatch.Model, func(), error) {
			m, err := dispatch.Open(dir, dispatch.Options{Context: 64})
			return m, func() {}, err
		},
		"Open, all on the disk": func() (*dispatch.Model, func(), error) {
			m, err := dispatch.Open(dir, dispatch.Options{Context: 64, DeviceMap: devicemap.Policy{Kind: devicemap.Manual,
				Pins: devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk})}})
			return m, func() {}, err
		},
		"LoadCheckpointAndDispatch": func() (*dispatch.Model, func(), error) {
			config, err := meta.ReadConfigFile(filepath.Join(dir, "config.json"))
			if err != nil {
				return nil, nil, err
			}
			skeleton, err := meta.New(config, nil)
			if err != nil {
				return nil, nil, err
			}
			m, err := dispatch.LoadCheckpointAndDispatch(skeleton, dir, dispatch.Options{Context: 64})
			return m, func() {}, err
		},
		"CPUOffload":  offload(dir, dispatch.CPUOffload),
		"DiskOffload": offload(dir, dispatch.DiskOffload),
	}
	for name, f := range open {
		before := readBytes(t)
		m, done, err := f()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := readBytes(t) - before; n > headers {
			t.Errorf("%s reads %d bytes", name, n)
		}
		if kib, known := dispatchtest.Mapped(t, shard); known && kib > headers>>10 {
			t.Errorf("%s brings %d KiB of the shard into memory", name, kib)
		}
		if n := m.Status().TierReadBytes; n != 0 {
			t.Errorf("%s reads %d bytes from the disk tier", name, n)
		}
		m.Close()
		done()
	}
}

func offload(dir string, f func(*meta.Model, *loader.Checkpoint, dispatch.Options) (*dispatch.Model, error)) func() (*dispatch.Model, func(), error) {
	return func() (*dispatch.Model, func(), error) {
		skeleton, checkpoint, err := loader.OpenModel(dir)
		if err != nil {
			return nil, nil, err
		}
		m, err := f(skeleton, checkpoint, dispatch.Options{Context: 64})
		return m, func() { _ = checkpoint.Close() }, err
	}
}

// TestPlanningABareConfigOpensNothingElse plans from a config without a checkpoint.
func TestPlanningABareConfigOpensNothingElse(t *testing.T) {
	b, err := fs.ReadFile(demo.Files(), "config.json")
	if err != nil || !json.Valid(b) {
		t.Fatal(err)
	}
	before := readBytes(t)
	config, err := meta.ReadConfig(b)
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	limits := []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 30}}
	if _, _, err := dispatch.Plan(skeleton, dispatch.Options{Threads: 1, MaxMemory: limits}); err != nil {
		t.Fatal(err)
	}
	if n := readBytes(t) - before; n > 64<<10 { // the system's description of its processors
		t.Errorf("planning reads %d bytes", n)
	}
}
