package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train/finetune"
)

// trained runs train run and returns its result.
func trained(t *testing.T, args ...string) finetune.Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(slices.Concat([]string{"run", "--json", "--threads", "1"}, args), &stdout, &stderr); status != 0 {
		t.Fatalf("train run %q ended with %d: %s", args, status, stderr.String())
	}
	var r finetune.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLoadBestWritesTheBestWeights trains until the loss on other data rises, so that the best weights
// are not the last ones.
func TestLoadBestWritesTheBestWeights(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	for name, flags := range map[string][]string{"full": nil, "lora": {"--lora", "r=4"}, "two ranks": ranks("ddp"), "two ranks of ZeRO's stage 1": ranks("zero1"),
		"two ranks of stage 2": ranks("zero2"), "two ranks of Gemini": ranks("gemini"), "two ranks, lora": append(ranks("ddp"), "--lora", "r=4")} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			// The evaluations are ranked upwards, so that the first one is the best.
			trained(t, slices.Concat([]string{"--model", dir, "--data", text, "--eval-data", text, "--output", out, "--epochs", "3", "--batch", "4", "--lr", "0.02",
				"--load-best", "--greater-is-better", "--save-total-limit", "0"}, flags)...)
			checkpoints, err := filepath.Glob(filepath.Join(out, "checkpoint-*"))
			if err != nil || len(checkpoints) != 3 {
				t.Fatalf("got checkpoints %v, want 3: %v", checkpoints, err)
			}
			slices.Sort(checkpoints)
			got := valuesOf(t, out)
			if want := valuesOf(t, checkpoints[0]); !slices.Equal(got, want) {
				t.Error("the weights are not those of the best evaluation")
			}
			if last := valuesOf(t, checkpoints[2]); slices.Equal(got, last) {
				t.Error("the last weights are the best ones: the test shows nothing")
			}
		})
	}
}

// ranks returns the flags of a run with two ranks and as many sequences a step as with one.
func ranks(plugin string) []string {
	return []string{"--num-processes", "2", "--batch", "2", "--plugin", plugin}
}

// TestADamagedBestCheckpointKeepsTheModel: a run whose best checkpoint was damaged ended after its last step without a
// model. It writes the next best weights, or the last ones if they are better, says so, and exits with status 1.
func TestADamagedBestCheckpointKeepsTheModel(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	for name, c := range map[string]struct {
		flags []string
		taken int // index of the checkpoint
		says  string
	}{
		"full, next best": {[]string{"--greater-is-better"}, 1, "the next best evaluation"}, // the first evaluation is the best
		"lora, next best": {[]string{"--greater-is-better", "--lora", "r=4"}, 1, "the next best evaluation"},
		"two ranks":       {append(ranks("zero2"), "--greater-is-better"), 1, "the next best evaluation"},
		"last":            {[]string{"--greater-is-better", "--epochs", "2"}, 1, "the last ones, of step 4"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			args := slices.Concat([]string{"--model", dir, "--data", text, "--eval-data", text, "--output", out, "--epochs", "3", "--batch", "4", "--lr", "0.02",
				"--load-best", "--save-total-limit", "0"}, c.flags)
			trained(t, args...)
			checkpoints, err := filepath.Glob(filepath.Join(out, "checkpoint-*"))
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(checkpoints)
			file := filepath.Join(checkpoints[0], "model.safetensors")
			b, err := os.ReadFile(file)
			if err == nil {
				b[len(b)-1]++
				err = os.WriteFile(file, b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			var stdout, stderr bytes.Buffer
			if status := run(append([]string{"run", "--json"}, args...), &stdout, &stderr); status != 1 {
				t.Fatalf("got exit status %d, want 1: %s", status, stderr.String())
			}
			for _, want := range []string{"is not the best one", "checkpoint-2 cannot be read", "got checksum", c.says} {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("got %s\nwant %q", stderr.String(), want)
				}
			}
			if !strings.Contains(stdout.String(), `"best_lost":"the best checkpoint`) {
				t.Errorf("got %s", stdout.String())
			}
			if !slices.Equal(valuesOf(t, out), valuesOf(t, checkpoints[c.taken])) {
				t.Error("the weights are others")
			}
		})
	}
}

// TestTrackersShowAllSettings checks that options with several values are shown, that a fraction of the steps to
// warm up is rounded up, and that --eval-steps evaluates at the end, too: as transformers' Trainer does.
func TestTrackersShowAllSettings(t *testing.T) {
	dir, text, out := tinyModel(t), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	trained(t, "--model", dir, "--data", text, "--eval-data", text, "--output", out, "--batch", "2", "--max-steps", "3", "--warmup-ratio", "0.4", "--lr", "0.001",
		"--eval-steps", "2", "--log-steps", "1", "--log-with", "jsonl", "--adam-beta2", "0.98", "--freeze", "norm", "--data-weights", "2")
	b, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var settings map[string]any
	var rates []float64
	var evaluated []int
	for line := range strings.Lines(string(b)) {
		var row struct {
			Config   map[string]any `json:"config"`
			Step     int            `json:"step"`
			Rate     *float64       `json:"learning_rate"`
			EvalLoss float64        `json:"eval_loss"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Config != nil {
			settings = row.Config
		}
		if row.Rate != nil {
			rates = append(rates, *row.Rate)
		}
		if row.EvalLoss > 0 {
			evaluated = append(evaluated, row.Step)
		}
	}
	for name, want := range map[string]any{"optimizer": `["adamw",0.9,0.98,1e-8,0]`, "freeze": `["norm"]`, "data_weights": "[2]"} {
		if settings[name] != want {
			t.Errorf("%s is shown as %v, want %v", name, settings[name], want)
		}
	}
	if want := []float64{0, 0.0005, 0.001}; !slices.Equal(rates, want) {
		t.Errorf("rates are %v, want %v: two of three steps warm up", rates, want)
	}
	if want := []int{2, 3}; !slices.Equal(evaluated, want) {
		t.Errorf("evaluated after steps %v, want %v", evaluated, want)
	}
}

// valuesOf returns the values of the weights that a folder holds, without the header of their file.
func valuesOf(t *testing.T, dir string) []byte {
	t.Helper()
	b := weightsOf(t, dir)
	return b[8+binary.LittleEndian.Uint64(b):]
}

// TestEarlyStoppingEndsTheRun ranks falling losses upwards, so that the second evaluation is worse.
func TestEarlyStoppingEndsTheRun(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	r := trained(t, "--model", dir, "--data", text, "--eval-data", text, "--output", filepath.Join(t.TempDir(), "out"), "--epochs", "9", "--batch", "4", "--lr", "0.01",
		"--early-stopping-patience", "1", "--greater-is-better")
	if r.Steps != 4 || r.Stopped {
		t.Errorf("got %d steps, stopped by a signal %t; want the 4 of two epochs", r.Steps, r.Stopped)
	}
}

// TestTheCardHasTheMetricsOfTheBestWeights: with --load-best the card and --json had the metrics of the last evaluation beside
// the weights of the best one, and the log named neither its step nor why the run ended before --epochs.
func TestTheCardHasTheMetricsOfTheBestWeights(t *testing.T) {
	dir, text, out := tinyModel(t), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := command(t, "run", "--json", "--threads", "1", "--model", dir, "--data", text, "--eval-data", text, "--output", out, "--epochs", "9",
		"--batch", "4", "--lr", "0.01", "--early-stopping-patience", "1", "--greater-is-better", "--load-best")
	var r finetune.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("%d, %v: %s", status, err, stderr)
	}
	for _, want := range []string{"the weights are those of the best evaluation\" of_step=2 last_step=4", "the run stopped early\" step=4 of=18"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("got %s, want %q", stderr, want)
		}
	}
	b, err := os.ReadFile(filepath.Join(out, "checkpoint-2", "trainer_state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		Best float64 `json:"best_metric"`
	}
	if err := json.Unmarshal(b, &state); err != nil || r.Metrics["eval_loss"] != state.Best || state.Best == 0 {
		t.Errorf("got an eval_loss of %v, want %v, that of step 2: %v", r.Metrics["eval_loss"], state.Best, err)
	}
	card, err := os.ReadFile(filepath.Join(out, "README.md"))
	if want := fmt.Sprintf("| eval_loss | %.6g |", state.Best); err != nil || !strings.Contains(string(card), want) {
		t.Errorf("got the card %s, want %q: %v", card, want, err)
	}
	again := trained(t, "--model", dir, "--data", text, "--eval-data", text, "--output", out, "--epochs", "9", "--batch", "4", "--lr", "0.01",
		"--early-stopping-patience", "1", "--greater-is-better", "--load-best")
	if again.Metrics["eval_loss"] != state.Best {
		t.Errorf("the resumed run has an eval_loss of %v, want %v", again.Metrics["eval_loss"], state.Best)
	}
}

func TestOptimizersOfTrainRun(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	seen := map[string]string{}
	for name, flags := range map[string][]string{"adamw": nil, "betas": {"--adam-beta1", "0.5", "--adam-beta2", "0.9"}, "adam": {"--optimizer", "adam", "--weight-decay", "0.1"},
		"sgd": {"--optimizer", "sgd", "--momentum", "0.9"}, "adagrad": {"--optimizer", "adagrad"}, "rmsprop": {"--optim", "rmsprop"}, "adafactor": {"--optim", "adafactor"}} {
		out := filepath.Join(t.TempDir(), "out")
		r := trained(t, slices.Concat([]string{"--model", dir, "--data", text, "--output", out, "--max-steps", "3", "--batch", "2", "--lr", "0.01", "--log-steps", "1"}, flags)...)
		if r.Loss == nil || math.IsNaN(*r.Loss) || r.Diverged {
			t.Errorf("%s: got loss %v, diverged %t", name, r.Loss, r.Diverged)
		}
		weights := string(weightsOf(t, out))
		if other, ok := seen[weights]; ok {
			t.Errorf("%s gave the weights of %s", name, other)
		}
		seen[weights] = name
	}
}

// TestNamesOfTransformersWereRefused: names of optimizers and a fraction as --warmup-steps, as TrainingArguments has them.
func TestNamesOfTransformersWereRefused(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	weights := func(flags ...string) (string, string) {
		out := filepath.Join(t.TempDir(), "out")
		status, _, stderr := command(t, slices.Concat([]string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "3", "--batch", "2", "--lr", "0.01"}, flags)...)
		if status != 0 {
			t.Fatalf("%q: got status %d and %q", flags, status, stderr)
		}
		return string(weightsOf(t, out)), stderr
	}
	usual, _ := weights()
	small, _ := weights("--optimizer", "adamw8bit")
	slow, _ := weights("--warmup-ratio", "0.5")
	if usual == small || usual == slow {
		t.Fatal("the runs have the same weights: the test shows nothing")
	}
	const paged = "the optimizer's state stays in memory"
	for _, c := range []struct {
		flags []string
		want  string
		says  bool
	}{
		{[]string{"--optim", "adamw_torch_fused"}, usual, false}, {[]string{"--optim", "paged_adamw_32bit"}, usual, true},
		{[]string{"--optim", "adamw_bnb_8bit"}, small, false}, {[]string{"--optim", "paged_adamw_8bit"}, small, true},
		{[]string{"--warmup_steps", "0.5"}, slow, false},
	} {
		if got, stderr := weights(c.flags...); got != c.want || strings.Contains(stderr, paged) != c.says {
			t.Errorf("%q: got other weights %t and %q", c.flags, got != c.want, stderr)
		}
	}
}

// TestADivergedRunSaysSo trains with a rate that makes weights infinite.
func TestADivergedRunSaysSo(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	var stdout, stderr bytes.Buffer
	args := []string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "6", "--batch", "2",
		"--optimizer", "sgd", "--lr", "1e38", "--max-grad-norm", "0", "--save-steps", "-1"}
	if status := run(args, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), "the run diverged") || !strings.Contains(stderr.String(), "the loss is not finite") {
		t.Errorf("got status %d, %q and %q", status, stdout.String(), stderr.String())
	}
}

// TestALastStepThatDivergedWasNotNoticed: the loss of a step is that before it changes the weights.
func TestALastStepThatDivergedWasNotNoticed(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 2)
	for _, flags := range [][]string{nil, {"--lora", "r=2"}, {"--plugin", "gemini", "--max-memory", "cpu=1MiB"}} {
		var stdout, stderr bytes.Buffer
		args := append([]string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1", "--batch", "2",
			"--lr", "3e38", "--max-grad-norm", "0", "--save-steps", "-1"}, flags...)
		if status := run(args, &stdout, &stderr); status != 0 || !strings.Contains(stdout.String(), "the run diverged") || !strings.Contains(stderr.String(), "weights are not finite") {
			t.Errorf("%q: got status %d, %q and %q", flags, status, stdout.String(), stderr.String())
		}
	}
}

func TestLoopFlagsAreChecked(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 2)
	folder := t.TempDir()
	for _, name := range []string{"checkpoint-7", "checkpoint-10"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for want, flags := range map[string][]string{
		"want more than 0 and less than 1":                           {"--adam-beta1", "1"},
		"need --optimizer adamw, adamw8bit, adam or muon":            {"--optimizer", "sgd", "--adam-beta2", "0.9"},
		"--optimizer adafactor needs --plugin ddp":                   {"--optimizer", "adafactor", "--plugin", "zero1"},
		"got --optimizer \"lion\", want one of adamw, adam":          {"--optimizer", "lion"},
		"--momentum needs --optimizer sgd":                           {"--momentum", "0.9"},
		"need evaluations: use --eval-data or --eval-split":          {"--load-best"},
		"--load-best needs an evaluation at every checkpoint":        {"--load-best", "--eval-data", text, "--save-steps", "3", "--eval-steps", "2"},
		"--eval-steps needs --eval-data or --eval-split":             {"--eval-steps", "2"},
		"--early-stopping-threshold needs":                           {"--early-stopping-threshold", "0.1"},
		"got --warmup-steps and --warmup-ratio, want one of them":    {"--warmup-steps", "2", "--warmup-ratio", "0.1"},
		"such as r=16,alpha=32,targets=q_proj+v_proj":                {"--lora", "r=2,targets=q_proj,v_proj"},
		"--early-stopping-patience -1":                               {"--early-stopping-patience", "-1"},
		"no checkpoint there, want a folder checkpoint-N of a run":   {"--resume", filepath.Join(folder, "checkpoint-7")},
		"such as --resume " + filepath.Join(folder, "checkpoint-10"): {"--resume", folder}, // by number, not by name
	} {
		var stderr bytes.Buffer
		status := run(slices.Concat([]string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out")}, flags), &bytes.Buffer{}, &stderr)
		if status != 2 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: got status %d and %q, want 2 and %q", flags, status, stderr.String(), want)
		}
	}
}

// TestAFinishedRunSaysSo: a run that is resumed after its last step learns nothing, and logs no loss.
func TestAFinishedRunSaysSo(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "2", "--save-steps", "1", "--lora", "r=2"}
	if status, _, stderr := command(t, args...); status != 0 || !strings.Contains(stderr, "train_loss=") {
		t.Fatalf("%d: %s", status, stderr)
	}
	want := weightsOf(t, out)
	status, _, stderr := command(t, args...)
	if status != 0 || !strings.Contains(stderr, "nothing is left to do") || strings.Contains(stderr, "train_loss=") {
		t.Errorf("%d: %s; want that nothing is left to do, and no loss", status, stderr)
	}
	if !bytes.Equal(weightsOf(t, out), want) {
		t.Error("the run changed its weights")
	}
}
