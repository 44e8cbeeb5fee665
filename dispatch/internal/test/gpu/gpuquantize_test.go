package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// convertedModels have a tied head, experts in stacks and one by one, matrices that outputs are the columns of, and states.
var convertedModels = []string{"small-llama-bf16", "small-qwen3-tied-f16", "small-mixtral-bf16", "small-gpt2-bf16", "family-qwen3-next-1", "family-nemotron-h-moe-1", "family-granitemoeshared-2", "family-llama4-text-2"}

// convertedKeepBits holds law 4 for models whose weights are converted when they are loaded: with high precision the logits
// over maps with GPUs are those of the CPU, which has the blocks in another order of bytes.
func convertedKeepBits(t *testing.T, gpus func(dispatch.Options) dispatch.Options) {
	for _, name := range convertedModels {
		for _, format := range []meta.QuantFormat{meta.QuantQ8, meta.QuantQ4} {
			t.Run(name+" "+format.String(), func(t *testing.T) {
				g := golden.OwnModel(t, name)
				skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, g.Dir)
				if len(skeleton.Root.LoadedBytes(format, true)) == 0 {
					t.Fatal("the model has no weights to convert")
				}
				o := dispatch.Options{Threads: 1, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, KVTokens: 12 * 128, Quantize: format}
				ids := stationIDs(g)
				prompt := max(1, len(ids)-3)
				var want [][]float32
				maps := stationMaps(skeleton)
				for name, devices := range dividedMaps(t, skeleton) {
					maps[name] = devices
				}
				for _, at := range []string{"cpu", "all on a GPU", "GPUs, CPU, disk", "head on a GPU", "experts in turn", "experts on the CPU"} {
					with, devices := gpus(o), maps[at]
					switch at {
					case "cpu":
						with, devices = o, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
					case "GPUs, CPU, disk", "head on a GPU", "experts in turn":
						with.CacheDir = t.TempDir()
					}
					m, err := dispatch.New(skeleton, checkpoint, devices, with)
					if err != nil {
						t.Fatalf("%s: %v", at, err)
					}
					got := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
					if want == nil {
						want = got
					}
					dispatchtest.SameLogits(t, at, got, want)
					dispatchtest.SameLogits(t, at+", in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
					dispatchtest.SameLogits(t, at+", in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 4, 2), want)
					if at == "GPUs, CPU, disk" || at == "experts on the CPU" {
						convertedStream(t, skeleton, checkpoint, devices, with, ids, prompt, want)
					}
					if held := m.Status().TierBytes[devicemap.CPU]; at == "all on a GPU" && held != 0 {
						t.Errorf("%d bytes of weights are on the host", held)
					}
					m.Close()
				}
			})
		}
	}
}

// convertedStream holds the same for long prompts, to which blocks of the host stream, or experts alone.
func convertedStream(t *testing.T, skeleton *meta.Model, checkpoint *loader.Checkpoint, devices devicemap.Map, o dispatch.Options, ids []int32, prompt int, want [][]float32) {
	t.Helper()
	o.StreamPrompts = 6
	m, err := dispatch.New(skeleton, checkpoint, devices, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	dispatchtest.SameLogits(t, "streamed", dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), want)
	dispatchtest.SameLogits(t, "streamed in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5), want)
	dispatchtest.SameLogits(t, "streamed in a batch of 3", dispatchtest.LogitsInPieces(t, m, 1, 3, ids, prompt, 4, 2), want)
	if paths, _ := stacks(t, skeleton); streamed(m) == 0 && (len(paths) > 0 || devices.Len() > 1) {
		t.Error("nothing streamed")
	}
}

// TestConvertedWeightsOfStations runs them on two backends of the CPU in place of GPUs.
func TestConvertedWeightsOfStations(t *testing.T) { convertedKeepBits(t, withTwoGPUs) }
