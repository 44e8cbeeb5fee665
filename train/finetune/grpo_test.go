package finetune

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heftai/heft/internal/engine"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/sample"
	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
	"github.com/heftai/heft/train/model"
	"github.com/heftai/heft/train/tensor"
)

// TestMain makes the test binary a reward program if it is asked to be one.
func TestMain(m *testing.M) {
	if as := os.Getenv("HEFT_TEST_REWARD"); as != "" {
		actAs(as)
		return
	}
	os.Exit(m.Run())
}

// actAs is a program that rewards completions by their length, or does something wrong.
func actAs(kind string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var x struct {
			Completion string
			Record     struct{ Answer string }
		}
		if err := json.Unmarshal(in.Bytes(), &x); err != nil {
			fmt.Println(err)
			return
		}
		switch {
		case kind == "silent":
		case kind == "endless":
			for {
				fmt.Print("0000000000000000")
			}
		case kind == "words":
			fmt.Println("good")
		case kind == "quits":
			fmt.Fprintln(os.Stderr, "no license")
			return
		case x.Completion == x.Record.Answer:
			fmt.Println("null")
		default:
			fmt.Println(len(x.Completion))
		}
	}
}

func TestRewardCommand(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{
		"length": "", "silent": "flush the output after each line", "endless": "got a line of more than 256 bytes",
		"words": `completion 1 of 2: got the line "good", want a number`, "quits": "the program has ended",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("HEFT_TEST_REWARD", kind)
			timeout := time.Minute
			if kind == "silent" {
				timeout = 10 * time.Millisecond
			}
			p, err := startReward(program, timeout, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			got, err := p.reward(t.Context(), RewardPrompt{Text: "a", Record: json.RawMessage(`{"answer": "four"}`)}, []string{"three", "four"})
			if want == "" && (err != nil || len(got) != 2 || got[0] != 5 || !math.IsNaN(got[1])) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v and %v, want %q", got, err, want)
			}
		})
	}
}

func TestRewardRules(t *testing.T) {
	rs, err := parseRules([]string{"equals=a", "0.5*contains=a", "2*number=n", "-1*regex=^x"})
	if err != nil {
		t.Fatal(err)
	}
	prompt := RewardPrompt{Record: json.RawMessage(`{"a": "yes", "n": "so it is #### 1,200"}`)}
	got, err := rs.reward(t.Context(), prompt, []string{" yes\n", "oh yes", "2 and 1200.0.", "x"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{1.5, 0.5, 2, -1} {
		if got[i] != want {
			t.Errorf("completion %d: got %v, want %v", i, got[i], want)
		}
	}
	if _, err := rs.reward(t.Context(), RewardPrompt{Record: json.RawMessage(`{}`)}, []string{"a"}); err == nil || !strings.Contains(err.Error(), `--reward equals=a: the record has no field "a"`) {
		t.Errorf("got %v", err)
	}
	for _, bad := range [][]float64{{1}, {1, math.Inf(1)}} {
		if checkRewarded(bad, 2) == nil {
			t.Errorf("%v are taken as rewards of 2 completions", bad)
		}
	}
}

// TestGenerationUsesTheWeightsOfTheStep compares the log-probabilities of the engine's tokens with those of
// the model that trains, after its weights have changed twice.
func TestGenerationUsesTheWeightsOfTheStep(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	file := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(file, []byte(`{"prompt": "What is red?"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, adapter := range []string{"", "r=4"} {
		o := Defaults()
		o.Method, o.Output, o.LoRA, o.Threads, o.Sequence, o.MaxCompletionLength = "grpo", t.TempDir(), adapter, 1, 40, 12
		o.Reward = func(_ context.Context, _ RewardPrompt, c []string) ([]float64, error) {
			return make([]float64, len(c)), nil
		}
		j, err := newJob(dir, []string{file}, o)
		if err == nil {
			err = j.read()
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := j.student(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		r, err := s.newCompleter()
		if err != nil {
			t.Fatal(err)
		}
		first, err := j.data.set.(sampleSet[*rollout]).train.At(0)
		if err != nil {
			t.Fatal(err)
		}
		prompt := first.Prompt
		for step := range 3 {
			for _, p := range s.model.Parameters() {
				for i := range p.Data() {
					p.Data()[i] += 0.05 * float32(1+(i+step)%3)
				}
			}
			if err := r.load(step); err != nil {
				t.Fatal(err)
			}
			compareWithTape(t, s, r, prompt)
		}
	}
}

// compareWithTape generates a completion and computes its log-probabilities on a tape.
func compareWithTape(t *testing.T, s *student, r *completer, prompt []int32) {
	t.Helper()
	stream, err := r.engine.Submit(t.Context(), engine.Request{Prompt: prompt, MaxTokens: 12, Seed: 5, LogProbs: true, Adapter: r.adapter, Params: sample.Params{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	b := model.Batch{}
	for _, id := range prompt {
		b.IDs, b.Labels = append(b.IDs, int(id)), append(b.Labels, tensor.IgnoreIndex)
	}
	var got []float32
	for {
		e, err := stream.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e.Token != engine.NoToken {
			b.IDs, b.Labels, got = append(b.IDs, int(e.Token)), append(b.Labels, int(e.Token)), append(got, e.LogProb)
		}
	}
	b.Length = len(b.IDs)
	s.tape.NoGrad(func() {
		losses, err := s.model.Loss(s.tape, b, model.Options{CrossEntropyOptions: perToken})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range got {
			if want := -losses.Data()[len(prompt)-1+i]; !(math.Abs(float64(p-want)) <= 1e-4) {
				t.Errorf("%q: token %d: got log-probability %v, want %v", s.LoRA, i, p, want)
				break
			}
		}
	})
	if len(got) != 12 {
		t.Errorf("got %d tokens, want 12", len(got))
	}
}

// TestARecordWithoutTheFieldOfARewardIsFoundAtTheStart: it ended the run at the step that came to it, perhaps after
// hours.
func TestARecordWithoutTheFieldOfARewardIsFoundAtTheStart(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "preference")
	file := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(file, []byte("{\"prompt\": \"one \", \"answer\": 1}\n{\"prompt\": \"two \"}\n{\"prompt\": \"three \", \"answer\": [3]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for strict, want := range map[bool]string{true: `line 2: --reward number=answer: the record has no field "answer"`, false: ""} {
		o := Defaults()
		o.Method, o.Output, o.Threads, o.StrictData, o.RewardRules = "grpo", t.TempDir(), 1, strict, []string{"number=answer"}
		j, err := newJob(dir, []string{file}, o)
		if err == nil {
			err = j.read()
		}
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("strict: got %v, want %q", err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := j.data.set.(sampleSet[*rollout]).train.Len(); n != 1 {
			t.Errorf("%d records are used, want the one that has the field", n)
		}
	}
}
