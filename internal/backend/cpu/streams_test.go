package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// TestIndependentStreams compares streams that keep their own residual with the definition.
func TestIndependentStreams(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	random := rand.New(rand.NewPCG(9, 10))
	values := func(n int) []float32 { return normals(random, n) }
	const rows, n, hidden = 5, 3, 10
	a := backend.StreamArgs{Count: n, Independent: true, Eps: 1e-3, Magnitude: 1.5}
	raw, base, scale := values(rows*2*n), values(2*n), values(2)
	x, y := values(rows*n*hidden), values(rows*hidden)
	weights, collapsed := tensor.Floats(append([]float32(nil), raw...), rows, 2*n), tensor.Floats(make([]float32, rows*hidden), rows, hidden)
	expanded := append([]float32(nil), x...)
	b.StreamWeights(weights, tensor.Floats(base, len(base)), tensor.Floats(scale, 2), a)
	b.CollapseStreams(collapsed, tensor.Floats(x, rows, n*hidden), weights, a)
	b.ExpandStreams(tensor.Floats(expanded, rows, n*hidden), tensor.Floats(y, rows, hidden), weights, a)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	sigmoid := func(r, i int) float64 {
		return 1 / (1 + math.Exp(-float64(raw[r*2*n+i])*float64(scale[i/n])-float64(base[i])))
	}
	for r := range rows {
		for i := range hidden {
			sum := 0.0
			for j := range n {
				old := float64(x[(r*n+j)*hidden+i])
				sum += (sigmoid(r, j) + 1e-3) * old
				want := (1.5*sigmoid(r, n+j)+1e-3)*float64(y[r*hidden+i]) + old
				if got := float64(expanded[(r*n+j)*hidden+i]); !(math.Abs(got-want) <= 1e-5) {
					t.Errorf("row %d, stream %d, channel %d: got %v, want %v", r, j, i, got, want)
				}
			}
			if got := float64(collapsed.Row(r)[i]); !(math.Abs(got-sum) <= 1e-5) {
				t.Errorf("row %d, operand %d: got %v, want %v", r, i, got, sum)
			}
		}
	}
}
