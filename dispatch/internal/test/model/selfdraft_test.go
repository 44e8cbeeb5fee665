package model_test

import (
	"context"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// TestASelfDraftSharesWhatIsInMemory: a model and the draft of itself compute in turn, on several maps. The model's
// logits are those without the draft. The draft of a model whose matrices are in memory has its logits, as it has its
// weights, and takes no memory for others; one of a model on disk, or of one that does not stream, has those of the model in 4 bits.
func TestASelfDraftSharesWhatIsInMemory(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	ids, prompt := dispatchtest.LawIDs()
	logits := func(o dispatch.Options) [][]float32 {
		m := dispatchtest.OpenModel(t, dir, o)
		defer m.Close()
		return dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
	}
	plain, converted := logits(dispatch.Options{}), logits(dispatch.Options{Quantize: meta.QuantQ4})
	full := int64(0)
	for _, c := range []struct {
		name string
		pins devicemap.Map
		want [][]float32 // of the draft; nil: others
	}{
		{"on disk", devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}), converted},
		{"half in memory", devicemap.NewMap(devicemap.Entry{Device: devicemap.Disk}, devicemap.Entry{Path: "model.layers.0", Device: devicemap.CPU},
			devicemap.Entry{Path: "model.layers.1.mlp.up_proj", Device: devicemap.CPU}), nil},
		{"matrices in memory", devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}, devicemap.Entry{Path: "model.norm", Device: devicemap.Disk}), plain},
		{"in memory", devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU}), converted},
	} {
		m, draft, bytes := withSelfDraft(t, dir, c.pins)
		for range 2 { // the second time with copies of all
			ofDraft := dispatchtest.ForcedLogits(t, draft, ids, prompt, prompt)
			dispatchtest.SameLogits(t, c.name, dispatchtest.ForcedLogits(t, m, ids, prompt, prompt), plain)
			if c.want != nil {
				dispatchtest.SameLogits(t, c.name+", the draft", ofDraft, c.want)
			} else if equalLogits(ofDraft, plain) || equalLogits(ofDraft, converted) {
				t.Errorf("%s: the draft has the logits of one format", c.name)
			}
			m.Warm(context.Background())
			m.Promote(context.Background())
			draft.Warm(context.Background())
			dispatchtest.AwaitConversion(t, m)
		}
		if before := full; full == 0 {
			full = bytes
		} else if full = bytes; full >= before && c.name != "in memory" {
			t.Errorf("%s: the draft takes %d bytes, and %d where more streams", c.name, full, before)
		}
		draft.Close()
		m.Close()
	}
}

// withSelfDraft is a model and the draft of itself, which takes so many bytes.
func withSelfDraft(t *testing.T, dir string, pins devicemap.Map) (m, draft *dispatch.Model, bytes int64) {
	t.Helper()
	skeleton, checkpoint, err := loader.OpenModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = checkpoint.Close() })
	ledger := new(dispatch.Ledger)
	options := dispatch.Options{Ledger: ledger, DeviceMap: devicemap.Policy{Kind: devicemap.Manual, Pins: pins}}
	plan, o, self, err := dispatch.PlanSelfDraft(skeleton, dispatch.Options{Ledger: ledger, Quantize: meta.QuantQ4},
		func(int64) dispatch.Options { return options })
	if err == nil {
		m, err = dispatch.New(skeleton, checkpoint, plan.Map, o)
	}
	if err == nil {
		draft, err = m.NewSelfDraft(self)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, draft, self.Bytes
}

func equalLogits(a, b [][]float32) bool {
	for i := range a {
		for k := range a[i] {
			if a[i][k] != b[i][k] {
				return false
			}
		}
	}
	return true
}
