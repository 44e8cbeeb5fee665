package adapter_test

import (
	"path/filepath"
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
			ids, want := dispatchtest.AdapterPrompts(t, fixture), values(t, fixture, "adapter_logits")
			skeleton, checkpoint := dispatchtest.OpenBase(t, filepath.Join(dir, "base", r.Base, "model.safetensors"))
			adapters := []dispatch.Adapter{{Name: "final", Dir: filepath.Join(dir, r.Run, "final")}, {Name: "init", Dir: filepath.Join(dir, r.Run, "init")}}
			o := dispatch.Options{Adapters: adapters, AdapterMemory: 8 << 20}
			underEveryMap(t, skeleton, checkpoint, o, ids, want, 3e-5, func(m *dispatch.Model, got [][]float32) {
				dispatchtest.BesideOthers(t, m, ids, got)
				if err := m.AddAdapter(dispatch.Adapter{Name: "later", Dir: adapters[0].Dir}); err != nil {
					t.Fatal(err)
				}
				dispatchtest.SameLogits(t, "an adapter that comes later", dispatchtest.AdaptedLogits(t, m, ids, "later"), got)
			})
		})
	}
}
