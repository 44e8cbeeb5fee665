package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/meta"
)

// formats are those that the matrices of a model are stored in, and whether experts are among them.
func formats(skeleton *meta.Model) string {
	var names []string
	for _, p := range skeleton.Root.AllParams() {
		name := p.DType.String()
		for _, s := range p.Sources {
			if s.Quant != nil {
				name = s.Quant.Format.String()
			}
		}
		if len(p.Shape) == 3 {
			name += " experts"
		}
		if len(p.Shape) >= 2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// eachFormat runs test for one checkpoint of each set of formats, in every variant but plain Go.
func eachFormat(t *testing.T, test func(t *testing.T, g *golden.Model, variant string)) {
	seen := map[string]bool{}
	for g := range golden.Models(t) {
		skeleton, _ := dispatchtest.OpenCheckpoint(t, g.Dir())
		stored := formats(skeleton)
		if seen[stored] {
			continue
		}
		seen[stored] = true
		for _, variant := range kernels.Names() {
			if variant != "go" { // which is slow
				t.Run(stored+"/"+variant, func(t *testing.T) { test(t, g, variant) })
			}
		}
	}
}

// TestPlacementNeverChangesTheAnswerOfAnyFormat holds law 4 for weights in every format that
// checkpoints have, and for experts.
func TestPlacementNeverChangesTheAnswerOfAnyFormat(t *testing.T) {
	dispatchtest.RunAtOnce(t, 4)
	eachFormat(t, func(t *testing.T, g *golden.Model, variant string) {
		prompt := g.Prompts[0].IDs
		for len(prompt) < 18 { // more than a page
			prompt = append(prompt, prompt...)
		}
		prompt = prompt[:18:18]
		ids := append(prompt, dispatchtest.OtherIDs(prompt[:8], 1, int(slices.Max(prompt))+1)...)
		for _, precision := range []dispatch.Precision{dispatch.PrecisionAuto, dispatch.PrecisionHigh} {
			if testing.Short() && variant != kernels.Names()[0] {
				continue
			}
			o := dispatch.Options{Variant: variant, Precision: precision, KVTokens: 4096}
			holdsLawOn(t, g.Dir(), o, ids, len(prompt), []int{1, 3})
		}
	})
}

// TestDecodingAllocatesNothingInAnyFormat is TestDecodingAllocatesNothing for weights in every
// format that checkpoints have, and for experts.
func TestDecodingAllocatesNothingInAnyFormat(t *testing.T) {
	eachFormat(t, func(t *testing.T, g *golden.Model, variant string) {
		m := dispatchtest.OpenModel(t, g.Dir(), dispatch.Options{Variant: variant, Threads: 2, MaxSequences: 8})
		defer m.Close()
		for _, batch := range []int{1, 8} {
			if n := dispatchtest.Allocations(t, m, batch); n != 0 {
				t.Errorf("%d sequences: %v allocations a token", batch, n)
			}
		}
	})
}

func randomShape(r *rand.Rand) dispatchtest.Shape {
	pick := func(v ...int) int { return v[r.IntN(len(v))] }
	s := dispatchtest.Shape{Hidden: pick(32, 64, 96, 160, 40, 33, 66, 72, 100, 127, 256, 320), Inner: pick(32, 48, 64, 130, 77, 288, 352, 544),
		KV: pick(1, 2, 3), Dim: pick(8, 16, 20, 32, 64, 80, 128), Vocab: pick(230, 231, 256, 300, 515), Layers: pick(1, 2),
		DType: []meta.DType{meta.BFloat16, meta.BFloat16, meta.Float16, meta.Float32}[r.IntN(4)],
		Tied:  r.IntN(2) == 0, Experts: r.IntN(3) == 0, Shift: r.IntN(9)}
	s.Heads = s.KV * pick(1, 2, 3, 4, 7)
	return s
}

// TestPlacementNeverChangesTheAnswerOfAnyShape holds law 4 for random shapes: rows and columns that
// fill no vector, block or tile, heads of any width, prompts and drafts of any length, formats,
// variants and numbers of threads, weights as stored and converted.
func TestPlacementNeverChangesTheAnswerOfAnyShape(t *testing.T) {
	dispatchtest.RunAtOnce(t, 4)
	cases := 30
	if testing.Short() {
		cases = 10
	}
	for seed := range cases {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		s, names := randomShape(r), kernels.Names()
		o := dispatch.Options{Variant: names[r.IntN(max(len(names)-1, 1))]} // plain Go is slow
		if r.IntN(2) == 0 {
			o.Precision = dispatch.PrecisionHigh
		}
		if r.IntN(3) == 0 {
			o.KVDType = meta.Int8
		}
		if s.Hidden%32 == 0 {
			o.Quantize = []meta.QuantFormat{meta.QuantNone, meta.QuantQ8, meta.QuantQ4}[r.IntN(3)]
		}
		ids, prompt, threads := make([]int32, 27+r.IntN(30)), 0, 1+r.IntN(4)
		for i := range ids {
			ids[i] = r.Int32N(int32(s.Vocab))
		}
		prompt = len(ids) - 9
		t.Run(fmt.Sprintf("%d %+v %s %v %v %v, %d threads", seed, s, o.Variant, o.Precision, o.KVDType, o.Quantize, threads), func(t *testing.T) {
			holdsLawOn(t, s.Folder(t, r), o, ids, prompt, []int{1, threads})
		})
	}
}
