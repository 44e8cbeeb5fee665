package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/finetune"
)

// runSettings are some of those in train_run.json.
type runSettings struct {
	Plugin         string
	MixedPrecision string  `json:"mixed_precision"`
	Processes      int     `json:"num_processes"`
	Accumulation   int     `json:"gradient_accumulation_steps"`
	MaxGradNorm    float64 `json:"max_grad_norm"`
}

// settingsOf reads the settings of the run in a folder.
func settingsOf(t *testing.T, out string) (s runSettings) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, "train_run.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Ranks in processes fine-tune to the weights of ranks in one process, bit for bit, with every
// plugin. Rank 0 alone reports.
func TestLaunchedProcessesFineTuneAsGoroutines(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text := tinyModel(t), lessons(t, 14)
	flags := func(out, plugin string) []string {
		return []string{"--model", dir, "--data", text, "--output", out, "--max-steps", "3", "--batch", "2", "--gradient-accumulation-steps", "2",
			"--threads", "1", "--plugin", plugin, "--json"}
	}
	for _, plugin := range []string{"ddp", "zero1", "zero2", "gemini"} {
		one, many := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "many")
		if status, _, stderr := command(t, append([]string{"run", "--num-processes", "2"}, flags(one, plugin)...)...); status != 0 {
			t.Fatalf("%s: %d: %s", plugin, status, stderr)
		}
		status, stdout, stderr := command(t, append([]string{"launch", "--num_processes", "2", "run"}, flags(many, plugin)...)...)
		if status != 0 {
			t.Fatalf("%s: %d: %s", plugin, status, stderr)
		}
		var result finetune.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil || result.Steps != 3 || !strings.Contains(stderr, "[1] ") {
			t.Errorf("%s: %q, %v, %s", plugin, stdout, err, stderr)
		}
		if !bytes.Equal(weightsOf(t, one), weightsOf(t, many)) {
			t.Errorf("%s: processes have other weights than goroutines", plugin)
		}
		if s := settingsOf(t, many); s.Processes != 2 || s.Plugin != strings.TrimPrefix(plugin, "ddp") {
			t.Errorf("%s: %+v", plugin, s)
		}
	}
}

// A run of two processes that saved continues in one process, and the reverse, with the same bits.
func TestProcessesResumeGoroutines(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text := tinyModel(t), lessons(t, 14)
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	flags := func(out string) []string {
		return []string{"--model", dir, "--data", text, "--output", out, "--max-steps", "4", "--save-steps", "2", "--save-total-limit", "0",
			"--batch", "2", "--threads", "1", "--plugin", "zero1"}
	}
	for _, out := range []string{whole, parts} {
		if status, _, stderr := command(t, append([]string{"launch", "--nproc_per_node=2"}, flags(out)...)...); status != 0 {
			t.Fatalf("%d: %s", status, stderr)
		}
	}
	for _, name := range []string{"checkpoint-4", "model.safetensors"} {
		if err := os.RemoveAll(filepath.Join(parts, name)); err != nil {
			t.Fatal(err)
		}
	}
	if status, _, stderr := command(t, append([]string{"run", "--num-processes", "2"}, flags(parts)...)...); status != 0 {
		t.Fatalf("%d: %s", status, stderr)
	}
	if !bytes.Equal(weightsOf(t, whole), weightsOf(t, parts)) {
		t.Error("the resumed run has other weights")
	}
}

// TestProcessesLoadTheBestWeights: with --load-best, processes write the weights of the best evaluation, as ranks of one
// process do.
func TestProcessesLoadTheBestWeights(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text, out := tinyModel(t), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	status, _, stderr := command(t, "launch", "--nproc_per_node=2", "--model", dir, "--data", text, "--eval-data", text, "--output", out, "--epochs", "2", "--batch", "2",
		"--lr", "0.02", "--load-best", "--greater-is-better", "--threads", "1", "--plugin", "zero2")
	if status != 0 {
		t.Fatalf("%d: %s", status, stderr)
	}
	got, first, last := weightsOf(t, out), weightsOf(t, filepath.Join(out, "checkpoint-2")), weightsOf(t, filepath.Join(out, "checkpoint-4"))
	if !bytes.Equal(got, first) || bytes.Equal(got, last) {
		t.Error("the weights are not those of the first evaluation, the best one")
	}
}

// A configuration of DeepSpeed with stage 1 or 2 trains with the LowLevelZeroPlugin.
func TestDeepSpeedConfigurationsRunLowLevelZero(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text, file := tinyModel(t), lessons(t, 12), filepath.Join(t.TempDir(), "c.yaml")
	content := "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: 'no'\ndeepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 2\n" +
		"  gradient_clipping: 0.5\n  offload_optimizer_device: none\n  zero3_init_flag: false\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	status, _, stderr := command(t, "launch", "--config_file", file, "--model", dir, "--data", text, "--output", out, "--max-steps", "1", "--batch", "1")
	if status != 0 {
		t.Fatalf("%d: %s", status, stderr)
	}
	if s := settingsOf(t, out); s.Plugin != "zero2" || s.Accumulation != 2 || s.MaxGradNorm != 0.5 || s.Processes != 2 {
		t.Errorf("%+v", s)
	}
}

func TestArgumentsOfLaunchedRuns(t *testing.T) {
	launch, ranks := runArgs(allDashed([]string{"--config", "f.yaml", "launch", "--model", "m", "--num_processes", "2", "--main_process_ip=192.0.2.1", "--output", "run"}))
	if want := []string{"--config", "f.yaml", "run", "--model", "m", "--output", "run"}; !slices.Equal(ranks, want) {
		t.Errorf("ranks get %q, want %q", ranks, want)
	}
	if want := []string{"--config", "f.yaml", "launch", "--model", "m", "--num-processes", "2", "--main-process-ip=192.0.2.1", "--output", "run"}; !slices.Equal(launch, want) {
		t.Errorf("launch gets %q, want %q", launch, want)
	}
	if _, ranks := runArgs([]string{"launch", "--num_processes", "2", "run", "--model", "m"}); !slices.Equal(ranks, []string{"run", "--model", "m"}) {
		t.Errorf("launch run: ranks get %q", ranks)
	}
}

func TestARankRejectsAnotherWorld(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	t.Setenv("RANK", "0")
	for size, want := range map[string]string{"2": "a launcher has started 2 ranks: omit the flag", "many": `WORLD_SIZE: got "many"`} {
		t.Setenv("WORLD_SIZE", size)
		status, _, stderr := command(t, "run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--num-processes", "3")
		if status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d: %s", size, status, stderr)
		}
	}
}

// killedBy kills this process once a file is there.
func killedBy(file string) {
	for {
		if _, err := os.Stat(file); err == nil {
			p, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = p.Kill()
			}
			panic(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// A rank that kill -9 ends takes nothing with it that was saved: the same command continues from the
// last checkpoint, to the same weights.
func TestARankThatIsKilledLosesNothingSaved(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text := tinyModel(t), lessons(t, 24)
	whole, killed := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "killed")
	launch := func(out string) (status int, stderr string) {
		status, _, stderr = command(t, "launch", "--num_processes", "2", "--model", dir, "--data", text, "--output", out, "--epochs", "20", "--batch", "1",
			"--threads", "1", "--plugin", "zero1", "--save-steps", "3")
		return status, stderr
	}
	t.Setenv("TEST_KILLED_BY", filepath.Join(killed, "checkpoint-3"))
	if status, stderr := launch(killed); status != 1 || !strings.Contains(stderr, "rank 1 failed: signal: killed") {
		t.Errorf("status %d, want 1: %s", status, stderr)
	}
	if _, err := train.LatestCheckpoint(killed); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_KILLED_BY", "")
	for _, out := range []string{killed, whole} {
		if status, stderr := launch(out); status != 0 {
			t.Fatalf("%d: %s", status, stderr)
		}
	}
	if !bytes.Equal(weightsOf(t, whole), weightsOf(t, killed)) {
		t.Error("the run that continued has other weights")
	}
}

// TestLaunchOfNoRanksRanOne: the number was taken for the default.
func TestLaunchOfNoRanksRanOne(t *testing.T) {
	for _, args := range [][]string{{"launch", "--num_processes", "0", "--model", "m"}, {"launch", "--model", "m", "--num-processes=0"}, {"launch", "--num-processes", "0", "true"}} {
		if status, _, stderr := command(t, args...); status != 2 || !strings.Contains(stderr, "got --num-processes 0, want at least 1") {
			t.Errorf("%v: status %d, %s", args, status, stderr)
		}
	}
	if noRanks([]string{"--num-processes", "2", "program", "--num-processes", "0"}, true) {
		t.Error("the flag of a program was read")
	}
}
