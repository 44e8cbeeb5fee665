//go:build cuda

package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
)

// BenchmarkGPUToken is a generated token of a small model on GPU 0, so that what launches and copies cost shows.
func BenchmarkGPUToken(b *testing.B) {
	gpus, reason := dispatch.GPUs()
	testenv.Need(b, "cuda", len(gpus) > 0, reason)
	skeleton, checkpoint, err := loader.OpenModel(dispatchtest.DemoFolder(b))
	if err != nil {
		b.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: "0"}), dispatchtest.OnHostGPUs(dispatch.Options{Threads: 1}))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	dispatchtest.BenchmarkTokens(b, m)
}
