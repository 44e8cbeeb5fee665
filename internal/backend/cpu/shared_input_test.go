package cpu_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// TestProductsOfOneInputSharePanels: a wide and a narrow product of one input read the same panels of tokens. Their pieces
// have different numbers of rows, by which panels were divided, so that one of them read those of the other.
func TestProductsOfOneInputSharePanels(t *testing.T) {
	const tokens, cols = 520, 1100 // more than are read in place
	r := rand.New(rand.NewPCG(5, 12))
	x := random(t, r, tokens, cols)
	var weights []tensor.Tensor
	for _, rows := range []int{1024, 32, 80} {
		w, err := tensor.Of(make([]byte, 2*rows*cols), meta.BFloat16, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(w.Data); i += 2 {
			w.Data[i], w.Data[i+1] = byte(r.Uint32()), byte(0x3c+r.Uint32()%4)
		}
		weights = append(weights, w)
	}
	for _, variant := range kernels.Names() {
		b := open(t, 1, variant)
		var products []backend.Product
		var want []tensor.Tensor
		for _, w := range weights {
			alone, together := zeros(tokens, w.Rows()), zeros(tokens, w.Rows())
			b.LinearRounded(alone, x, backend.Matrix{Tensor: w}, tensor.Tensor{}, backend.Prompt)
			want = append(want, alone)
			products = append(products, backend.Product{Dst: together, X: x, W: backend.Matrix{Tensor: w}, Rounded: true, Role: backend.Prompt})
		}
		b.Products(products)
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		for i, p := range products {
			if !slices.Equal(p.Dst.F32(), want[i].F32()) {
				t.Errorf("%s: the product of %d rows differs from the one alone", variant, weights[i].Rows())
			}
		}
		b.Close()
	}
}
