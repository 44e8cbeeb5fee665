package dispatchtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// ModelShape returns the skeleton of a model in testdata/shapes.
func ModelShape(t testing.TB, name string) *meta.Model {
	t.Helper()
	config, err := meta.ReadConfigFile(filepath.Join(golden.Module(t), "dispatch", "testdata", "shapes", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return skeleton
}

// ServingOptions returns the options of a server with a limit for the cpu.
func ServingOptions(limit int64) dispatch.Options {
	return dispatch.Options{Serving: true, Threads: 1, MaxSequences: 16,
		MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}}
}

// PlanShape returns the plan of a model without weights, and its options.
func PlanShape(t testing.TB, skeleton *meta.Model, o dispatch.Options) (devicemap.Plan, dispatch.Options) {
	t.Helper()
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	if host := plan.Device(devicemap.CPU); host.Used() > host.LimitBytes {
		t.Errorf("the plan takes %d of %d bytes", host.Used(), host.LimitBytes)
	}
	return plan, o
}

// GiB is 2 to the power of 30.
const GiB = 1 << 30

func Trillion(t testing.TB, more string) *meta.Model {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Module(t), "dispatch", "testdata", "shapes", "moe-1t.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := meta.ReadConfig([]byte(strings.Replace(string(text), "{", "{"+more, 1)))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return skeleton
}
