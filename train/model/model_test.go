package model

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

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

func TestBadBatches(t *testing.T) {
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]Batch{
		"want sequences of 3":    {IDs: []int{1, 2}, Length: 3},
		"want sequences of 0":    {IDs: []int{1, 2}},
		"and 1 labels":           {IDs: []int{1, 2}, Labels: []int{1}, Length: 2},
		"want at most 16":        {IDs: make([]int, 17), Length: 17},
		"id 20 at position 1":    {IDs: []int{1, 20}, Length: 2},
		"label 20 at position 1": {IDs: []int{1, 2}, Labels: []int{1, 20}, Length: 2},
	} {
		tp := tensor.NewTape(tensor.Options{})
		if _, err := m.Loss(tp, b, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestModelsAreCollected: nothing of a model's passes keeps it alive.
func TestModelsAreCollected(t *testing.T) {
	m, err := New(skeleton(t, `"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": true`))
	if err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, someBatch(1, 2, 3), Options{})
	if err == nil {
		err = tp.Backward(loss, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := m.sessions
	for range 3 { // neither reversed nor reset
		if _, err := m.Loss(tensor.NewTape(tensor.Options{}), someBatch(1, 2, 3), Options{}); err != nil {
			t.Fatal(err)
		}
	}
	gone := weak.Make(m)
	m = nil
	for range 100 { // cleanups run concurrently
		runtime.GC()
		all.mu.Lock()
		done := gone.Value() == nil && len(all.lent) == 0 && all.retired && len(all.free) == 0
		all.mu.Unlock()
		if done {
			runtime.KeepAlive(tp)
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("the model is there: %v; %d sessions are lent, %d free", gone.Value() != nil, len(all.lent), len(all.free))
}
