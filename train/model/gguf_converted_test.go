package model

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/gguf/gguftest"
	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// notAdapted is the first projection that an adapter of all of them does not fit, in files of dispatch/testdata/gguf/converted.
var notAdapted = map[string]string{"bloom": "self_attention.query_key_value", "falcon-h1": "feed_forward.gate_proj", "qwen3next": "linear_attn.in_proj_qkv", "glm4-images": "self_attn.q_proj"}

// TestConvertedGGUFModelsTrain: with a new adapter, a model of a file of llama.cpp's converter has the loss of the logits that
// transformers computes, and gradients.
func TestConvertedGGUFModelsTrain(t *testing.T) {
	files, err := filepath.Glob("../../dispatch/testdata/gguf/converted/*.gguf.bz2")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".gguf.bz2")
		t.Run(name, func(t *testing.T) { trainConverted(t, file, name) })
	}
}

func trainConverted(t *testing.T, file, name string) {
	var cases []struct {
		IDs, Greedy []int
		Logits      []float64
	}
	text, err := os.ReadFile(strings.TrimSuffix(file, ".gguf.bz2") + ".json")
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadGGUF(t, gguftest.Unzipped(t, file, name+".gguf"))
	if err != nil {
		t.Fatal(err)
	}
	m.SetAuxiliary(0)
	err = m.AddLoRA(LoRAConfig{R: 4, Alpha: 16}, rng.New(1))
	if want := notAdapted[name]; want != "" || err != nil {
		if want == "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("adapter: got %v, want %q", err, want)
		}
		return
	}
	c := cases[len(cases)-1]
	last := c.Greedy[0]
	b := Batch{IDs: append(append([]int{}, c.IDs...), last), Length: len(c.IDs) + 1}
	for range c.IDs {
		b.Labels = append(b.Labels, -100)
	}
	b.Labels = append(b.Labels, last)
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, Options{})
	if err == nil {
		err = tp.Backward(loss, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, x := range c.Logits {
		sum += math.Exp(x - c.Logits[last])
	}
	if want := math.Log(sum); !(math.Abs(float64(loss.Item())-want) <= 2e-4*(1+want)) {
		t.Errorf("got loss %v, want %v", loss.Item(), want)
	}
	moved := 0.0
	for _, p := range m.adapter.params {
		for _, g := range p.Grad() {
			moved += math.Abs(float64(g))
		}
	}
	if !(moved > 0) {
		t.Error("the adapter has no gradients")
	}
}
