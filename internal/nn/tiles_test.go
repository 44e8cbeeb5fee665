package nn

import (
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// Blocks of every kind compute the same bits in tiles, with several sequences and adapters in a
// tile, in a context that has just enough memory for tiles.
func TestTilesChangeNoBit(t *testing.T) {
	const n = 7
	x := tensor.Floats(noise("x", n*testWidth, 1, 0), n, testWidth)
	eachBlock(t, func(t *testing.T, _ blockCase, root *meta.Module) {
		w := newRandom(root)
		rows := func(tile int) [][]float32 {
			m := newMachine(t, root, w, Limits{Rows: 4 * n, Tile: tile}, 16)
			adapters := append(bound(t, m, madeUp(root, m.program, "first", 3), madeUp(root, m.program, "second", 1)), nil)
			return runAdapted(t, m, x, adapters[0], nil, adapters[1], adapters[0])
		}
		want := rows(0)
		for _, tile := range []int{1, 4, 10, 27, 28} {
			for i, got := range rows(tile) {
				sameBits(t, fmt.Sprintf("sequence %d in tiles of %d", i, tile), got, want[i])
			}
		}
	})
}

// A pass in tiles stores the same keys as an uncut one, in layers with a window too: generated
// tokens behind it have the same logits. The pass itself allocates nothing.
func TestTilesOfAPromptWithWindows(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, func(b *meta.Builder, i int) {
		separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer, s.Window = i, 5*i })
		gated(b, "mlp")
	})
	tokens := make([]int32, 70)
	for i := range tokens {
		tokens[i] = int32(5 * i % 31)
	}
	run := func(tile int) []float32 {
		m := newMachine(t, root, newRandom(root), Limits{Rows: 66, Outputs: 70, Tile: tile}, 16)
		seq := m.cache.NewSequence(0)
		return append(m.prompt(t, seq, tokens[:66], 66), m.prompt(t, seq, tokens[66:], 1)...)
	}
	want := run(0)
	for _, tile := range []int{3, 16, 65} {
		sameBits(t, fmt.Sprintf("tiles of %d", tile), run(tile), want)
	}
}

// Long passes in tiles take memory for their hidden states, not for the intermediate results of
// blocks.
func TestTilesBoundTheMemory(t *testing.T) {
	p, err := Compile(decoder(t, meta.CausalLMSpec{}, func(b *meta.Builder, i int) {
		separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer = i })
		gated(b, "mlp")
	}))
	if err != nil {
		t.Fatal(err)
	}
	few, many := p.ScratchBytes(Limits{Rows: 64, Outputs: 1, Tile: 64}), p.ScratchBytes(Limits{Rows: 1024, Outputs: 1, Tile: 64})
	if whole := p.ScratchBytes(Limits{Rows: 1024, Outputs: 1}); many >= whole {
		t.Errorf("%d bytes in tiles, %d without", many, whole)
	}
	states := int64(4 * (1024 - 64) * (testWidth + 6)) // hidden states and rotary tables
	if many-few > states {
		t.Errorf("960 more rows take %d bytes, want at most %d", many-few, states)
	}
}

// Convolutions of keys, values and branches go on from tile to tile, and experts that every token passes see all rows.
func TestTilesOfConvolutionsBehindBranches(t *testing.T) {
	for _, name := range []string{"family-inkling-20", "family-inkling-text-24"} {
		g := golden.OwnModel(t, name)
		model, ck, err := loader.OpenModel(g.Dir())
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		ids := slices.Concat(g.Prompts[3].IDs, g.Prompts[2].IDs)
		run := func(tile int) []float32 {
			m := newMachine(t, model.Root, newCheckpoint(t, ck, model), Limits{Rows: len(ids), Outputs: len(ids), Tile: tile}, 64)
			seq := m.cache.NewSequence(0)
			defer seq.Free()
			return append(m.prompt(t, seq, ids[:30], 30), m.prompt(t, seq, ids[30:], 1)...)
		}
		want := run(0)
		for _, tile := range []int{1, 4, 29} {
			sameBits(t, fmt.Sprintf("%s in tiles of %d", name, tile), run(tile), want)
		}
	}
}
