package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/testenv"
)

// estimatedConfig is of a model whose training takes much more memory than the program.
const estimatedConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 8192, "hidden_size": 512, "intermediate_size": 1408,
 "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512, "torch_dtype": "float32"}`

// waysOf returns the ways of train estimate by name.
func waysOf(t *testing.T, args ...string) map[string]trainWay {
	t.Helper()
	status, stdout, stderr := command(t, append([]string{"estimate", "--json"}, args...)...)
	var e trainEstimate
	if err := json.Unmarshal([]byte(stdout), &e); err != nil || status != 0 {
		t.Fatalf("%q: %d: %s (%v)", args, status, stderr, err)
	}
	out := map[string]trainWay{}
	for _, w := range e.Ways {
		out[w.Way] = w
	}
	return out
}

// peakOf runs train in a process and returns its largest anonymous memory, which is not that of mapped files.
func peakOf(t *testing.T, args ...string) (peak int64) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	c := exec.Command(self, args...)
	c.Env, c.Stderr = append(os.Environ(), "TEST_IS_TRAIN=1"), &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatalf("%q: %v: %s", args, err, &errs)
			}
			return peak
		case <-time.After(2 * time.Millisecond):
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Process.Pid))
		for line := range strings.Lines(string(status)) {
			var kib int64
			if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
				peak = max(peak, kib<<10)
			}
		}
	}
}

// TestEstimateIsTheMemoryOfARun runs each way with the flags that train estimate names.
func TestEstimateIsTheMemoryOfARun(t *testing.T) {
	_, err := os.Stat("/proc/self/status")
	testenv.Need(t, "proc", err == nil, "/proc, which reports the memory of a process")
	dir := modelOf(t, estimatedConfig)
	data := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(data, []byte(strings.Repeat(`{"text": "`+strings.Repeat("many words ", 400)+"\"}\n", 8)), 0o600); err != nil {
		t.Fatal(err)
	}
	const batch = "--batch 2 --sequence 256 --recompute "
	for _, flags := range []string{batch + "off", batch + "on"} {
		for name, way := range waysOf(t, append(strings.Fields(flags), dir)...) {
			if flags == batch+"on" && strings.HasPrefix(name, "QLoRA") {
				continue // its activations are those of LoRA
			}
			args := []string{"run", dir, "--data", data, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "2", "--save-steps", "-1"}
			peak := peakOf(t, append(append(args, strings.Fields(flags)...), strings.Fields(way.Flags)...)...)
			if part := float64(peak) / float64(way.Memory); part < 0.7 || part > 1.2 { // measured: 0.76 to 1.11
				t.Errorf("%s %s: took %d bytes, %.2f of the estimate %d", name, flags, peak, part, way.Memory)
			}
		}
	}
}

// TestEstimateOfRanksIsTheirMemory runs full fine-tunes and an adapter on two ranks of a process.
func TestEstimateOfRanksIsTheirMemory(t *testing.T) {
	_, err := os.Stat("/proc/self/status")
	testenv.Need(t, "proc", err == nil, "/proc, which reports the memory of a process")
	dir := modelOf(t, estimatedConfig)
	data := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(data, []byte(strings.Repeat(`{"text": "`+strings.Repeat("many words ", 400)+"\"}\n", 16)), 0o600); err != nil {
		t.Fatal(err)
	}
	for ranks, name := range map[string]string{"": "full", "--plugin zero1": "full", "--plugin zero2": "full", "--gradient-accumulation-steps 2": "full", "--plugin gemini": "LoRA"} {
		flags := strings.Fields("--batch 2 --sequence 256 --recompute off --num-processes 2 " + ranks)
		way := waysOf(t, append(flags, dir)...)[name]
		args := []string{"run", dir, "--data", data, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "2", "--save-steps", "-1"}
		if name == "LoRA" {
			args = append(args, "--lora", "r=16")
		}
		peak := peakOf(t, append(args, flags...)...)
		if part := float64(peak) / float64(way.Memory); part < 0.8 || part > 1.2 { // measured: 0.94 to 1.09
			t.Errorf("%s %s: took %d bytes, %.2f of the estimate %d", name, ranks, peak, part, way.Memory)
		}
		if want := "--num-processes 2"; !strings.Contains(way.Flags, want) {
			t.Errorf("%s %s: got flags %q, want %q among them", name, ranks, way.Flags, want)
		}
	}
}

func TestEstimateNamesTheFlagsThatFit(t *testing.T) {
	dir := modelOf(t, estimatedConfig)
	for _, c := range []struct{ args, want, not string }{
		{"--memory 100GiB", "full", "none"},
		{"--memory 300MiB", "full, streamed  --plugin gemini --max-memory cpu=", "(no flag)"},
		{"--memory 100GiB --lora r=4", "--lora r=4 --quantize nf4", "full,"},
		{"--memory 1MiB", "use a smaller --batch", "--lora"},
	} {
		status, stdout, stderr := command(t, append([]string{"estimate", dir, "--batch", "2", "--sequence", "256"}, strings.Fields(c.args)...)...)
		if status != 0 || !strings.Contains(stdout, c.want) || strings.Contains(stdout, c.not) {
			t.Errorf("%s: status %d, got %s%s, want %q and not %q", c.args, status, stdout, stderr, c.want, c.not)
		}
	}
	if w := waysOf(t, dir, "--optimizer", "sgd"); w["full"].Optimizer != 0 || w["full, streamed"].Memory != 0 {
		t.Errorf("sgd: got %+v, want no optimizer state and nothing streamed", w)
	}
	for args, want := range map[string]string{
		dir + " --lora r=0":               "want r of at least 1",
		dir + " --lora r=4,targets=q_prj": "q_prj",
		dir + " --batch 0":                "want at least 1",
		dir + " --memory much":            "--memory",
		filepath.Join(dir, "missing"):     "missing",
		dir + " --optimizer adamm":        "want one of",
	} {
		if status, _, stderr := command(t, append([]string{"estimate"}, strings.Fields(args)...)...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
}

// TestEstimateNeedsNoWeights: a config.json says as much as the whole folder.
func TestEstimateNeedsNoWeights(t *testing.T) {
	whole, bare := modelOf(t, estimatedConfig), t.TempDir()
	if err := os.WriteFile(filepath.Join(bare, "config.json"), []byte(estimatedConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	got := waysOf(t, bare)
	for name, want := range waysOf(t, whole) {
		if part := float64(got[name].Memory) / float64(want.Memory); part < 0.99 || part > 1.01 {
			t.Errorf("%s: got %d bytes, want %d", name, got[name].Memory, want.Memory)
		}
	}
}
