package dispatch_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
)

// TestGoldenPEFTLogits serves adapters with magnitudes (DoRA) and whole modules (modules_to_save) that PEFT trained: the
// logits are PEFT's, and have the same bits under every map, and in one batch with other adapters and with none.
func TestGoldenPEFTLogits(t *testing.T) {
	dir := filepath.Join(golden.Module(t), "testdata", "golden", "train", "peft")
	var trace struct{ Runs []struct{ Run, Base string } }
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) || len(trace.Runs) == 0 {
		t.Fatalf("%s has no runs: make them with scripts/make-peft-fixtures.py", dir)
	}
	for _, r := range trace.Runs {
		t.Run(r.Run, func(t *testing.T) {
			fixture, err := loader.Open(filepath.Join(dir, r.Run, "logits.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			defer fixture.Close()
			ids, want := prompts(t, fixture), values(t, fixture, "adapter_logits")
			skeleton, checkpoint := base(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
			adapters := []dispatch.Adapter{{Name: "final", Dir: filepath.Join(dir, r.Run, "final")}, {Name: "init", Dir: filepath.Join(dir, r.Run, "init")}}
			o := dispatch.Options{Adapters: adapters, AdapterMemory: 8 << 20}
			underEveryMap(t, skeleton, checkpoint, o, ids, want, 3e-5, func(m *dispatch.Model, got [][]float32) {
				besideOthers(t, m, ids, got)
				if err := m.AddAdapter(dispatch.Adapter{Name: "later", Dir: adapters[0].Dir}); err != nil {
					t.Fatal(err)
				}
				sameLogits(t, "an adapter that comes later", adapted(t, m, ids, "later"), got)
			})
		})
	}
}

// besideOthers runs all prompts in one batch, with the adapter, with another and with none.
func besideOthers(t *testing.T, m *dispatch.Model, ids [][]int32, want [][]float32) {
	t.Helper()
	plain, other := adapted(t, m, ids, ""), adapted(t, m, ids, "init")
	dispatchtest.Close(t, "an adapter as it begins", slices.Concat(other...), slices.Concat(plain...), 1e-5)
	var batch dispatch.Batch
	var all [][]float32
	for i, p := range ids {
		for k, name := range []string{"", "final", "init", "final", ""} {
			s, err := m.NewAdaptedSequence(name)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Free()
			batch.Rows = append(batch.Rows, dispatch.BatchRow{Sequence: s, Tokens: p, Logits: dispatch.LogitsLast})
			w := [][]float32{plain[i], want[i], other[i], want[i], plain[i]}[k]
			all = append(all, w[len(w)-m.Vocab():])
		}
	}
	logits, err := m.Forward(context.Background(), &batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		_, v := logits.Row(i)
		sameLogits(t, "in one batch", [][]float32{v}, [][]float32{w})
	}
}
