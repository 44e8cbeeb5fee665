package model_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/testenv"
	"github.com/heftai/heft/meta"
)

// bound is a skeleton of the checkpoint in dir on the cpu: the model, or its module for multi-token prediction.
func bound(t *testing.T, dir string, next bool) *dispatch.Model {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	if next {
		var err error
		if skeleton, err = meta.NewNext(skeleton.Config, checkpoint); err != nil {
			t.Fatal(err)
		}
	}
	m, err := dispatch.New(skeleton, checkpoint, devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}),
		dispatch.Options{Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func pass(t *testing.T, m *dispatch.Model, r dispatch.BatchRow) *dispatch.Logits {
	t.Helper()
	out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{r}})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestModulesForMultiTokenPrediction: logits of the module are transformers', from the hidden states of the
// model and from its own, whether the tokens come together or one by one.
func TestModulesForMultiTokenPrediction(t *testing.T) {
	for _, name := range []string{"deepseek_v3", "glm4_moe", "glm4_moe_lite", "qwen3_next", "qwen3_5", "qwen3_5_moe", "mellum", "recall", "deepseek_v32"} {
		dir := golden.OwnMTP(t, name)
		t.Run(name, func(t *testing.T) { answersOfModule(t, dir, filepath.Join(dir, "cases.json")) })
	}
}

// TestModulesOfGGUFFiles: so are those of modules in GGUF files that llama.cpp's converter has made (scripts/make-gguf-mtp.py).
func TestModulesOfGGUFFiles(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Module(t), "dispatch", "testdata", "gguf", "mtp", "*.gguf.bz2"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".gguf.bz2")
		t.Run(name, func(t *testing.T) {
			answersOfModule(t, gguftest.Unzipped(t, file, name+".gguf"), filepath.Join(golden.Module(t), "testdata", "mtp", name, "cases.json"))
		})
	}
}

// answersOfModule compares the logits of a checkpoint's module with those of a JSON file.
func answersOfModule(t *testing.T, dir, file string) {
	var f struct {
		Tolerance float64 `json:"tolerance"`
		Cases     []struct {
			IDs    []int32     `json:"input_ids"`
			Guess  int32       `json:"guess"`
			Logits [][]float64 `json:"logits"`
		} `json:"cases"`
	}
	golden.JSON(t, file, &f)
	m, next := bound(t, dir, false), bound(t, dir, true)
	if next.Joins() == 0 || m.Joins() != 0 {
		t.Fatalf("the module joins states of %d, the model of %d", next.Joins(), m.Joins())
	}
	if u := m.Unexpected(); len(u) > 0 {
		t.Errorf("unexpected tensors %v", u)
	}
	for _, c := range f.Cases {
		s := m.NewSequence()
		known := len(c.IDs) - 1
		states := slices.Clone(pass(t, m, dispatch.BatchRow{Sequence: s, Tokens: c.IDs[:known], Hidden: dispatch.HiddenAll}).Hidden(0))
		s.Free()
		for _, step := range []int{known, 1} {
			var got, carried []float32
			s := next.NewSequence()
			for at := 0; at < known; at += step {
				out := pass(t, next, dispatch.BatchRow{Sequence: s, Tokens: c.IDs[at+1:][:step], PromptLen: 1,
					Before: states[at*next.Joins():][:step*next.Joins()], Logits: dispatch.LogitsAll, Hidden: dispatch.HiddenLast})
				_, values := out.Row(0)
				got, carried = append(got, values...), slices.Clone(out.Hidden(0))
			}
			_, values := pass(t, next, dispatch.BatchRow{Sequence: s, Tokens: []int32{c.Guess}, PromptLen: 1, Before: carried, Logits: dispatch.LogitsLast}).Row(0)
			s.Free()
			if want := slices.Concat(c.Logits...); !allNear(append(got, values...), want, f.Tolerance) {
				t.Errorf("%d tokens in passes of %d: logits\n%v\nwant\n%v", known, step, got, want)
			}
		}
	}
	if len(f.Cases) == 0 {
		t.Error("no case")
	}
	s := next.NewSequence()
	defer s.Free()
	_, err := next.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: []int32{1}, Logits: dispatch.LogitsLast}}})
	if err == nil || !strings.Contains(err.Error(), "hidden states") {
		t.Errorf("a row without a hidden state: %v", err)
	}
}

func allNear(got []float32, want []float64, tolerance float64) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if !(math.Abs(float64(got[i])-want[i]) <= tolerance*(1+math.Abs(want[i]))) {
			return false
		}
	}
	return true
}
