package finetune

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
)

// TestGoldenRewardModels compares the training of reward models with TRL's RewardTrainer: losses by step within 1e-5,
// and the metrics. The result has the names of transformers' sequence classification.
func TestGoldenRewardModels(t *testing.T) {
	reward, preference := golden.Own(t, "train", "reward"), golden.Own(t, "train", "preference")
	var trace struct {
		Batch int
		Rate  float64
		Seed  uint64
		Cases []struct {
			Name, Data string
			Flags      []string
			Steps      []map[string]float64
		}
	}
	if !golden.JSON(t, filepath.Join(reward, "trace.json"), &trace) {
		t.Fatal("no fixtures of reward models")
	}
	for _, c := range trace.Cases {
		t.Run(c.Name, func(t *testing.T) {
			o := rewardOptions(t)
			o.Batch, o.LearningRate, o.Seed, o.MaxSteps, o.Shuffle = trace.Batch, trace.Rate, trace.Seed, len(c.Steps), false
			rewardFlags(t, &o, c.Flags)
			file := filepath.Join(preference, c.Data+".jsonl")
			if c.Data == "margins" {
				file = filepath.Join(reward, "margins.jsonl")
			}
			if _, err := Run(t.Context(), preference, []string{file}, o); err != nil {
				t.Fatal(err)
			}
			got := stepsOf(t, o.Output)
			if len(got) != len(c.Steps) {
				t.Fatalf("got %d steps, want %d", len(got), len(c.Steps))
			}
			for i, want := range c.Steps {
				for _, name := range slices.Sorted(maps.Keys(want)) {
					if v, ok := got[i][name].(float64); !ok || !(math.Abs(v-want[name]) <= 1e-5*max(1, math.Abs(want[name]))) {
						t.Errorf("step %d: %s: got %v, want %g", i+1, name, got[i][name], want[name])
					}
				}
			}
			if o.LoRA != "" {
				sameAdapter(t, o.Output, filepath.Join(reward, c.Name))
				return
			}
			checkScored(t, o.Output)
		})
	}
	golden.Count(t, "train/reward", len(trace.Cases))
}

// sameAdapter compares an adapter with PEFT's: its tensors, the head among them, and the task.
func sameAdapter(t *testing.T, got, want string) {
	t.Helper()
	x, err := loader.Open(got)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	y, err := loader.Open(filepath.Join(want, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	if !slices.Equal(slices.Sorted(x.Names()), slices.Sorted(y.Names())) {
		t.Fatalf("got tensors %v, want %v", slices.Sorted(x.Names()), slices.Sorted(y.Names()))
	}
	for w := range y.Tensors() {
		v, _ := x.Lookup(w.Name)
		a, errA := v.Bytes()
		b, errB := w.Bytes()
		if errA != nil || errB != nil || len(a) != len(b) {
			t.Fatalf("%s: got %d bytes and %d: %v, %v", w.Name, len(a), len(b), errA, errB)
		}
		for i := 0; i < len(a); i += 4 {
			p, q := math.Float32frombits(binary.LittleEndian.Uint32(a[i:])), math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			if !(math.Abs(float64(p-q)) <= 2e-4) {
				t.Fatalf("%s[%d]: got %v, want %v", w.Name, i/4, p, q)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(got, "adapter_config.json"))
	if err != nil || !bytes.Contains(b, []byte(`"SEQ_CLS"`)) || !bytes.Contains(b, []byte(`"score"`)) {
		t.Errorf("got the config %s, %v", b, err)
	}
}

// rewardFlags sets the options of a case's flags.
func rewardFlags(t *testing.T, o *Options, flags []string) {
	t.Helper()
	for i := 0; i < len(flags); i += 2 {
		v, err := strconv.ParseFloat(flags[i+1], 64)
		if err != nil && !strings.Contains(flags[i], "ora") {
			t.Fatal(err)
		}
		switch flags[i] {
		case "--lora":
			o.LoRA = flags[i+1]
		case "--dora":
			o.DoRA = true
		case "--center-rewards-coefficient":
			o.CenterRewardsCoefficient = v
		case "--gradient-accumulation-steps":
			o.GradientAccumulationSteps = int(v)
		default:
			t.Fatalf("unknown flag %s", flags[i])
		}
	}
}

func rewardOptions(t *testing.T) Options {
	o := Defaults()
	o.Method, o.Output, o.Sequence, o.LogSteps, o.Threads = "reward", filepath.Join(t.TempDir(), "out"), 64, 1, 1
	return o
}

// stepsOf returns the logged steps of the last checkpoint.
func stepsOf(t *testing.T, out string) []map[string]any {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(out, "checkpoint-*", "trainer_state.json"))
	if err != nil || len(states) == 0 {
		t.Fatalf("no checkpoint in %s: %v", out, err)
	}
	slices.SortFunc(states, func(a, b string) int { return len(a) - len(b) })
	b, err := os.ReadFile(states[len(states)-1])
	if err != nil {
		t.Fatal(err)
	}
	var state struct {
		History []map[string]any `json:"log_history"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(state.History, func(e map[string]any) bool { _, ok := e["loss"]; return !ok })
}

// checkScored checks that a folder is one of a model for sequence classification.
func checkScored(t *testing.T, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || !bytes.Contains(b, []byte(`"LlamaForSequenceClassification"`)) || !bytes.Contains(b, []byte(`"LABEL_0"`)) {
		t.Errorf("got the config %s, %v", b, err)
	}
	ck, err := loader.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	names := fmt.Sprint(slices.Collect(ck.Names()))
	if !strings.Contains(names, "score.weight") || strings.Contains(names, "lm_head") {
		t.Errorf("got tensors %s", names)
	}
	if left, err := os.Stat(filepath.Join(dir, scoredDir)); err == nil {
		t.Errorf("the run left %s", left.Name())
	}
}

// TestRewardModelsContinue compares a run on two ranks that is stopped with one that is not.
func TestRewardModelsContinue(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	var weights [][]byte
	for _, stopped := range []bool{false, true} {
		o := rewardOptions(t)
		o.Batch, o.NumProcesses, o.MaxSteps, o.SaveSteps, o.SaveTotalLimit, o.EvalData = 2, 2, 4, 2, 0, []string{filepath.Join(dir, "chat.jsonl")}
		for range map[bool]int{false: 1, true: 2}[stopped] {
			r, err := Run(t.Context(), dir, []string{filepath.Join(dir, "text.jsonl")}, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := r.Metrics["eval_accuracy"]; !ok {
				t.Errorf("got metrics %v, want eval_accuracy", r.Metrics)
			}
			if err := os.RemoveAll(filepath.Join(o.Output, "checkpoint-4")); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(filepath.Join(o.Output, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		weights = append(weights, b)
	}
	if !bytes.Equal(weights[0], weights[1]) {
		t.Error("the run that continued ended with other weights")
	}
}

// TestRewardModelsScoredCutAnswers: pairs longer than --sequence were cut, so that the score was that of a part of an
// answer. They are skipped, as in TRL.
func TestRewardModelsScoredCutAnswers(t *testing.T) {
	o := rewardOptions(t)
	o.Sequence, o.StrictData, o.MaxSteps = 20, true, 1
	file := filepath.Join(t.TempDir(), "pairs.jsonl")
	line := `{"prompt": "a", "chosen": "b", "rejected": "` + strings.Repeat("many words ", 20) + `"}` + "\n"
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), golden.Own(t, "train", "preference"), []string{file}, o)
	if want := "tokens, want at most --sequence 20"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}
