package finetune

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// TestDecayIsThatOfTransformers compares which parameters decay with what transformers' Trainer says
// (scripts/make-decay-fixtures.py).
func TestDecayIsThatOfTransformers(t *testing.T) {
	b, err := golden.Read("testdata/decay.json")
	if err != nil {
		t.Fatal(err)
	}
	var fixture struct {
		Models []struct {
			Config json.RawMessage `json:"config"`
			Decays map[string]bool `json:"decays"`
		} `json:"models"`
	}
	if err := json.Unmarshal(b, &fixture); err != nil {
		t.Fatal(err)
	}
	for _, m := range fixture.Models {
		cfg, err := meta.ReadConfig(m.Config)
		if err != nil {
			t.Fatal(err)
		}
		skeleton, err := meta.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		decays, has := decayOf(skeleton.Root), map[string]bool{}
		for path, module := range skeleton.Root.Walk() {
			for _, p := range module.Params {
				has[meta.Join(path, p.Name)] = true
			}
		}
		for name, want := range m.Decays {
			if strings.HasSuffix(name, ".norm_f.weight") { // an RMS norm whose name transformers does not know
				want = false
			}
			if got := decays(name); !has[name] || got != want {
				t.Errorf("%s: %s: got %t, want %t; the model has it: %t", cfg.ModelType, name, got, want, has[name])
			}
		}
	}
}
