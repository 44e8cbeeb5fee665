package activations_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/meta"
)

// TestActivationsAreWhatThePlanCounts: operations took memory for packed tokens and for each thread that no
// plan had, seven times the planned activations of a small model. It runs passes of many lengths, and compares.
func TestActivationsAreWhatThePlanCounts(t *testing.T) {
	var dirs []string
	for g := range golden.Models(t) {
		dirs = append(dirs, g.Stored)
	}
	for _, pattern := range []string{"golden.json", "golden.json.gz"} {
		files, err := filepath.Glob(filepath.Join(golden.Module(t), "testdata/golden/infer/models/*", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	slices.Sort(dirs)
	dirs = slices.Compact(dirs)
	for i, dir := range dirs {
		if testing.Short() && i%9 != 0 {
			continue
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			dir := golden.Unpacked(t, dir)
			others := []dispatch.Options{{Precision: dispatch.PrecisionHigh}, {KVDType: meta.Int8}, {Quantize: meta.QuantQ8}, {Compress: dispatch.CompressExact}}
			if !testing.Short() {
				holdsPlannedActivations(t, dir, dispatch.Options{})
			}
			holdsPlannedActivations(t, dir, others[i%len(others)]) // each of them with some model of each family
		})
	}
	if len(dirs) < 100 {
		t.Errorf("%d models, want more", len(dirs))
	}
}

func holdsPlannedActivations(t *testing.T, dir string, o dispatch.Options) {
	t.Helper()
	skeleton, checkpoint := dispatchtest.OpenCheckpoint(t, dir)
	if o.Quantize != meta.QuantNone && len(skeleton.Root.LoadedBytes(o.Quantize, true)) == 0 {
		return // its weights are quantised already
	}
	o.Threads, o.Context, o.MaxBatchTokens, o.MaxSequences = 2, 128, 96, 4
	if spec, ok := skeleton.Root.Spec.(*meta.CausalLMSpec); ok && spec.Context > 0 {
		o.Context = min(o.Context, spec.Context)
	}
	o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: 1 << 29}}
	o.Ledger = new(dispatch.Ledger)
	how := fmt.Sprintf("%v, KV in %v, %v, %v", o.Precision, o.KVDType, o.Quantize, o.Compress)
	plan, o, err := dispatch.Plan(skeleton, o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := dispatch.New(skeleton, checkpoint, plan.Map, o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	planned := plan.Device(devicemap.CPU).ActivationBytes
	ids := make([]int32, 128)
	for i := range ids {
		ids[i] = int32(i*37%min(m.Vocab()-3, 223) + 3)
	}
	var most int64
	for _, lengths := range [][]int{{1}, {2}, {3}, {5}, {8}, {17}, {33}, {96}, {7, 1, 2, 19}, {24, 24, 24, 24}} {
		for _, mode := range []dispatch.LogitsMode{dispatch.LogitsLast, dispatch.LogitsAll} {
			if mode == dispatch.LogitsAll && lengths[0] > 17 || lengths[0]+3 > o.Context {
				continue
			}
			runLengths(t, m, ids, lengths, mode)
			if most = o.Ledger.Held()["activations"]; most > planned {
				t.Fatalf("%s: after prompts of %v tokens activations are %d bytes, planned are %d", how, lengths, most, planned)
			}
		}
	}
	t.Logf("%s: %d bytes of %d", how, most, planned)
}

// runLengths runs prompts of so many tokens in one pass, and three tokens behind each.
func runLengths(t *testing.T, m *dispatch.Model, ids []int32, lengths []int, mode dispatch.LogitsMode) {
	t.Helper()
	var rows []dispatch.BatchRow
	for _, n := range lengths {
		s := m.NewSequence()
		defer s.Free()
		rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: ids[:n], PromptLen: n, Logits: mode})
	}
	for range 4 {
		if _, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			at := rows[i].Sequence.Len()
			rows[i].Tokens = ids[at:][:1]
		}
	}
}
