package vector_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/kerneltest"
	"github.com/heftai/heft/internal/kernels/mat"
)

func TestExpSum(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		var x []float32
		for v := float32(-87); v <= 88.7; v += 0.0137 {
			x = append(x, v)
		}
		y := slices.Clone(x)
		set.Vector.ExpSum(y, 0)
		for i, v := range x {
			if want := math.Exp(float64(v)); kerneltest.ULPs(y[i], want) > 2 {
				t.Fatalf("exp(%g) is %g, want %g", v, y[i], want)
			}
		}
		for n := range 50 {
			x := kerneltest.Random(rand.New(rand.NewPCG(4, uint64(n))), n)
			sum, want := set.Vector.ExpSum(x, 0.5), 0.0
			for _, e := range x {
				want += float64(e)
			}
			kerneltest.Near(t, fmt.Sprintf("sum of %d", n), sum, want, want)
		}
		inf := float32(math.Inf(1))
		edge := []float32{inf, -inf, float32(math.NaN()), 89, -88, -100, -104, -3e38, 3e38}
		set.Vector.ExpSum(edge, 0)
		for i, want := range []float64{math.Inf(1), 0, math.NaN(), math.Inf(1), 6.0546e-39, 3.78e-44, 0, 0, math.Inf(1)} {
			g := float64(edge[i])
			if !(g == want || math.IsNaN(g) && math.IsNaN(want) || math.Abs(g-want) < 3e-45+1e-4*want) {
				t.Errorf("exp of edge %d is %g, want %g", i, g, want)
			}
		}
	})
}

func TestScaleMaxAndSumSquares(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		for n := range 70 {
			x := kerneltest.Random(rand.New(rand.NewPCG(5, uint64(n))), n)
			want, size := 0.0, 0.0
			for _, v := range x {
				want += (float64(v) - 0.25) * (float64(v) - 0.25)
				size += float64(v) * float64(v)
			}
			kerneltest.Near(t, fmt.Sprintf("squares of %d", n), set.Vector.SumSquares(x, 0.25), want, size)
			top := float32(math.Inf(-1))
			y := slices.Clone(x)
			for i := range y {
				y[i] *= -2
				top = max(top, y[i])
			}
			if got := set.Vector.ScaleMax(x, -2); got != top || !slices.Equal(x, y) {
				t.Fatalf("n %d: largest %g, want %g", n, got, top)
			}
		}
		nan := float32(math.NaN())
		if got := set.Vector.ScaleMax([]float32{nan, 1, nan, 2, nan}, 1); got != 2 {
			t.Errorf("the largest beside NaN is %g", got)
		}
	})
}

func TestWiden(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		data := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(data[2*i:], uint16(i))
		}
		for f := range mat.Formats {
			n := len(data) / f.Size()
			got, want := make([]float32, n), make([]float32, n)
			set.Vector.Widen(got, data, f)
			mat.Widen(want, data, f)
			for i := range want {
				if math.Float32bits(got[i]) != math.Float32bits(want[i]) && !(got[i] != got[i] && want[i] != want[i]) {
					t.Fatalf("format %d: %#x is %g, want %g", f, i, got[i], want[i])
				}
			}
		}
	})
}

func TestColumns(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		r := rand.New(rand.NewPCG(7, 1))
		for n := 1; n < 40; n++ {
			for f := range mat.Formats {
				rows, cols := n, 1+n*7%43
				w, held := kerneltest.Store(f, kerneltest.Random(r, rows*(cols+2)), n%3)
				dst := mat.Floats{V: make([]float32, cols*(rows+1)), Stride: rows + 1}
				set.Vector.Transpose(dst, mat.Weights{Data: w, Stride: (cols + 2) * f.Size(), Format: f}, rows, cols)
				for i := range rows {
					for c := range cols {
						if got, want := dst.V[c*dst.Stride+i], held[i*(cols+2)+c]; got != want {
							t.Fatalf("format %d, %d by %d: column %d of row %d is %g, want %g", f, rows, cols, c, i, got, want)
						}
						if dst.V[c*dst.Stride+rows] != 0 {
							t.Fatalf("%d by %d: wrote past column %d", rows, cols, c)
						}
					}
				}
			}
		}
	})
}

// TestCurves compares GELU and Tanh with float64, relative to the value, over all sizes.
func TestCurves(t *testing.T) {
	kerneltest.Each(t, func(t *testing.T, set *kernels.Set) {
		var x []float32
		for e := -40; e <= 6; e++ {
			for _, m := range []float64{1, 1.1, 1.3, 1.57, 1.9} {
				v := float32(math.Ldexp(m, e))
				x = append(x, v, -v)
			}
		}
		x = append(x, 0, float32(math.Inf(1)), float32(math.NaN()), 3e38, -3e38)
		gelu, tanh := make([]float32, len(x)), slices.Clone(x)
		set.Vector.GELU(gelu, x)
		set.Vector.Tanh(tanh, 0.5, 3)
		for i, v := range x {
			a := float64(v)
			curve(t, "gelu", v, gelu[i], 0.5*a*math.Erfc(-a/math.Sqrt2))
			curve(t, "tanh", v, tanh[i], 3*math.Tanh(a/2))
		}
		for n := range 40 {
			part := slices.Clone(x[:n])
			set.Vector.GELU(part, part)
			if !slices.Equal(part, gelu[:n]) {
				t.Fatalf("gelu in place of %d elements differs", n)
			}
		}
	})
}

func curve(t *testing.T, name string, x, got float32, want float64) {
	t.Helper()
	if math.IsNaN(want) && got != got || float64(got) == want {
		return
	}
	if d := math.Abs(float64(got) - want); !(d <= 1e-6*math.Abs(want)+1e-37) {
		t.Errorf("%s of %g is %g, want %g", name, x, got, want)
	}
}
