//go:build cuda

package dispatch_test

import (
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
)

// needGPUs skips a test where there are fewer than two GPUs, simulated ones included.
func needGPUs(t *testing.T) {
	t.Helper()
	gpus, reason := dispatch.GPUs()
	testenv.Need(t, "cuda", len(gpus) >= 2, reason+"; scripts/check-cuda.sh runs the tests on a simulated driver with two GPUs")
	if testenv.Variant() == "go" {
		t.Skip("kernels of GPUs fuse multiplications and additions, and variant go does not")
	}
}

// TestGPUsNeverChangeTheAnswer holds law 4 on GPUs: with high precision the logits over maps of two GPUs,
// the CPU and the disk have the CPU's bits.
func TestGPUsNeverChangeTheAnswer(t *testing.T) {
	needGPUs(t)
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			stationsKeepBits(t, g, func(o dispatch.Options) dispatch.Options { return o })
		})
		cases++
	}
	golden.Count(t, "infer/models (GPUs)", cases)
}
