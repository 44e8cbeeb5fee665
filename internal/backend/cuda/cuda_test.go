//go:build cuda

package cuda

import (
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/backendtest"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/testenv"
)

// need skips a test if there is neither a GPU nor a simulated one.
func need(t *testing.T) {
	t.Helper()
	devices, reason := List()
	testenv.Need(t, "cuda", len(devices) > 0, reason+"; scripts/check-cuda.sh runs the tests on a simulated driver")
}

// open opens GPU 0 with exact kernels and the lanes of a CPU variant.
func open(t *testing.T, variant string) *Backend { return openWith(t, variant, false) }

func openWith(t *testing.T, variant string, fast bool) *Backend {
	t.Helper()
	host, err := cpu.New(cpu.Options{Threads: 1, Variant: variant})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	set, err := kernels.Select(variant)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(0, Options{Host: host, Lanes: set.Lanes, Fast: fast})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hosted are the conformance tests of operations that only training uses or that run only on the
// host.
var hosted = []string{"AttentionRelative", "Conv2D", "Pool2D"}

func TestConformance(t *testing.T) {
	need(t)
	backendtest.Run(t, func() backend.Backend { return open(t, kernels.Names()[0]) }, hosted...)
}

// TestConformanceOfFastKernels runs the suite with the tensor-core kernels.
func TestConformanceOfFastKernels(t *testing.T) {
	need(t)
	backendtest.Run(t, func() backend.Backend { return openWith(t, kernels.Names()[0], true) }, hosted...)
}

// TestSameAsCPU checks law 4: results have the same bits as the CPU's, for each variant with fused
// multiply-add.
func TestSameAsCPU(t *testing.T) {
	need(t)
	for _, variant := range kernels.Names() {
		if variant == "go" {
			continue // does not fuse
		}
		t.Run(variant, func(t *testing.T) {
			host, err := cpu.New(cpu.Options{Threads: 2, Variant: variant})
			if err != nil {
				t.Fatal(err)
			}
			gpu := open(t, variant)
			backendtest.SameExact(t, host, gpu)
			for _, b := range []backend.Backend{host, gpu} {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
