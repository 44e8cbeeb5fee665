package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// TestOptionsOfOtherTrainersNameTheNearestFlag: names of TRL, axolotl and LLaMA-Factory were unknown flags, without what to use.
func TestOptionsOfOtherTrainersNameTheNearestFlag(t *testing.T) {
	parser, err := kong.New(new(cli), kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	flags := map[string]bool{}
	for _, c := range parser.Model.Children {
		if c.Name == "run" {
			for _, group := range c.AllFlags(false) {
				for _, f := range group {
					for _, name := range append([]string{f.Name}, f.Aliases...) {
						flags["--"+name] = true
					}
				}
			}
		}
	}
	for name, hint := range hints {
		if flags[name] {
			t.Errorf("%s is a flag: its hint %q is never seen", name, hint)
		}
		for _, flag := range regexp.MustCompile(`--[a-z0-9-]+`).FindAllString(hint, -1) {
			if flag != "--data" && !flags[strings.Replace(flag, "--no-", "--", 1)] {
				t.Errorf("%s: the hint %q names %s, which is no flag", name, hint, flag)
			}
		}
	}
	for arg, want := range map[string]string{
		"--per_device_train_batch_size=2": "use --batch N",
		"--load-in-4bit":                  "use --quantize nf4 with --lora",
		"--val_set_size=0.1":              "use --eval-split 0.1",
	} {
		if status, _, stderr := command(t, "run", "--model", "m", "--data", "d", "--output", t.TempDir(), arg); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", arg, status, stderr)
		}
	}
	file := filepath.Join(t.TempDir(), "axolotl.yaml")
	if err := os.WriteFile(file, []byte("base_model: m\ndatasets:\n  - path: d\n    type: alpaca\nlora_r: 8\nlora_alpha: 16\noptimizer: adamw_bnb_8bit\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	status, _, stderr := command(t, "run", "--config", file)
	for _, want := range []string{"base_model is not a flag of train: use --model DIR", "datasets is not", "lora_alpha, lora_r are not flags of train: use --lora r=16"} {
		if status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("status %d, %s; want %q", status, stderr, want)
		}
	}
}

// TestUnderscoresOfTRLWereUnknown: --learning_rate is --learning-rate.
func TestUnderscoresOfTRLWereUnknown(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	if status, _, stderr := command(t, "run", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max_steps=1", "--learning_rate", "1e-4"); status != 0 {
		t.Errorf("status %d: %s", status, stderr)
	}
}
