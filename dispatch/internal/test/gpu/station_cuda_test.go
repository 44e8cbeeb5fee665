//go:build cuda

package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

func init() {
	testenv.ShowGPUs()
	dispatchtest.HideGPUs()
}

// onGPUs is o for GPUs 0 and 1 of this machine, which are one GPU twice if it has one only. It skips a test
// where there is none, simulated ones included.
func onGPUs(t *testing.T, o dispatch.Options) dispatch.Options {
	t.Helper()
	gpus, reason := dispatch.GPUs()
	testenv.Need(t, "cuda", len(gpus) > 0, reason+"; scripts/check-cuda.sh runs the tests on a simulated driver with two GPUs")
	if len(gpus) > 1 {
		return dispatchtest.OnHostGPUs(o)
	}
	return dispatchtest.OnOneGPUTwice(o)
}

// needFused skips a test of equal bits with the variant go, whose kernels round between a multiplication and an addition.
func needFused(t *testing.T) {
	t.Helper()
	testenv.Need(t, "assembly", testenv.Variant() != "go", "kernels of GPUs fuse multiplications and additions, and variant go does not")
}

// TestGPUsNeverChangeTheAnswer holds law 4 on GPUs: with high precision the logits over maps of two GPUs,
// the CPU and the disk have the CPU's bits.
func TestGPUsNeverChangeTheAnswer(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			stationsKeepBits(t, g, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
		})
		cases++
	}
	golden.Count(t, "infer/models (GPUs)", cases)
}

// TestGPUsInAuto holds that the kernels for tensor cores stay within the tolerance of `--precision auto`, and
// law 4 on their map: a token's logits have the same bits in chunks and in a batch. Short tests take each third model.
func TestGPUsInAuto(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	cases := 0
	for g := range golden.Models(t) {
		if !testing.Short() || cases%3 == 0 {
			t.Run(g.Name(), func(t *testing.T) { autoStaysWithin(t, g, meta.QuantNone) })
		}
		cases++
	}
	golden.Count(t, "infer/models (GPUs, auto)", cases)
}

// autoStaysWithin compares a model on a GPU with `--precision auto`, whose weights are converted to a format, with the CPU.
func autoStaysWithin(t *testing.T, g *golden.Model, format meta.QuantFormat) {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
	model := func(d devicemap.Device, p dispatch.Precision) *dispatch.Model {
		o := dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: p, GPUKernels: dispatch.GPUKernelsFast, Context: 128, KVTokens: 24 * 128, Quantize: format}
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: d}), onGPUs(t, o))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	ids := stationIDs(g)
	prompt := max(1, len(ids)-3)
	gpu := model("0", dispatch.PrecisionAuto)
	whole := dispatchtest.ForcedLogits(t, gpu, ids, prompt, prompt)
	dispatchtest.CloseLogits(t, "GPU", whole, dispatchtest.ForcedLogits(t, model("cpu", dispatch.PrecisionHigh), ids, prompt, prompt), dispatchtest.RoundingTolerance(skeleton))
	dispatchtest.SameLogits(t, "in chunks", dispatchtest.ForcedLogits(t, gpu, ids, prompt, 5), whole)
	dispatchtest.SameLogits(t, "in a batch of 3", dispatchtest.LogitsInPieces(t, gpu, 1, 3, ids, prompt, 4, 2), whole)
}
