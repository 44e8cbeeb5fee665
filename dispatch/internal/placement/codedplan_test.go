package placement

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/meta"
)

// limits calls f for limits of the cpu from very small ones to those that hold all of a model whose
// head is the embedding, so that no token reads a row of a table, with the plan for each without coding.
func limits(t *testing.T, f func(skeleton *meta.Model, auto Settings, stored devicemap.Plan)) {
	t.Helper()
	config, err := meta.ReadConfig([]byte(`{"model_type":"llama","hidden_size":512,"intermediate_size":1536,"num_hidden_layers":4,
		"num_attention_heads":4,"num_key_value_heads":2,"head_dim":128,"vocab_size":300,"max_position_embeddings":4096,"tie_word_embeddings":true,"dtype":"bfloat16"}`))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for limit := int64(8 << 20); limit < 44<<20; limit += 256 << 10 {
		o := Settings{Threads: 1, MaxSequences: 1, MaxBatchTokens: 16,
			MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}}
		stored, err := NewPlanner(skeleton).Plan(o)
		if err != nil {
			t.Fatal(err)
		}
		o.Compress = CompressAuto
		f(skeleton, o, stored.Plan)
	}
}

// TestAPlanThatCodesNothingWasMadeTwice: where all weights that could be coded are on the disk, auto
// planned once more with stored weights, which it had done before.
func TestAPlanThatCodesNothingWasMadeTwice(t *testing.T) {
	nothing := 0
	limits(t, func(skeleton *meta.Model, auto Settings, stored devicemap.Plan) {
		coded := auto
		coded.Coded = true
		if d, err := NewPlanner(skeleton).planInMemory(coded); err != nil {
			t.Fatal(err)
		} else if d.Settings.codesAny(skeleton) {
			return
		}
		nothing++
		p := NewPlanner(skeleton)
		d, err := p.Plan(auto)
		if err != nil || d.Settings.Coded || d.Plan.Map.String() != stored.Map.String() {
			t.Errorf("error %v, coded %v\n%s\nwant the plan of stored weights\n%s", err, d.Settings.Coded, d.Plan.Explain(), stored.Explain())
		}
		if p.plans > 3 { // stored, all coded, coded in memory
			t.Errorf("auto made %d plans, want at most 3", p.plans)
		}
	})
	if nothing == 0 {
		t.Error("no limit leaves nothing to code in memory")
	}
}

// TestAutoCodedWhereNothingIsRead: where lent memory keeps all streamed matrices, a token reads
// nothing with and without coding, and auto coded at each start.
func TestAutoCodedWhereNothingIsRead(t *testing.T) {
	kept := 0
	limits(t, func(skeleton *meta.Model, auto Settings, stored devicemap.Plan) {
		if !OnDisk(&stored) || stored.DiskBytesPerToken > 0 {
			return
		}
		d, err := NewPlanner(skeleton).Plan(auto)
		if err != nil {
			t.Fatal(err)
		}
		if d.Settings.Coded && OnDisk(&d.Plan) {
			t.Errorf("limit %d: weights are coded although a token reads nothing\n%s", d.Plan.Device(devicemap.CPU).LimitBytes, d.Plan.Explain())
		}
		if !d.Settings.Coded {
			kept++
		}
	})
	if kept == 0 {
		t.Error("lent memory keeps all matrices under no limit")
	}
}
