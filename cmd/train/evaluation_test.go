package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// groupsFile is a JSONL file of prompts with completions and named rewards.
func groupsFile(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": \"after %d? \", \"completions\": [\"%d\", \"no\"], \"rewards\": {\"right\": [1, 0], \"short\": [0.5, 1]}}\n", i, i+1)
	}
	return fileOf(t, "groups.jsonl", b.String())
}

// TestOnlyTextsHavePerplexity evaluates by each method: exp(loss) means something for texts alone. The other
// methods have the metrics of TRL.
func TestOnlyTextsHavePerplexity(t *testing.T) {
	dir := tinyModel(t)
	pairs, groups, text := pairsFile(t, 4), groupsFile(t, 4), lessons(t, 4)
	compared := []string{"rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected"}
	for method, c := range map[string]struct {
		file string
		want []string
	}{
		"sft":    {text, []string{"entropy", "mean_token_accuracy", "perplexity"}},
		"dpo":    {pairs, append(slices.Clone(compared), "rewards/accuracies")},
		"orpo":   {pairs, append(slices.Clone(compared), "rewards/accuracies", "nll_loss", "log_odds_ratio", "log_odds_chosen")},
		"kto":    {pairs, append(slices.Clone(compared), "kl")},
		"reward": {pairs, []string{"accuracy", "margin", "min_reward", "mean_reward", "max_reward"}},
		"grpo":   {groups, []string{"reward", "reward_std", "entropy", "rewards/right/mean", "rewards/short/std", "completions/min_length", "completions/max_length"}},
	} {
		t.Run(method, func(t *testing.T) {
			r := trained(t, "--model", dir, "--data", c.file, "--eval-data", c.file, "--output", filepath.Join(t.TempDir(), "out"), "--method", method,
				"--max-steps", "1", "--batch", "8", "--lora", "r=2", "--metric-for-best", c.want[len(c.want)-1])
			for _, name := range append(c.want, "loss") {
				if _, ok := r.Metrics["eval_"+name]; !ok {
					t.Errorf("there is no eval_%s: %v", name, r.Metrics)
				}
			}
			if _, ok := r.Metrics["eval_perplexity"]; ok != (method == "sft") {
				t.Errorf("eval_perplexity is there: %t; %v", ok, r.Metrics)
			}
		})
	}
}

// TestAMisspelledMetricForBestFailsAtTheStart: it failed at the first evaluation, behind a whole epoch.
func TestAMisspelledMetricForBestFailsAtTheStart(t *testing.T) {
	dir, pairs := tinyModel(t), pairsFile(t, 2)
	for want, flags := range map[string][]string{
		"--metric-for-best perplexty: evaluations have no such metric, want one of entropy, loss, mean_token_accuracy, perplexity; did you mean perplexity?": {"--metric-for-best", "perplexty"},
		"; did you mean rewards/margins?":                                                   {"--method", "dpo", "--metric-for-best", "eval_rewards/margin"},
		"want one of accuracy, loss, margin":                                                {"--method", "reward", "--metric-for-best", "perplexity"},
		"want one of a_entropy, a_loss, a_mean_token_accuracy, a_perplexity, entropy, loss": {"--eval-data", pairs, "--eval-data", "a=" + pairs, "--metric-for-best", "b_loss"},
		"; did you mean rewards/command/mean?":                                              {"--method", "grpo", "--reward-command", "cat", "--metric-for-best", "rewards/comand/mean"},
		"no such metric, want one of clip_ratio/hig":                                        {"--method", "grpo", "--reward-command", "cat", "--metric-for-best", "kl"},
	} {
		args := slices.Concat([]string{"run", "--model", dir, "--data", filepath.Join(dir, "not read"), "--output", filepath.Join(t.TempDir(), "out")}, flags)
		if status, _, stderr := command(t, args...); status != 2 || !strings.Contains(stderr, want) {
			t.Errorf("%q: got status %d and %s, want 2 and %q", flags, status, stderr, want)
		}
	}
	groups := groupsFile(t, 2) // whose rewards are known when they are read
	status, _, stderr := command(t, "run", "--model", dir, "--data", groups, "--output", filepath.Join(t.TempDir(), "out"), "--method", "grpo", "--metric-for-best", "rewards/rihgt/mean")
	if want := "did you mean rewards/right/mean?"; status != 2 || !strings.Contains(stderr, want) || strings.Contains(stderr, "step=") {
		t.Errorf("got status %d and %s, want 2 and %q", status, stderr, want)
	}
}

// TestSetsWithNamesAloneEvaluate: without a set of no name there is no eval_loss, and nothing that needs
// one. The first evaluation failed.
func TestSetsWithNamesAloneEvaluate(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	r := trained(t, "--model", dir, "--data", text, "--eval-data", "a="+text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1")
	if r.Metrics["eval_a_loss"] == 0 {
		t.Errorf("got metrics %v, want eval_a_loss", r.Metrics)
	}
}

// TestErrorsNameTheProgramOnce walks errors of runs that fail in different layers: each began train: train:.
func TestErrorsNameTheProgramOnce(t *testing.T) {
	dir, text, pairs, groups := tinyModel(t), lessons(t, 4), pairsFile(t, 4), groupsFile(t, 4)
	file := fileOf(t, "file", "")
	for want, flags := range map[string][]string{
		"--data " + dir + "/none: no such file or directory":      {"--data", dir + "/none"},
		"--eval-data " + dir + "/none: no such file or directory": {"--data", text, "--eval-data", "a=" + dir + "/none"},
		"checkpoint":       {"--data", text, "--resume", dir},
		"want finite":      {"--data", text, "--num-processes", "2", "--batch", "2", "--optimizer", "sgd", "--lr", "1e38", "--max-grad-norm", "0", "--lr-scheduler", "reduce_lr_on_plateau", "--eval-steps", "1", "--eval-data", "a=" + text, "--metric-for-best", "loss"},
		"want one of dpo":  {"--data", pairs, "--method", "ppo"},
		"beta":             {"--data", pairs, "--method", "dpo", "--beta", "0"},
		"desirable-weight": {"--data", pairs, "--method", "kto", "--desirable-weight", "-1"},
		"epsilon":          {"--data", groups, "--method", "grpo", "--epsilon", "-1"},
		"reward":           {"--data", groups, "--method", "grpo", "--reward-command", "false", "--max-steps", "1", "--num-processes", "2"},
		"metrics":          {"--data", text, "--log-with", "jsonl", "--logging-dir", filepath.Join(file, "below")},
		"schedule":         {"--data", text, "--lr-scheduler", "polynomial", "--lr-scheduler-kwargs", `{"lr_end": 9}`},
	} {
		args := slices.Concat([]string{"run", "--model", dir, "--output", filepath.Join(t.TempDir(), "out"), "--threads", "1", "--max-steps", "2"}, flags)
		status, _, stderr := command(t, args...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		last := lines[len(lines)-1]
		t.Logf("%s: %s", want, last)
		if status == 0 || strings.Count(" "+last, " train: ") != 1 || !strings.HasPrefix(last, "train: ") {
			t.Errorf("%q: got status %d and %s, want an error that names the program once", flags, status, last)
		}
	}
}

// TestDataThatIsAFolderIsNamed: it was "read DIR: is a directory".
func TestDataThatIsAFolderIsNamed(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 4)
	for _, flags := range [][]string{{"--data", dir}, {"--data", text, "--eval-data", dir}} {
		args := append([]string{"run", "--model", dir, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1"}, flags...)
		if status, _, stderr := command(t, args...); status != 2 || !strings.Contains(stderr, dir+": got a folder, want a JSONL, CSV or Parquet file") {
			t.Errorf("%q: got status %d and %s", flags, status, stderr)
		}
	}
}
