package gguf_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/internal/testenv"
)

// TestGGUFModels: files of the gguf package (scripts/make-gguf-models.py), one for each architecture and types in turn, give
// the tokens and the logits that transformers computes from the dequantised weights, in memory and streamed.
func TestGGUFModels(t *testing.T) {
	folder := "../../../testdata/gguf"
	if dir := os.Getenv("HEFT_GGUF_MODELS"); dir != "" {
		folder = dir
	}
	answersOfFolder(t, folder)
}

// TestConvertedGGUFModels: files of llama.cpp's converter (scripts/make-gguf-converted.py) give the tokens and the logits that
// transformers computes from the weights before their conversion.
func TestConvertedGGUFModels(t *testing.T) {
	folder := "../../../testdata/gguf/converted"
	if dir := os.Getenv("HEFT_GGUF_CONVERTED"); dir != "" {
		folder = dir
	}
	answersOfFolder(t, folder)
}

// answersOfFolder compares the answers of each file of a folder, which may be compressed with bzip2, with those of its JSON file.
func answersOfFolder(t *testing.T, folder string) {
	t.Helper()
	packed, err := filepath.Glob(filepath.Join(folder, "*.gguf.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := filepath.Glob(filepath.Join(folder, "*.gguf"))
	if err != nil || len(packed)+len(plain) == 0 {
		t.Fatalf("no files in %s: %v", folder, err)
	}
	for _, file := range append(packed, plain...) {
		name, _, _ := strings.Cut(filepath.Base(file), ".gguf")
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(file, ".bz2") {
				file = gguftest.Unzipped(t, file, name+".gguf")
			}
			answersOfGGUF(t, file, filepath.Join(folder, name+".json"))
		})
	}
}

// answersOfGGUF compares a file's answers, in memory and streamed, with those of a JSON file.
func answersOfGGUF(t *testing.T, file, golden string) {
	var cases []struct {
		IDs, Greedy []int32
		Logits      []float32
	}
	text, err := os.ReadFile(golden)
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"cpu", "disk"} {
		policy, err := devicemap.ParsePolicy(place)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dispatch.Open(file, dispatch.Options{DeviceMap: policy, Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128})
		if err != nil {
			t.Fatal(err)
		}
		if u := m.Unexpected(); len(u) > 0 {
			t.Errorf("unexpected tensors %v", u)
		}
		for i, c := range cases {
			got, logits := dispatchtest.Greedy(t, m, c.IDs, len(c.Greedy))
			if !slices.Equal(got, c.Greedy) {
				t.Errorf("%s, prompt %d: got tokens %v, want %v", place, i, got, c.Greedy)
			}
			worst := 0.0
			for k, want := range c.Logits {
				worst = max(worst, math.Abs(float64(logits[k]-want))/(1+math.Abs(float64(want))))
			}
			if !(worst < 2e-4) {
				t.Errorf("%s, prompt %d: logits are off by %g", place, i, worst)
			}
		}
		m.Close()
	}
}

// TestAdaptersOfTiledGGUF: an adapter changes a GGUF file whose rows have another order as it changes the model: value heads of
// Qwen 3.5, and the rows of queries and keys of Bamba.
func TestAdaptersOfTiledGGUF(t *testing.T) {
	for _, name := range []string{"qwen35-grouped", "bamba"} {
		t.Run(name, func(t *testing.T) { adaptedGGUF(t, "../../../testdata/gguf/converted", name) })
	}
}

func adaptedGGUF(t *testing.T, folder, name string) {
	dir := filepath.Join(folder, name+".adapter")
	var want struct {
		IDs    []int32
		Logits []float32
	}
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.Open(gguftest.Unzipped(t, filepath.Join(folder, name+".gguf.bz2"), "m.gguf"), dispatch.Options{
		Threads: 2, Variant: testenv.Variant(), Precision: dispatch.PrecisionHigh, Context: 128, Adapters: []dispatch.Adapter{{Name: "a", Dir: dir}}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s, err := m.NewAdaptedSequence("a")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{{Sequence: s, Tokens: want.IDs, PromptLen: len(want.IDs), Logits: dispatch.LogitsLast}}})
	if err != nil {
		t.Fatal(err)
	}
	_, got := out.Row(0)
	dispatchtest.Close(t, "logits with the adapter", got, want.Logits, 2e-4)
}
