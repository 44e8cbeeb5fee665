package finetune

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// TestTotalRewards sums as TRL: NaN does not count, and a completion without a reward has none.
func TestTotalRewards(t *testing.T) {
	nan := math.NaN()
	got := total(map[string][]float64{"a": {1, nan, nan, 2}, "b": {4, 6, nan, nan}}, map[string]float64{"b": 0.5}, 4)
	if !slices.EqualFunc(got, []float64{3, 3, nan, 2}, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }) {
		t.Errorf("got %v", got)
	}
}

// TestSeveralRewards generates completions that a rule, two functions and a program reward together: each is logged by
// its name, and the weighted sum counts.
func TestSeveralRewards(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	file := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(file, []byte("{\"prompt\": \"one \", \"answer\": 1}\n{\"prompt\": \"two \", \"answer\": 2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	constant := func(v float64) RewardFunc {
		return func(_ context.Context, _ RewardPrompt, completions []string) ([]float64, error) {
			return slices.Repeat([]float64{v}, len(completions)), nil
		}
	}
	o := Defaults()
	o.Method, o.Output, o.MaxSteps, o.Batch, o.LogSteps, o.Threads, o.LoRA = "grpo", filepath.Join(t.TempDir(), "out"), 1, 2, 1, 1, "r=2"
	o.NumGenerations, o.MaxCompletionLength, o.RewardRules = 3, 4, []string{"2*regex="}
	if err := o.Check([]string{file}); err == nil {
		t.Error("a rule without a pattern was accepted")
	}
	o.RewardRules = []string{"2*regex=^"}
	o.Reward, o.RewardFuncs, o.RewardWeights = constant(3), map[string]RewardFunc{"style": constant(5), "none": constant(math.NaN())}, []string{"style=0.5", "function=-1"}
	if _, err := Run(t.Context(), dir, []string{file}, o); err != nil {
		t.Fatal(err)
	}
	step := stepsOf(t, o.Output)[0]
	for name, want := range map[string]float64{"rewards/regex=^/mean": 1, "rewards/function/mean": 3, "rewards/style/mean": 5, "rewards/style/std": 0, "reward": 2*1 - 3 + 0.5*5} {
		if got, ok := step[name].(float64); !ok || got != want {
			t.Errorf("%s: got %v, want %v of %v", name, step[name], want, fmt.Sprint(step))
		}
	}
	if _, ok := step["rewards/none/mean"]; ok {
		t.Error("a reward that never counts has a mean")
	}
	o.RewardFuncs["bad"] = constant(math.Inf(1))
	o.Output = filepath.Join(t.TempDir(), "out")
	if _, err := Run(t.Context(), dir, []string{file}, o); err == nil || !strings.Contains(err.Error(), "reward bad: ") {
		t.Errorf("an infinite reward: %v, want its name", err)
	}
}
