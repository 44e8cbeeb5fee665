package finetune

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/model"
)

// skeletonOf builds a llama of 271 million parameters without weights.
func skeletonOf(t *testing.T) *meta.Model {
	t.Helper()
	config, err := meta.ReadConfig([]byte(`{"model_type": "llama", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 2816,
		"num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16}`))
	if err != nil {
		t.Fatal(err)
	}
	m, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestTrainingStateBeyondTheControlGroupWarns: the kernel ended such runs without a message.
func TestTrainingStateBeyondTheControlGroupWarns(t *testing.T) {
	m := skeletonOf(t)
	const parameters = 271_090_688
	for _, c := range []struct {
		optimizer string
		bytes     int64 // per parameter
	}{{"adamw", 16}, {"adam", 16}, {"adamw8bit", 10}, {"adafactor", 8}, {"adagrad", 12}, {"muon", 12}, {"rmsprop", 12}, {"sgd", 8}, {"rmsprop with momentum", 16}, {"sgd with momentum", 12}} {
		var log bytes.Buffer
		name, momentum := strings.CutSuffix(c.optimizer, " with momentum")
		s := &student{job: &job{Options: &Options{Method: "sft", Optimizer: name}, log: slog.New(slog.NewTextHandler(&log, nil))}}
		if momentum {
			s.Momentum = 0.9
		}
		need := parameters*c.bytes + programBytes
		for _, limit := range []int64{0, need, 1 << 40} {
			if err := s.warnState(dispatch.Host{LimitBytes: limit}, m, nil); err != nil || log.Len() > 0 {
				t.Errorf("%s: a limit of %d bytes: %v, warns: %s", c.optimizer, limit, err, &log)
			}
		}
		if err := s.warnState(dispatch.Host{LimitBytes: need - 1}, m, nil); err != nil || !strings.Contains(log.String(), "--plugin gemini --max-memory cpu=SIZE") {
			t.Errorf("%s: a limit of %d bytes: %v, got log %q", c.optimizer, need-1, err, &log)
		}
	}
}

func TestFrozenWeightsHaveNoTrainingState(t *testing.T) {
	var log bytes.Buffer
	s := &student{job: &job{Options: &Options{Method: "sft", Optimizer: "adamw"}, log: slog.New(slog.NewTextHandler(&log, nil))}}
	host := dispatch.Host{LimitBytes: 2*32000*1024*16 + programBytes} // for the embeddings and the head
	frozen := func(path string) bool { return !strings.Contains(path, "embed") && !strings.Contains(path, "lm_head") }
	if err := s.warnState(host, skeletonOf(t), frozen); err != nil || log.Len() > 0 {
		t.Errorf("%v, got log %s", err, &log)
	}
}

// TestAControlGroupBelowTheMinimumWarns: the size that the warning names is enough to be silent.
func TestAControlGroupBelowTheMinimumWarns(t *testing.T) {
	var log bytes.Buffer
	s := &student{job: &job{Options: &Options{}, log: slog.New(slog.NewTextHandler(&log, nil))}}
	const bytes = 129 << 20
	s.warnGroup(dispatch.Host{LimitBytes: 160 << 20}, bytes, "use a smaller --batch")
	if !strings.Contains(log.String(), "use a smaller --batch") || !strings.Contains(log.String(), `minimum="161 MiB"`) {
		t.Errorf("got log %q", &log)
	}
	log.Reset()
	if s.warnGroup(dispatch.Host{LimitBytes: 161 << 20}, bytes, ""); log.Len() > 0 {
		t.Errorf("with the minimum: got log %s", &log)
	}
}

// TestTheMinimumOfLoRACountsTheAdapter: --max-memory and the minimum left the adapter's gradients and
// the optimizer's state out, so that a run that fitted was killed in its control group.
func TestTheMinimumOfLoRACountsTheAdapter(t *testing.T) {
	m := skeletonOf(t)
	s := &student{job: &job{Options: &Options{Method: "sft", Optimizer: "adamw"}, here: 2, memory: 500 << 20}}
	got, err := s.adapterBytes(m, model.LoRAConfig{R: 4, AllLinear: true})
	if want := int64(16 * 16 * 4 * (4*2048 + 3*3840)); err != nil || got != want {
		t.Fatalf("got %d bytes, %v, want %d", got, err, want)
	}
	if left := s.baseMemory(dispatch.Host{}, got); left != 250<<20-got {
		t.Errorf("weights get %d bytes, want the rest of a rank's half of the limit", left)
	}
	if _, err := s.adapterBytes(m, model.LoRAConfig{R: 4, Targets: []string{"qproj"}}); err == nil {
		t.Error("a target that no module has: want an error")
	}
}

// TestLogitsTakeASixteenthOfTheLimit: with a base within a third of its weights, logits of all rows took a tenth of
// the memory.
func TestLogitsTakeASixteenthOfTheLimit(t *testing.T) {
	m := skeletonOf(t) // a vocabulary of 32,000
	for _, c := range []struct {
		memory int64
		lora   string
		save   []string
		rows   int64
	}{{100 << 20, "r=4", nil, 32}, {1 << 30, "r=4", nil, 262}, {0, "r=4", nil, 0}, {140 << 20, "", nil, 0},
		{140 << 20, "r=4", []string{"lm_head"}, 0}, {140 << 20, "r=4,targets=q_proj+lm_head", nil, 0}, {140 << 20, "r=4,targets=q_proj+up_proj", nil, 35}} {
		s := &student{job: &job{Options: &Options{Method: "sft", LoRA: c.lora, ModulesToSave: c.save}, here: 1, memory: c.memory}}
		if got := s.logitRows(m); got != c.rows {
			t.Errorf("--max-memory %d --lora %q, saved %v: got %d rows, want %d", c.memory, c.lora, c.save, got, c.rows)
		}
	}
}
