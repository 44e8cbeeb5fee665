package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlanRejectsWhatServeRejects: `serve plan` predicted the speed of a model in a dtype without
// kernels, which `serve` then rejected.
func TestPlanRejectsWhatServeRejects(t *testing.T) {
	folder := demoOnDisk(t)
	path := filepath.Join(folder, "model.safetensors")
	shard, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, stored := range []string{`"BF16"`, `"F16"`, `"F32"`} { // to integers of as many bits
		shard = bytes.ReplaceAll(shard, []byte(`"dtype":`+stored), []byte(`"dtype":`+strings.NewReplacer(`"BF16"`, `"I16" `, "F", "I").Replace(stored)))
	}
	if err := os.WriteFile(path, shard, 0o666); err != nil {
		t.Fatal(err)
	}
	_, plan := command(t, 1, "plan", "--no-probe", folder)
	_, bench := command(t, 1, "bench", "--no-probe", folder) // opens as serve does
	if want := "want float32, bfloat16 or float16"; !strings.Contains(plan, want) || !strings.HasSuffix(bench, plan) {
		t.Errorf("plan says %q, bench %q", plan, bench)
	}
}

// TestPlanRejectsABareConfigWithoutKernels: config.json alone, of a dtype that serve rejects, was
// planned.
func TestPlanRejectsABareConfigWithoutKernels(t *testing.T) {
	const config = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
		"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100, "rms_norm_eps": 1e-5, "torch_dtype": "DTYPE"}`
	for dtype, code := range map[string]int{"float64": 1, "float32": 0, "bfloat16": 0} {
		path := filepath.Join(t.TempDir(), "config.json")
		if err := os.WriteFile(path, []byte(strings.Replace(config, "DTYPE", dtype, 1)), 0o666); err != nil {
			t.Fatal(err)
		}
		_, errs := command(t, code, "plan", "--no-probe", path)
		if want := "model.embed_tokens.weight holds float64 (no kernel reads it), want float32, bfloat16 or float16"; code != 0 && !strings.Contains(errs, want) {
			t.Errorf("%s: got %q, want %q", dtype, errs, want)
		}
	}
}

// TestPlacementFlagsNameTheEntry: errors of --max-memory and --device-map said "stands there twice"
// and "is not a device map".
func TestPlacementFlagsNameTheEntry(t *testing.T) {
	for args, want := range map[string]string{
		"--max-memory 8GB,cpu=4GB":   `memory limit "cpu=4GB": got a second limit for cpu`,
		"--max-memory cpu=4GB,xpu=1": `memory limit "xpu=1": got the device "xpu", want `,
		"--max-memory cpu=lots":      `memory limit "cpu=lots": got the size "lots", want `,
		"--device-map bogus":         `device map: got "bogus", want auto, `,
		"--device-map a=cpu,b=x":     `entry "b=x" of the device map: got the device "x", want `,
	} {
		if _, errs := command(t, 2, append([]string{"plan", "--no-probe"}, strings.Fields(args)...)...); !strings.Contains(errs, want) {
			t.Errorf("%s: got %q, want %q", args, errs, want)
		}
	}
}
