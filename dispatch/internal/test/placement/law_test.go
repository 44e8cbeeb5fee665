package placement_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// TestPlacementNeverChangesTheAnswer holds law 4, bit by bit, in every variant that the
// processor has: the logits of a sequence are those that it has alone, on one thread and from
// mapped weights, whatever else runs, in what pieces it comes, how many threads there
// are, and whether its weights have moved.
func TestPlacementNeverChangesTheAnswer(t *testing.T) {
	dir := dispatchtest.LawFolder(t)
	dispatchtest.RunAtOnce(t, 4)
	for _, variant := range kernels.Names() {
		for name, o := range map[string]dispatch.Options{
			"bfloat16": {}, "keys of eight bits": {KVDType: meta.Int8}, "q8_0": {Quantize: meta.QuantQ8}, "q4_0": {Quantize: meta.QuantQ4},
		} {
			if o.Variant = variant; variant == "go" && (testing.Short() || o.KVDType != meta.NoDType) {
				continue // slow
			}
			t.Run(variant+"/"+name, func(t *testing.T) { holdsLaw(t, dir, o) })
			o.Precision = dispatch.PrecisionHigh
			t.Run(variant+"/"+name+"/high", func(t *testing.T) { holdsLaw(t, dir, o) })
		}
	}
}

func holdsLaw(t *testing.T, dir string, o dispatch.Options) {
	ids, prompt := dispatchtest.LawIDs()
	threads := []int{1, 2, 3, 4}
	switch o.Variant {
	case kernels.Names()[0]:
	case "go":
		threads = []int{1, 4}
	default:
		threads = []int{1, 3}
	}
	holdsLawOn(t, dir, o, ids, prompt, threads)
}

// holdsLawOn runs ids, of which the first prompt are a prompt of more than a page, in all ways on
// so many threads.
func holdsLawOn(t *testing.T, dir string, o dispatch.Options, ids []int32, prompt int, threads []int) {
	t.Helper()
	var alone [][]float32
	for _, o.Threads = range threads {
		m := dispatchtest.OpenModel(t, dir, o)
		for _, weights := range []string{"mapped", "promoted"} {
			if weights == "promoted" {
				m.Warm(context.Background())
				m.Promote(context.Background())
				dispatchtest.AwaitConversion(t, m)
			}
			whole := dispatchtest.ForcedLogits(t, m, ids, prompt, prompt)
			if alone == nil {
				alone = whole
			}
			same := func(how string, got [][]float32) {
				t.Helper()
				dispatchtest.SameLogits(t, fmt.Sprintf("%d threads, %s, %s", o.Threads, weights, how), got, alone)
			}
			same("alone", whole)
			same("in chunks", dispatchtest.ForcedLogits(t, m, ids, prompt, 5))
			same("drafted", dispatchtest.LogitsInPieces(t, m, 0, 1, ids, prompt, 8, 4))
			same("drafted, all at once", dispatchtest.LogitsInPieces(t, m, 0, 1, ids, prompt, 8, len(ids)))
			same("in a batch of 8", dispatchtest.LogitsInPieces(t, m, 3, 8, ids, prompt, 4, 1))
			same("drafted in a batch of 8", dispatchtest.LogitsInPieces(t, m, 7, 8, ids, prompt, 6, 3))
			if o.Precision == dispatch.PrecisionHigh {
				same("behind a reused prefix", reused(t, m, ids, prompt, alone))
				same("computed again", dispatchtest.ForcedLogits(t, m, ids, len(ids), 7))
			}
		}
		m.Close()
		tiled := dispatchtest.OpenModel(t, dir, dispatchtest.InTiles(o, 5))
		same := func(how string, got [][]float32) {
			t.Helper()
			dispatchtest.SameLogits(t, fmt.Sprintf("%d threads, in tiles, %s", o.Threads, how), got, alone)
		}
		same("alone", dispatchtest.ForcedLogits(t, tiled, ids, prompt, prompt))
		same("in a batch of 8", dispatchtest.LogitsInPieces(t, tiled, 3, 8, ids, prompt, 8, 2))
		tiled.Close()
	}
}

// reused are the logits of ids behind the pages that an earlier run has left. What lies in
// these is not computed again: its logits are those given.
func reused(t *testing.T, m *dispatch.Model, ids []int32, prompt int, alone [][]float32) [][]float32 {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	n := s.Reuse(ids)
	if n == 0 {
		t.Error("nothing of the prompt is reused")
	}
	out := slices.Clone(alone[:n])
	for s.Len() < len(ids) {
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:min(3, len(ids)-s.Len())], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, dispatchtest.Rows(got, 0)...)
	}
	return out
}
