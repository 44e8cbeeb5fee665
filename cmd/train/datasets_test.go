package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/train/data"
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
		{[]string{"--eval-data", "a=" + text, "--load-best"}, "such as a_loss"},
		{[]string{"--data-weights", "1,2"}, "got 2 --data-weights for 1 files"},
		{[]string{"--data-weights", "-1"}, "want 0 or more"},
	} {
		args := append([]string{"run", "--model", dir, "--data", text, "--output", filepath.Join(t.TempDir(), "out"), "--max-steps", "1"}, c.flags...)
		if status, _, stderr := command(t, args...); status == 0 || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: %d: %s; want %q", c.flags, status, stderr, c.want)
		}
	}
}

// TestDataWeights: a file of weight w is w times in an epoch, the same part of it for the same seed.
func TestDataWeights(t *testing.T) {
	sets := map[string]data.Slice[int]{"a": {1, 2, 3, 4}, "b": {10, 20}, "c": {}}
	read := func(path string) (data.Slice[int], error) { return sets[path], nil }
	count := func(weights ...float64) map[int]int {
		j := &job{runCmd: &runCmd{}}
		j.Data, j.DataWeights, j.Seed = []string{"a", "b", "c"}, weights, 3
		all, err := weighted(j, read)
		if err != nil {
			t.Fatal(err)
		}
		times := map[int]int{}
		for _, v := range all {
			times[v]++
		}
		return times
	}
	sum := func(times map[int]int, values ...int) (n int) {
		for _, v := range values {
			n += times[v]
		}
		return n
	}
	if times := count(); len(times) != 6 || sum(times, 1, 2, 3, 4, 10, 20) != 6 {
		t.Errorf("without weights: %v", times)
	}
	times := count(2.5, 0.5, 3)
	if sum(times, 1, 2, 3, 4) != 10 || sum(times, 10, 20) != 1 || min(times[1], times[2], times[3], times[4]) != 2 {
		t.Errorf("weights 2.5 and 0.5: %v", times)
	}
	if again := count(2.5, 0.5, 3); sum(again, 1, 2) != sum(times, 1, 2) {
		t.Errorf("%v, then %v", times, again)
	}
	if times := count(0, 1, 1); sum(times, 1, 2, 3, 4) != 0 || sum(times, 10, 20) != 2 {
		t.Errorf("weight 0: %v", times)
	}
}
