package nn

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// pieces serves each parameter as it was told.
type pieces struct {
	random
	parts map[*meta.Param][]backend.Part
}

func (w *pieces) Parts(p *meta.Param, expert int) []backend.Part {
	if parts, ok := w.parts[p]; ok {
		return parts
	}
	return w.random.Parts(p, expert)
}

func piece(begin, end int, dims ...int) backend.Part {
	t := tensor.Floats(make([]float32, meta.Elements(dims)), dims...)
	return backend.Part{Matrix: backend.Matrix{Tensor: t}, Into: meta.RowRange{Begin: begin, End: end}}
}

// TestPiecesThatDoNotFit: the error names the parameter.
func TestPiecesThatDoNotFit(t *testing.T) {
	root := build(t, func(b *meta.Builder) {
		b.Runs(meta.KindSequential, nil)
		b.Linear("wide", 6, 8, true)
		b.Conv1D("turned", 8, 8)
		b.LayerNorm("norm", 8, 1e-5, true)
	})
	stored := piece(0, 0, 6, 8)
	stored.Transposed = true
	for _, test := range []struct {
		name, param string
		parts       []backend.Part
		want        string // "" means no error
	}{
		{"stored transposed", "wide.weight", []backend.Part{stored}, ""},
		{"bias cut elsewhere", "wide.bias", []backend.Part{piece(0, 3, 3), piece(3, 8, 5)}, ""},
		{"other columns", "wide.weight", []backend.Part{piece(0, 0, 8, 5)}, "nn: wide.weight: a piece of shape [8 5] for rows 0 to 8 of 6 columns"},
		{"a vector", "wide.weight", []backend.Part{piece(0, 0, 48)}, "nn: wide.weight: a piece of shape [48]"},
		{"a gap", "wide.weight", []backend.Part{piece(0, 3, 3, 6), piece(4, 8, 4, 6)}, "nn: wide.weight: a piece fills rows from 4 on, where row 3 is next"},
		{"too few rows", "wide.weight", []backend.Part{piece(0, 3, 3, 6)}, "nn: wide.weight: pieces fill 3 of 8 rows"},
		{"too many rows", "wide.weight", []backend.Part{piece(0, 4, 4, 6), piece(4, 9, 5, 6)}, "nn: wide.weight: a piece of shape [5 6] for rows 4 to 9"},
		{"short bias", "wide.bias", []backend.Part{piece(0, 3, 3)}, "nn: wide.bias: no piece for rows 3 to 8"},
		{"bias of another length", "wide.bias", []backend.Part{piece(0, 0, 7)}, "nn: wide.bias: a piece of shape [7] for rows 0 to 8"},
		{"turned in pieces", "turned.weight", []backend.Part{piece(0, 4, 4, 8), piece(4, 8, 4, 8)}, "nn: turned.weight: a transposed weight in pieces"},
		{"norm in pieces", "norm.weight", []backend.Part{piece(0, 4, 4), piece(4, 8, 4)}, "nn: norm.weight: 2 pieces, the first of shape [4], wanted one of [8]"},
		{"no bias of the norm", "norm.bias", nil, "nn: norm.bias: its values are not loaded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &pieces{random: *newRandom(root), parts: map[*meta.Param][]backend.Part{}}
			for path, p := range root.AllParams() {
				if path == test.param {
					w.parts[p] = test.parts
				}
			}
			m := newMachine(t, root, w, Limits{Rows: 2}, 0)
			err := m.context.Begin(&Input{Hidden: tensor.Floats(noise("x", 12, 1, 0), 2, 6)})
			for _, u := range m.program.Units {
				if err == nil {
					err = u.Run(m.context)
				}
			}
			if test.want != "" {
				wantError(t, err, test.want)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestABlockInsideASequential has the results of the block alone.
func TestABlockInsideASequential(t *testing.T) {
	outer := build(t, func(b *meta.Builder) {
		b.Runs(meta.KindSequential, nil)
		inner := b.Child("inner", "Sequential").Runs(meta.KindSequential, nil)
		inner.Dropout("0")
		block := preNorms(inner.Child("1", "Block"), meta.BlockSpec{})
		separate(block, false, nil)
		gated(block, "mlp")
	})
	block := outer.Find("inner.1")
	w := newRandom(outer)
	x := tensor.Floats(noise("x", 3*testWidth, 1, 0), 3, testWidth)
	sameBits(t, "block", runChunks(t, outer, w, x, 3), runChunks(t, block, w, x, 3))
}

func TestScratchBytesIsWhatAContextTakes(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, plainBlock)
	m := newMachine(t, root, newRandom(root), Limits{Rows: 8, Outputs: 3}, 2)
	if got, want := m.context.arena.memory.Bytes(), m.program.ScratchBytes(m.context.limits); got != want {
		t.Errorf("%d bytes, announced %d", got, want)
	}
	if !slices.Equal(m.context.zero.F32()[:testWidth], make([]float32, testWidth)) {
		t.Error("the row of zeros is not zero")
	}
}
