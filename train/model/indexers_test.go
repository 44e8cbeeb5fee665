package model

import (
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/train"
	"github.com/heftai/heft/train/optim"
)

// TestAdamWDecayedIndexers: weights of indexers, through which no gradient goes, had gradients of zeros, so steps decayed
// them. torch's have none and stay.
func TestAdamWDecayedIndexers(t *testing.T) {
	for _, name := range []string{"deepseek-v32", "mistral-large4", "minimax-m3-sparse", "qwen4-exp", "deepseek-v4"} {
		for _, recompute := range []bool{false, true} {
			dir := ownModel(t, name)
			m, err := openFile(t, dir, dir)
			if err != nil {
				t.Fatal(err)
			}
			before := named(t, m.Checkpoint)
			opt, err := optim.NewAdamW(train.Params(m), optim.AdamOptions{LR: 0.01, WeightDecay: 0.5})
			if err != nil {
				t.Fatal(err)
			}
			lossAndGradients(t, m, someBatch(3, 9, 4, 8, 30, 12, 7, 15, 21, 11, 5), Options{Recompute: recompute})
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			idle := 0
			for tensor, v := range named(t, m.Checkpoint) {
				index, same := strings.Contains(tensor, "indexer"), slices.Equal(v, before[tensor])
				if index {
					idle++
				}
				if index != same && !strings.Contains(tensor, "correction") && !strings.Contains(tensor, "gate.bias") {
					t.Errorf("%s: %s of an indexer: %t, unchanged: %t", name, tensor, index, same)
				}
			}
			if idle == 0 {
				t.Errorf("%s: no weights of indexers", name)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
