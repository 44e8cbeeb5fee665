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

// kindsOfModels have short convolutions, delta nets, those whose channels decay by themselves or whose changes are stronger, the
// first Mamba and Mamba2, with and without attention and experts, biases of attention by distance
// and by rounded positions, gates of heads and of softplus, limited gates of experts, clamped queries, differences of heads, four branches in a block with experts
// without weights, and numbers that the host reads of weights of the GPU: the scales of a router and the activation xIELU.
var kindsOfModels = []string{"bloom-1", "mpt-1", "apertus-2", "gemma4-1", "lfm2-1", "lfm2-moe-1", "qwen3-next-1", "qwen3-5-text-1", "mamba2-1", "nemotron-h-moe-1", "granitemoehybrid-1", "falcon-h1-1",
	"mamba-1", "mamba-2", "falcon-mamba-1", "falcon-mamba-2", "jamba-1", "jamba-21", "jamba-3", "kimi-linear-1", "kimi-linear-2", "kimi-linear-3", "olmo-hybrid-3", "lara-mini-1",
	"bailing-hybrid-1", "bailing-hybrid-2", "bailing-hybrid-3", "laguna-1", "laguna-2", "laguna-3", "longcat-flash-1", "step3p5-13", "diffllama-3", "diffllama-7", "falcon-alibi-1", "olmo-clip-1", "mpt-clip-5"}

// TestGPUsRunKindsOfLayers holds law 4 for these models over maps of two GPUs, the CPU and the disk: with high
// precision their logits have the CPU's bits, also after a prefix that another sequence has left, with a snapshot of states.
func TestGPUsRunKindsOfLayers(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	for _, name := range kindsOfModels {
		t.Run(name, func(t *testing.T) {
			g := golden.OwnModel(t, "family-"+name)
			stationsKeepBits(t, g, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
			reuseOnGPU(t, g)
		})
	}
}

// reuseOnGPU compares the logits of a model on a GPU, after a prefix that is reused, with those of the CPU.
func reuseOnGPU(t *testing.T, g *golden.Model) {
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir())
	ids := append(stationIDs(g), stationIDs(g)...)
	prompt := len(ids) - 3
	o := dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 24 * 128}
	var want [][]float32
	for _, d := range []devicemap.Device{devicemap.CPU, "0"} {
		if d != devicemap.CPU {
			o = onGPUs(t, o)
		}
		m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: d}), o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		first := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
		again, n := dispatchtest.AfterReuse(t, m, ids, prompt)
		if n == 0 {
			t.Errorf("on %s no tokens are reused", d)
		}
		dispatchtest.SameLogits(t, "after a prefix on "+string(d), again, first[n:])
		if want == nil {
			want = first
			continue
		}
		dispatchtest.SameLogits(t, "on "+string(d), first, want)
		if held := m.Status().TierBytes[devicemap.CPU]; held != 0 {
			t.Errorf("%d bytes of weights are on the host", held)
		}
	}
}

// TestGPUsRunConvertedWeights holds law 4 for weights that are converted when they are loaded.
func TestGPUsRunConvertedWeights(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	convertedKeepBits(t, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
}

// TestGPUsInAutoConvert: kernels for tensor cores stay within the tolerance with weights that are converted too.
func TestGPUsInAutoConvert(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
		autoStaysWithin(t, golden.OwnModel(t, "small-llama-bf16"), format)
	}
}

// TestGPUsDivideExperts holds law 4 for experts on two GPUs, the CPU and the disk, apart from their blocks.
func TestGPUsDivideExperts(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	gpus := func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) }
	for g := range golden.Models(t) {
		skeleton, _ := dispatchtest.OpenCheckpoint(t, g.Dir())
		if paths, _ := stacks(t, skeleton); len(paths) > 0 {
			t.Run(g.Name(), func(t *testing.T) { dividedKeepBits(t, g, gpus) })
		}
	}
	for _, name := range kindsOfMixtures {
		t.Run(name, func(t *testing.T) { dividedKeepBits(t, golden.OwnModel(t, name), gpus) })
	}
}

// TestGPUsRunAdapters holds law 4 for LoRA adapters.
func TestGPUsRunAdapters(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	adaptersKeepBits(t, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
}

// TestGPUsRunAdaptersThatComeAndGo holds law 4 for adapters that are evicted from the GPU's memory for others.
func TestGPUsRunAdaptersThatComeAndGo(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	adaptersComeAndGo(t, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
}

// TestGPUsStorePages holds law 4 for pages of a KV store, which other goroutines copy from and to GPUs.
func TestGPUsStorePages(t *testing.T) {
	onGPUs(t, dispatch.Options{})
	needFused(t)
	storesKeepBits(t, func(o dispatch.Options) dispatch.Options { return onGPUs(t, o) })
}
