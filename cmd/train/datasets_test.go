package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func fileOf(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEvaluationSets: each set of --eval-data has metrics of its own, by which the best weights are
// chosen.
func TestEvaluationSets(t *testing.T) {
	dir, text := tinyModel(t), lessons(t, 8)
	csv := fileOf(t, "some.csv", "prompt,completion\n\"What, then?\",This.\nAnd?,\"That,\nand this.\"\n")
	out := filepath.Join(t.TempDir(), "out")
	status, stdout, stderr := command(t, "run", "--model", dir, "--data", csv, "--output", out, "--max-steps", "2", "--json",
		"--eval-data", text, "--eval-data", "table="+csv, "--load-best", "--metric-for-best", "table_loss")
	if status != 0 {
		t.Fatalf("%d: %s%s", status, stdout, stderr)
	}
	var result struct{ Metrics map[string]float64 }
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatal(err)
	}
	m := result.Metrics
	if m["eval_loss"] == 0 || m["eval_table_loss"] == 0 || m["eval_table_perplexity"] == 0 || m["eval_loss"] == m["eval_table_loss"] {
		t.Errorf("metrics %v", m)
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--eval-data", text, "--eval-data", csv}, "want NAME=" + csv},
		{[]string{"--eval-data", "a=" + text, "--eval-data", "a=" + csv}, "two sets with the name a"},
		{[]string{"--eval-data", "a=" + text, "--load-best"}, "want one of a_entropy, a_loss, a_mean_token_accuracy, a_perplexity"},
		{[]string{"--data-weights", "1,2"}, "got 2 --data-weights for 1 files"},
		{[]string{"--data-weights", "-1"}, "want 0 or more"},
	} {
		args := append([]string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1"}, c.flags...)
		if status, _, stderr := command(t, args...); status == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d: %s; want %q", c.flags, status, stderr, c.want)
		}
	}
}
