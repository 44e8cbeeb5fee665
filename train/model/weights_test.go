package model

import (
	"testing"

	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestGradientsBelongToOwners: views of a parameter, and of its copy in float16, have the same part of its
// gradient; memory without an owner has none, wherever it is.
func TestGradientsBelongToOwners(t *testing.T) {
	dir := ownModel(t, "granite")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	w := newWeights(m.parameters)
	if err := w.begin(meta.Float16); err != nil {
		t.Fatal(err)
	}
	matrices := 0
	for p, param := range m.trained {
		if len(p.Shape) < 2 {
			continue
		}
		matrices++
		for _, unit := range []int{0, 1} { // only the embeddings are used in float32
			w.unit = unit
			all := w.Parts(p, -1)[0].Tensor
			g, ok := w.Gradient(all.Slice(1, 3))
			if !ok || g.DType != meta.Float32 || g.Rows() != 2 || &g.F32()[0] != &param.Grad()[all.Cols()] {
				t.Fatalf("%v %v: rows 1 and 2 have the gradient %v, %v", all.DType, p.Shape, g.Shape(), ok)
			}
		}
		if _, ok := w.Gradient(view.Floats(param.Data(), p.Shape...)); ok {
			t.Error("memory without an owner has a gradient")
		}
		param.Trainable = false
		if _, ok := w.Gradient(w.Parts(p, -1)[0].Tensor); ok {
			t.Error("a parameter that is not trained has a gradient")
		}
	}
	if matrices == 0 {
		t.Error("no matrices")
	}
}
