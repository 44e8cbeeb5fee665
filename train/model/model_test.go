package model

import (
	"math"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// skeleton makes a tiny tree of a config's further fields.
func skeleton(t *testing.T, fields string) *meta.Model {
	t.Helper()
	cfg, err := meta.ReadConfig([]byte(`{"vocab_size": 20, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
		"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, ` + fields + `}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTreesWithoutRules(t *testing.T) {
	for want, fields := range map[string]string{
		"sinks":                   `"model_type": "gpt_oss", "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2`,
		"soft-capped scores":      `"model_type": "gemma2", "head_dim": 8, "attn_logit_softcapping": 50.0`,
		"neighbouring pairs":      `"model_type": "cohere"`,
		"layers.0.self_attn: ":    `"model_type": "cohere"`,
		"model: model.layers.0.s": `"model_type": "cohere"`,
	} {
		if _, err := New(skeleton(t, fields)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", fields, err, want)
		}
	}
}

func TestBadBatches(t *testing.T) {
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]Batch{
		"are no sequences of 3":  {IDs: []int{1, 2}, Length: 3},
		"are no sequences of 0":  {IDs: []int{1, 2}},
		"and 1 labels":           {IDs: []int{1, 2}, Labels: []int{1}, Length: 2},
		"the model takes 16":     {IDs: make([]int, 17), Length: 17},
		"id 20 at position 1":    {IDs: []int{1, 20}, Length: 2},
		"label 20 at position 0": {IDs: []int{1, 2}, Labels: []int{1, 20}, Length: 2},
	} {
		tp := tensor.NewTape(tensor.Options{})
		if _, err := m.Loss(tp, b, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestHalfIsExact(t *testing.T) {
	for bits, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24), 0x7bff: 65504, 0x3555: 0.333251953125} {
		if got := half(bits); got != want {
			t.Errorf("%#04x is %g, want %g", bits, got, want)
		}
	}
	if v := half(0x7c01); v == v {
		t.Errorf("a NaN becomes %g", v)
	}
	if v := half(0xfc00); !math.IsInf(float64(v), -1) {
		t.Errorf("-Inf becomes %g", v)
	}
}
