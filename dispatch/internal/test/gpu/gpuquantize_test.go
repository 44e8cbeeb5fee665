package gpu_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
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
				a := answerOfHost(t, golden.OwnModel(t, name), format)
				if len(a.skeleton.Root.LoadedBytes(format, true)) == 0 {
					t.Fatal("the model has no weights to convert")
				}
				a.isKept(t, "cpu", devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), a.o)
				maps := stationMaps(a.skeleton)
				maps["experts in turn"] = dividedMaps(t, a.skeleton)["experts in turn"]
				maps["experts on the CPU"] = dividedMaps(t, a.skeleton)["experts on the CPU"]
				tried := []string{"all on a GPU", "GPUs, CPU, disk", "head on a GPU", "experts in turn", "experts on the CPU"}
				if testing.Short() {
					tried = tried[1:2]
				}
				for _, at := range tried {
					with := gpus(a.o)
					switch at {
					case "GPUs, CPU, disk", "head on a GPU", "experts in turn":
						with.CacheDir = t.TempDir()
					}
					if _, onHost := a.isKept(t, at, maps[at], with); at == "all on a GPU" && onHost != 0 {
						t.Errorf("%d bytes of weights are on the host", onHost)
					}
					if at != "GPUs, CPU, disk" && at != "experts on the CPU" {
						continue
					}
					// Blocks of the host, or experts alone, stream to long prompts.
					with.StreamPrompts = 6
					n, _ := a.isKept(t, at+", streamed", maps[at], with)
					if paths, _ := stacks(t, a.skeleton); n == 0 && (len(paths) > 0 || maps[at].Len() > 1) {
						t.Errorf("%s: nothing streamed", at)
					}
				}
			})
		}
	}
}

// TestConvertedWeightsOfStations runs them on two backends of the CPU in place of GPUs.
func TestConvertedWeightsOfStations(t *testing.T) { convertedKeepBits(t, withTwoGPUs) }
