package dispatch_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// How far logits with PrecisionAuto may be from those with PrecisionHigh: the root of
// the mean square over all tokens, as a share of the range of the logits. In a mixture a
// rounding may choose another expert for a token.
const (
	autoTolerance    = 1e-2
	mixtureTolerance = 5e-2
)

// forced are the logits of every position of ids, of which the first prompt are a prompt
// that goes through in chunks, and the others are generated one by one.
func forced(t *testing.T, m *dispatch.Model, ids []int32, prompt, chunk int) [][]float32 {
	t.Helper()
	s := m.NewSequence()
	defer s.Free()
	var out [][]float32
	for len(ids) > s.Len() {
		n := 1
		if s.Len() < prompt {
			n = min(chunk, prompt-s.Len())
		}
		got, err := m.Forward(context.Background(), &dispatch.Batch{Rows: []dispatch.BatchRow{
			{Sequence: s, Tokens: ids[s.Len():][:n], PromptLen: prompt, Logits: dispatch.LogitsAll}}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, split(got, 0)...)
	}
	return out
}

// split is a copy of the rows of logits of batch row i.
func split(l *dispatch.Logits, i int) (out [][]float32) {
	count, values := l.Row(i)
	for r := range count {
		out = append(out, slices.Clone(values[r*l.Vocab():][:l.Vocab()]))
	}
	return out
}

func sameLogits(t *testing.T, what string, got, want [][]float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: logits of %d tokens, want %d", what, len(got), len(want))
	}
	for i := range got {
		if at := firstDifference(got[i], want[i]); at >= 0 {
			t.Fatalf("%s: token %d: logit %d is %v, alone and whole it is %v", what, i, at, got[i][at], want[i][at])
		}
	}
}

// TestPrecisionAuto holds, on every variant, that rounded activations stay within
// the tolerance, and that a token's logits have the same bits in chunks, in a batch that
// mixes prompts with generated tokens, and for any number of threads.
func TestPrecisionAuto(t *testing.T) {
	cases := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			skeleton, checkpoint := open(t, g.Dir)
			everything := devicemap.NewMap(devicemap.Entry{Device: devicemap.CPU})
			model := func(variant string, threads int, p dispatch.Precision) *dispatch.Model {
				m, err := dispatch.New(skeleton, checkpoint, everything, dispatch.Options{Threads: threads, Variant: variant, Precision: p, KVTokens: 4096})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { m.Close() })
				return m
			}
			tolerance := roundingTolerance(skeleton)
			p := g.Prompts[0]
			ids := append(slices.Clone(p.IDs), p.Greedy...)
			high := forced(t, model("", 2, dispatch.PrecisionHigh), ids, len(p.IDs), len(ids))
			for _, variant := range kernels.Names() {
				if variant == "go" || variant == "avx2" {
					continue // they do not round, and are slow
				}
				m := model(variant, 2, dispatch.PrecisionAuto)
				auto := forced(t, m, ids, len(p.IDs), len(ids))
				within(t, variant, auto, high, tolerance)
				sameLogits(t, variant+" in chunks", forced(t, m, ids, len(p.IDs), 3), auto)
				sameLogits(t, variant+" on one thread", forced(t, model(variant, 1, dispatch.PrecisionAuto), ids, len(p.IDs), len(ids)), auto)
				mixed(t, variant, m, ids, len(p.IDs), auto)
			}
		})
		cases++
	}
	golden.Count(t, "infer/models (precision auto)", cases)
}

func roundingTolerance(skeleton *meta.Model) float64 {
	for _, param := range skeleton.Root.AllParams() {
		if len(param.Shape) == 3 {
			return mixtureTolerance
		}
	}
	return autoTolerance
}

func within(t *testing.T, variant string, got, want [][]float32, tolerance float64) {
	t.Helper()
	var squares, count, low, high float64
	for i := range want {
		low, high = min(low, float64(slices.Min(want[i]))), max(high, float64(slices.Max(want[i])))
		for j := range want[i] {
			d := float64(got[i][j]) - float64(want[i][j])
			squares, count = squares+d*d, count+1
		}
	}
	if d := math.Sqrt(squares/count) / (high - low); !(d <= tolerance) {
		t.Errorf("%s: with rounding logits are off by %.2g of their range, tolerated is %g", variant, d, tolerance)
	}
}

// mixed runs the prompt beside the generated tokens of two further sequences.
func mixed(t *testing.T, variant string, m *dispatch.Model, ids []int32, prompt int, want [][]float32) {
	t.Helper()
	var rows []dispatch.BatchRow
	forward := func() *dispatch.Logits {
		out, err := m.Forward(context.Background(), &dispatch.Batch{Rows: rows})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 2 {
		s := m.NewSequence()
		defer s.Free()
		rows = append(rows, dispatch.BatchRow{Sequence: s, Tokens: ids[:prompt], PromptLen: prompt})
	}
	forward()
	last := m.NewSequence()
	defer last.Free()
	rows = slices.Insert(rows, 1, dispatch.BatchRow{Sequence: last, Tokens: ids[:prompt], PromptLen: prompt, Logits: dispatch.LogitsAll})
	for _, i := range []int{0, 2} { // generated tokens before and behind a prompt, two of them drafted
		rows[i].Tokens, rows[i].Logits = ids[prompt:][:min(2, len(ids)-prompt)], dispatch.LogitsAll
	}
	out := forward()
	sameLogits(t, variant+" prompt in a mixed batch", split(out, 1), want[:prompt])
	for _, i := range []int{0, 2} {
		sameLogits(t, variant+" generated in a mixed batch", split(out, i), want[prompt:][:len(rows[i].Tokens)])
	}
}
