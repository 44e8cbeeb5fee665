//go:build cuda

package gpu_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/nn"
	"github.com/heftai/heft/meta"
)

// leftToTheCPU are the models of testdata/golden/infer/models of which no block runs on GPUs, with what no kernel of GPUs
// does. All blocks of the others do.
var leftToTheCPU = reasons(map[string][]string{
	"biases of distances that depend on the query": {"family-inkling-20", "family-inkling-text-11", "family-inkling-text-24"},
	"biases of keys":                    {"family-doge-1", "family-doge-5"},
	"channels that blocks hand on":      {"family-dory-2", "family-dory-7", "family-hrm-text-7", "family-zaya-1", "family-zaya-2"},
	"experts in two stacks":             {"family-jetmoe-1", "family-jetmoe-2"},
	"gated linear recurrent units":      {"family-recurrent-gemma-1", "family-recurrent-gemma-2"},
	"hyper-connections":                 {"family-deepseek-v4-1", "family-deepseek-v4-5", "family-hy-v4-6", "family-hy-v4-7", "family-hy-v4-vl-5", "family-qwen4-exp-text-1", "small-deepseek-v4-published"},
	"embeddings after hidden states":    {"family-zamba-1", "family-zamba-2", "family-zamba2-4", "family-zamba2-13", "family-zamba2-14"},
	"embeddings of n-grams":             {"family-qwen4-exp-1"},
	"biases of gates":                   {"family-beam-3", "family-beam-8"},
	"inputs by layer":                   {"family-gemma3n-1", "family-gemma3n-text-1", "family-gemma3n-text-2", "family-gemma3n-text-3", "family-gemma4-small-1", "family-gemma4-small-2"},
	"keys and values that layers share": {"family-gemma4-unified-text-1"},
	"learned frequencies of rope":       {"family-mistral-large4-76", "family-mistral-large4-77"},
	"time and channel mixes":            {"family-rwkv-1", "family-rwkv-2"},
	"lightning attention":               {"family-minimax-1", "family-minimax-2"},
	"sparse attention":                  {"family-axk2-15", "family-axk2-6", "family-deepseek-v32-1", "family-deepseek-v32-2", "family-dots3-note-3", "family-glm-moe-dsa-1", "family-glm-moe-dsa-2", "family-minimax-m3-narrow-1", "family-minimax-m3-vl-1", "family-minimax-m3-vl-text-6", "family-minimax-m3-vl-text-7"},
	"weights in awq":                    {"small-llama-awq4"},
	"weights in bitsandbytes fp4":       {"small-llama-bnb-fp4"},
	"weights in bitsandbytes int8":      {"small-llama-bnb-int8"},
	"weights in bitsandbytes nf4":       {"quantised-qwen2-moe-bnb-nf4", "small-llama-bnb-nf4", "small-llama-bnb-nf4-plain"},
	"weights in fp8 e8m0":               {"small-llama-ct-mxfp8", "small-llama-fp8-e8m0", "small-llama-modelopt-mxfp8"},
	"weights in gptq":                   {"small-llama-autoround", "small-llama-gptq4"},
	"weights in gptq 2 bits":            {"small-llama-gptq2"},
	"weights in gptq 3 bits":            {"small-llama-gptq3"},
	"weights in gptq 8 bits":            {"small-llama-gptq8"},
	"weights in int4 packed":            {"small-llama-ct-w4a16", "small-llama-ct-w4a16-channel", "small-llama-ct-w4a16-zeros"},
	"weights in int8":                   {"small-llama-ct-int8", "small-llama-ct-int8-zeros"},
	"weights in int8 packed":            {"small-llama-ct-w8a16-zeros"},
	"weights in modelopt nvfp4":         {"small-llama-modelopt-nvfp4"},
	"weights in mxfp4 packed":           {"small-llama-ct-mxfp4"},
	"weights in nvfp4":                  {"small-llama-ct-nvfp4"},
})

// reasons turns a table of models by reason into one of reasons by model.
func reasons(models map[string][]string) map[string]string {
	out := map[string]string{}
	for why, list := range models {
		for _, name := range list {
			out[name] = why
		}
	}
	return out
}

// TestGPUsTakeWhatPlansSay plans each model for GPUs that have room for all of it, by itself and by a map that places
// everything on GPU 0. A plan places all blocks there, or none, and then says why.
func TestGPUsTakeWhatPlansSay(t *testing.T) {
	o := onGPUs(t, dispatch.Options{Threads: 1, Context: 128, MaxMemory: hostMemory(1 << 30)})
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "infer", "models")
	list, err := os.ReadDir(dir)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d models, %v", len(list), err)
	}
	left := 0
	for _, e := range list {
		skeleton, _ := dispatchtest.OpenCheckpoint(t, golden.OwnDir(t, e.Name()))
		for _, policy := range []devicemap.Policy{{}, {Kind: devicemap.Manual, Pins: devicemap.NewMap(devicemap.Entry{Device: "0"})}} {
			with := o
			with.DeviceMap = policy
			plan, _, err := dispatch.Plan(skeleton, with)
			if err != nil {
				t.Errorf("%s: %v", e.Name(), err)
				continue
			}
			checkTaken(t, e.Name(), string(policy.Kind), skeleton, &plan)
		}
		if leftToTheCPU[e.Name()] != "" {
			left++
		}
	}
	if want := len(leftToTheCPU); left != want {
		t.Errorf("%d models are left to the CPU, the table has %d", left, want)
	}
}

// checkTaken compares the blocks that a plan places on GPU 0 with the table.
func checkTaken(t *testing.T, name, policy string, skeleton *meta.Model, plan *devicemap.Plan) {
	t.Helper()
	program, err := nn.Compile(skeleton.Root)
	if err != nil {
		t.Fatal(err)
	}
	why := leftToTheCPU[name]
	for _, u := range program.Units {
		if len(u.Layers)+len(u.States) == 0 {
			continue
		}
		d, _ := plan.Map.Device(u.Path)
		if (d == "0") != (why == "") {
			t.Errorf("%s, policy %q: %s is on device %q; the table says %q; warnings %q", name, policy, u.Path, d, why, plan.Warnings)
			return
		}
	}
	if said := strings.Join(plan.Warnings, "\n"); !strings.Contains(said, "the GPU has no kernels for "+why) && why != "" || why == "" && strings.Contains(said, "no kernels") {
		t.Errorf("%s, policy %q: the plan warns %q, want %q", name, policy, said, why)
	}
}
