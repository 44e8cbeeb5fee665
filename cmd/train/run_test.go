package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/finetune"
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/rng"
)

// TestMain lets the test binary be train, for tests that kill it.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_IS_TRAIN") != "" {
		if file := os.Getenv("TEST_KILLED_BY"); file != "" && os.Getenv("RANK") == "1" {
			go killedBy(file)
		}
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	if os.Getenv("TEST_IS_RANK") != "" {
		os.Exit(rankOfATest(os.Args[1:]))
	}
	os.Exit(m.Run())
}

const tinyConfig = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "hidden_size": 16, "intermediate_size": 24,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64, "torch_dtype": "float32"}`

// tinyModel is a folder with a model of random weights and a tokenizer.
func tinyModel(t *testing.T) string {
	t.Helper()
	return modelOf(t, tinyConfig)
}

// modelOf is tinyModel of another config. Tensors of the checkpoint other than parameters are
// not zero.
func modelOf(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	config, err := meta.ReadConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(skeleton)
	if err != nil {
		t.Fatal(err)
	}
	random := rng.New(3)
	for _, p := range m.Parameters() {
		if random.Normal(p.Data(), 0, 0.2); len(p.Shape()) < 2 {
			for i := range p.Data() {
				p.Data()[i] = 1
			}
		}
	}
	for _, values := range m.Buffers() {
		random.Normal(values, 0, 0.3)
	}
	acc, err := train.New(train.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := train.SaveModel(t.Context(), acc, m, dir, train.SaveModelOptions{}); err != nil {
		t.Fatal(err)
	}
	words, err := golden.Read(filepath.Join(golden.Module(t), "testdata/golden/text/tokenizers/tiny-bytebpe-512/tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"config.json": []byte(text), "tokenizer.json": words} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lessons is a JSONL file of n texts.
func lessons(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	for i := range n {
		if i%2 == 0 {
			fmt.Fprintf(&b, "{\"text\": \"number %d of %s\"}\n", i, strings.Repeat("many ", i%5*9)) // some longer than the model takes
		} else {
			fmt.Fprintf(&b, "{\"prompt\": \"what comes after %d? \", \"completion\": \"%d\"}\n", i, i+1)
		}
	}
	path := filepath.Join(t.TempDir(), "data.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func weightsOf(t *testing.T, dir string) []byte {
	t.Helper()
	name := "model.safetensors"
	if _, err := os.Stat(filepath.Join(dir, lora.ConfigFile)); err == nil {
		name = "adapter_model.safetensors"
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestARunThatIsKilledEndsTheSame kills the process, as by kill -9, at many points of the
// run, one after another, and lets it go on each time.
func TestARunThatIsKilledEndsTheSame(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 24)
	for name, flags := range map[string][]string{
		"full":     {"--gradient-accumulation-steps", "2", "--mixed-precision", "bf16"},
		"lora":     {"--lora", "r=4,alpha=8,dropout=0.2,targets=q_proj+down_proj"},
		"fp16":     {"--gradient-accumulation-steps", "2", "--mixed-precision", "fp16", "--recompute", "on"},
		"two rank": {"--num-processes", "2", "--weight-decay", "0.1", "--warmup-ratio", "0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{"run", "--model", dir, "--data", text, "--batch", "2", "--epochs", "3", "--save-steps", "1", "--threads", "1", "--log-steps", "1",
				"--lr", "0.01", "--lr-scheduler", "cosine"}, flags)
			once, often := filepath.Join(t.TempDir(), "once"), filepath.Join(t.TempDir(), "often")
			_, lines := child(t, slices.Concat(args, []string{"--output", once}), 0, 0)
			random := rand.New(rand.NewPCG(1, uint64(len(name))))
			kills := 0
			for i := range 6 {
				end := syscall.SIGKILL
				if i%4 == 3 {
					end = syscall.SIGTERM // which saves
				}
				if killed, _ := child(t, slices.Concat(args, []string{"--output", often}), 1+random.IntN(lines/2), end); killed {
					kills++
				}
			}
			unfinished := filepath.Join(often, ".heft-tmp-0123456789abcdef-"+lora.ConfigFile) // as death in the last write leaves it
			if err := os.WriteFile(unfinished, []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
			child(t, slices.Concat(args, []string{"--output", often}), 0, 0)
			if !bytes.Equal(weightsOf(t, once), weightsOf(t, often)) {
				t.Errorf("the weights differ after %d kills", kills)
			}
			if kills == 0 {
				t.Error("never killed")
			}
			if left, _ := filepath.Glob(filepath.Join(often, ".*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// A countdown keeps a process's errors and calls a function when they have so many lines more.
type countdown struct {
	text bytes.Buffer
	left int
	call func()
}

func (c *countdown) Write(b []byte) (int, error) {
	c.text.Write(b)
	for range bytes.Count(b, []byte("\n")) {
		if c.left--; c.left == 0 {
			c.call()
		}
	}
	return len(b), nil
}

// child runs train in a process of its own, and sends it a signal when it has written so many lines, unless that is 0. It
// returns whether that ended it, and the lines that it has written.
func child(t *testing.T, args []string, after int, end syscall.Signal) (killed bool, lines int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), "TEST_IS_TRAIN=1")
	errs := &countdown{left: after, call: func() { _ = cmd.Process.Signal(end) }}
	cmd.Stderr = errs
	err := cmd.Run()
	lines = bytes.Count(errs.text.Bytes(), []byte("\n"))
	var status *exec.ExitError
	if errors.As(err, &status) && after > 0 {
		if !status.Exited() {
			return true, lines
		}
		if status.ExitCode() == 143 { // it saved and stopped
			return false, lines
		}
	}
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &errs.text)
	}
	return false, lines
}

func TestRunLeavesAFolderThatOpens(t *testing.T) {
	dir, text, out := tinyModel(t), lessons(t, 8), filepath.Join(t.TempDir(), "out")
	args := []string{"run", dir, "--data", text, "--eval-data", text, "--output", out, "--max-steps", "3", "--batch", "3", "--dtype", "bfloat16",
		"--log-steps", "1", "--log-with", "jsonl,csv,curve", "--pack", "--sequence", "32", "--recompute", "on"}
	status, stdout, stderr := command(t, args...)
	if status != 0 || !strings.Contains(stdout, "3 steps") || !strings.Contains(stderr, "eval_loss") {
		t.Fatalf("%d: %s%s", status, stdout, stderr)
	}
	if !strings.Contains(stderr, "└──") {
		t.Errorf("no curve in the terminal:\n%s", stderr)
	}
	config, err := meta.ReadConfigFile(filepath.Join(out, "config.json"))
	if err != nil || config.DType != meta.BFloat16 {
		t.Fatalf("config: %v, %v", config, err)
	}
	ck, err := loader.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	skeleton, err := meta.New(config, ck)
	if err != nil {
		t.Fatal(err)
	}
	binding, err := loader.Bind(ck, skeleton)
	if err != nil {
		t.Fatal(err)
	}
	if _, dtype, ok := ck.Tensor("model.norm.weight"); !ok || dtype != meta.BFloat16 {
		t.Errorf("the norm is %v, %v", dtype, ok)
	}
	if _, err := model.Load(skeleton, binding); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"tokenizer.json", "metrics.jsonl", "loss.png", "checkpoint-3/trainer_state.json"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	// A checkpoint is a model's folder, too.
	next := filepath.Join(t.TempDir(), "next")
	if status, stdout, stderr := command(t, "run", "--model", filepath.Join(out, "checkpoint-3"), "--data", text, "--output", next, "--max-steps", "1"); status != 0 {
		t.Errorf("a run on from a checkpoint: %d: %s%s", status, stdout, stderr)
	}
	if config, err := meta.ReadConfigFile(filepath.Join(out, "checkpoint-3", "config.json")); err != nil || config.DType != meta.Float32 {
		t.Errorf("config of the checkpoint: %v, %v", config, err)
	}
	again, stdout, stderr := command(t, append(args, "--json")...)
	var r finetune.Result
	if err := json.Unmarshal([]byte(stdout), &r); again != 0 || err != nil || r.Steps != 3 || r.Loss != nil || r.Stopped || r.Output != out {
		t.Errorf("a run that is done: %d: %+v, %s%s", again, r, stdout, stderr)
	}
}

// lastAdapter is the adapter of a folder, read and written again.
func lastAdapter(t *testing.T, base, dir string) []byte {
	t.Helper()
	config, err := meta.ReadConfigFile(filepath.Join(base, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := lora.Open(dir, skeleton.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	again := t.TempDir()
	if err := a.Save(again); err != nil {
		t.Fatal(err)
	}
	return weightsOf(t, again)
}

// TestAnAdapterIsNotCalledTheModel: the last line of a run with --lora said that the model is in --output, and not how
// to serve it.
func TestAnAdapterIsNotCalledTheModel(t *testing.T) {
	for _, c := range []struct {
		o    finetune.Options
		want string
	}{
		{finetune.Options{}, "1 step in 2.0s; the model is in out: serve --model out\n"},
		{finetune.Options{LoRA: "r=2"}, "1 step in 2.0s; the adapter is in out: serve --model ORG/NAME --lora NAME=out\n"},
		{finetune.Options{LoRA: "r=2", Merge: true}, "1 step in 2.0s; the model is in out: serve --model out\n"},
		{finetune.Options{LoRA: "r=2", Method: "reward"}, "1 step in 2.0s; the adapter is in out\n"},
	} {
		var out bytes.Buffer
		run := runCmd{modelFlags: modelFlags{M: "ORG/NAME"}, Options: c.o}
		if err := run.report(&out, &finetune.Result{Output: "out", Steps: 1, Seconds: 2}); err != nil || out.String() != c.want {
			t.Errorf("%+v: got %q, %v, want %q", c.o, out.String(), err, c.want)
		}
	}
}

func TestRunWithAnAdapter(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	for _, merge := range []bool{false, true} {
		out := filepath.Join(t.TempDir(), "out")
		args := []string{"run", "--model", dir, "--data", text, "--output", out, "--max-steps", "2", "--lora", "r=2,alpha=4,rslora,targets=all-linear"}
		if merge {
			args = append(args, "--merge")
		}
		status, stdout, stderr := command(t, args...)
		if status != 0 {
			t.Fatalf("%d: %s%s", status, stdout, stderr)
		}
		if inside := filepath.Join(out, "checkpoint-2"); !bytes.Equal(weightsOf(t, inside), lastAdapter(t, dir, inside)) {
			t.Error("the adapter in the checkpoint is not what was trained")
		}
		b, err := os.ReadFile(filepath.Join(out, lora.ConfigFile))
		if merge != (err != nil) {
			t.Errorf("merged %v: %v", merge, err)
		}
		if merge {
			if bytes.Equal(weightsOf(t, out), weightsOf(t, dir)) {
				t.Error("nothing was merged")
			}
			continue
		}
		var config struct {
			R       int
			RSLoRA  bool   `json:"use_rslora"`
			Base    string `json:"base_model_name_or_path"`
			Targets any    `json:"target_modules"`
		}
		if err := json.Unmarshal(b, &config); err != nil || config.R != 2 || !config.RSLoRA || config.Base != dir {
			t.Errorf("%+v, %v", config, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	dir, text, out := tinyModel(t), lessons(t, 4), filepath.Join(t.TempDir(), "out")
	base := []string{"--model", dir, "--data", text, "--output", out, "--max-steps", "1"}
	if status, _, stderr := command(t, append([]string{"run"}, base...)...); status != 0 {
		t.Fatal(stderr)
	}
	with := func(more ...string) []string { return slices.Concat(base, more) }
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"another batch (then 8, now 2), seed (then 42, now 1): use --resume never to start again, or --resume " + filepath.Join(out, "checkpoint-1"): with("--seed", "1", "--batch", "2"),
		"got --batch 0":                            with("--batch", "0"),
		"--lora: got \"rank\", want one of":        with("--lora", "rank=3"),
		`--lora: r: got "x", want a whole number`:  with("--lora", "r=x"),
		"r is missing, want r of at least 1":       with("--lora", "alpha=3"), // named three settings
		"--lora: r: got -2, want at least 1":       with("--lora", "r=-2"),
		"--lora: alpha: got -1, want a number":     with("--lora", "r=2,alpha=-1"),
		"--lora: alpha: got NaN, want a number":    with("--lora", "r=2,alpha=nan"), // was trained
		"--lora: dropout: got 1, want at least 0":  with("--lora", "r=2,dropout=1"),
		"--merge needs --lora":                     with("--merge"),
		"there is no model nowhere":                {"--model", "nowhere", "--data", text, "--output", out},
		"is the folder of the model":               {"--model", dir, "--data", text, "--output", dir},
		"no tokens to learn":                       {"--model", dir, "--data", empty, "--output", out + "2"},
		"nothing.jsonl":                            {"--model", dir, "--data", "nothing.jsonl", "--output", out + "3"},
		"got no model, want --model":               {"--data", text, "--output", out},
		"got --learning-rate NaN, want at least 0": with("--lr", "nan"),
	} {
		status, _, stderr := command(t, append([]string{"run"}, args...)...)
		if status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%v: %d, %s, want %q", args, status, stderr, want)
		}
	}
	if status, _, stderr := command(t, slices.Concat([]string{"run", "--resume", "never"}, with("--seed", "1"))...); status != 0 {
		t.Errorf("started anew: %d, %s", status, stderr)
	}
}

func TestLaunchTakesTheConfiguration(t *testing.T) {
	t.Setenv("TEST_IS_TRAIN", "1")
	dir, text, out := tinyModel(t), lessons(t, 12), filepath.Join(t.TempDir(), "out")
	file := filepath.Join(t.TempDir(), "c.yaml")
	if status, _, stderr := command(t, "config", "--config-file", file, "--num-processes", "2", "--mixed-precision", "bf16"); status != 0 {
		t.Fatal(stderr)
	}
	status, _, stderr := command(t, "launch", "--config-file", file, "--model", dir, "--data", text, "--output", out, "--max-steps", "2", "--batch", "2")
	if status != 0 {
		t.Fatalf("%d: %s", status, stderr)
	}
	s := settingsOf(t, out)
	if s.Processes != 2 || s.MixedPrecision != "bf16" {
		t.Errorf("%+v", s)
	}
	if _, err := os.Stat(filepath.Join(out, "checkpoint-2", "random_states_1.json")); err != nil {
		t.Error(err)
	}
}

// TestWhatIsWrongIsSaidAtOnce: ids that the model has not showed in the first step that met
// them, without the text's place, and a loss that is no number not at all.
func TestWhatIsWrongIsSaidAtOnce(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	base := []string{"run", "--model", dir, "--batch", "2", "--max-steps", "3", "--threads", "1"}
	status, _, stderr := command(t, slices.Concat(base, []string{"--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--lr", "1e30", "--max-grad-norm", "0"})...)
	if status != 0 || strings.Count(stderr, "the loss is not finite") != 1 {
		t.Errorf("a loss that is no number: %d, %s", status, stderr)
	}
	words, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(words, &file); err != nil {
		t.Fatal(err)
	}
	file["added_tokens"] = append(file["added_tokens"].([]any), map[string]any{"id": 9999, "content": "<other>", "special": true,
		"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	words, err = json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	odd := filepath.Join(t.TempDir(), "odd.jsonl")
	for path, b := range map[string][]byte{filepath.Join(dir, "tokenizer.json"): words, odd: []byte("{\"text\": \"one\"}\n{\"text\": \"an <other> one\"}\n")} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	status, _, stderr = command(t, slices.Concat(base, []string{"--data", odd, "--output", filepath.Join(t.TempDir(), "out")})...)
	if status == 0 || !strings.Contains(stderr, "odd.jsonl: line 2: the tokenizer gives id") {
		t.Errorf("another model's tokenizer: %d, %s", status, stderr)
	}
}
