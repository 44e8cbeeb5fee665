package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/mat"
)

// random are n numbers about 1 in size.
func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v
}

// store is v as weights of format f, offset bytes from an aligned address, and v as f
// holds it.
func store(f mat.Format, v []float32, offset int) (data []byte, held []float32) {
	data = make([]byte, offset+len(v)*f.Size())[offset:]
	switch f {
	case mat.BFloat16:
		mat.NarrowBFloat16(data, v)
	case mat.Float16:
		mat.NarrowFloat16(data, v)
	case mat.Float32:
		for i, x := range v {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
		}
	}
	held = make([]float32, len(v))
	mat.Widen(held, data, f)
	return data, held
}

// eachSet runs test for every variant of this processor.
func eachSet(t *testing.T, test func(*testing.T, *Set)) {
	for _, set := range variants() {
		t.Run(set.Name, func(t *testing.T) { test(t, &set) })
	}
}

// near fails where got is further from want than the rounding of n additions allows.
func near(t *testing.T, what string, got float32, want, size float64) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= 1e-6*(size+1)) {
		t.Fatalf("%s: %g, want %g", what, got, want)
	}
}

func TestSelect(t *testing.T) {
	for _, name := range append(Names(), "") {
		if s, err := Select(name); err != nil || name != "" && s.Name != name {
			t.Errorf("Select(%q) is %v, %v", name, s, err)
		}
	}
	if best, err := Select(""); err != nil || best.Name != Names()[0] {
		t.Errorf("the best variant is %v, %v", best, err)
	}
	if _, err := Select("sse"); err == nil {
		t.Error("an unknown variant was selected")
	}
	if !slices.Contains(Names(), "go") {
		t.Error("the Go variant is missing")
	}
}

func TestMul(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(1, 1))
		for n := range 70 {
			for f := range mat.Formats {
				rows, tokens, offset := 1+n%9, 1+n%14, n%5
				w, held := store(f, random(r, rows*n), offset)
				x, y := random(r, tokens*(n+3)), make([]float32, tokens*(rows+2))
				set.GEMV.Mul(mat.Floats{V: y, Stride: rows + 2}, mat.Weights{Data: w, Stride: n * f.Size(), Format: f}, mat.Floats{V: x, Stride: n + 3}, rows, tokens, n)
				for tok := range tokens {
					for row := range rows {
						want, size := 0.0, 0.0
						for k := range n {
							p := float64(held[row*n+k]) * float64(x[tok*(n+3)+k])
							want, size = want+p, size+math.Abs(p)
						}
						near(t, fmt.Sprintf("format %d, n %d, row %d, token %d", f, n, row, tok), y[tok*(rows+2)+row], want, size)
					}
					if y[tok*(rows+2)+rows] != 0 {
						t.Fatalf("n %d: wrote past the rows of token %d", n, tok)
					}
				}
			}
		}
	})
}

// TestMulOrder holds the documented order: the lanes of a dot product can be added down
// the columns of a transposed matrix, and each is a Mix.
func TestMulOrder(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(2, 1))
		for _, n := range []int{1, 7, 8, 16, 31, 100, 1000} {
			for f := range mat.Formats {
				for _, rows := range []int{1, 5, 37, 100} {
					v := random(r, rows*n)
					w, _ := store(f, v, 1)
					turned := make([]float32, len(v))
					for i, e := range v {
						turned[i%n*rows+i/n] = e
					}
					c, _ := store(f, turned, 3)
					x, want := random(r, n), make([]float32, rows)
					set.GEMV.Mul(mat.Floats{V: want, Stride: rows}, mat.Weights{Data: w, Stride: n * f.Size(), Format: f}, mat.Floats{V: x, Stride: n}, rows, 1, n)
					added, mixed := make([]float32, set.Lanes*rows), make([]float32, set.Lanes*rows)
					set.GEMV.AddLanes(added, x, mat.Weights{Data: c, Stride: rows * f.Size(), Format: f}, rows)
					for l := range min(set.Lanes, n) {
						part := mat.Weights{Data: c[l*rows*f.Size():], Stride: set.Lanes * rows * f.Size(), Format: f}
						set.GEMV.Mix(mat.Floats{V: mixed[l*rows:], Stride: rows}, mat.Floats{V: x[l:], Stride: n}, set.Lanes, part, (n-l+set.Lanes-1)/set.Lanes, 1, rows)
					}
					set.GEMV.FoldLanes(added, rows)
					set.GEMV.FoldLanes(mixed, rows)
					for i, w := range want {
						if math.Float32bits(added[i]) != math.Float32bits(w) || math.Float32bits(mixed[i]) != math.Float32bits(w) {
							t.Fatalf("format %d, n %d, row %d: Mul gives %g, AddLanes %g, Mix %g", f, n, i, w, added[i], mixed[i])
						}
					}
				}
			}
		}
	})
}

func TestMix(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(3, 1))
		for cols := 1; cols < 150; cols++ {
			f := mat.Format(cols) % mat.Formats
			keys, tokens, step := 1+cols%11, 1+cols%13, 1+cols%3
			v, held := store(f, random(r, keys*cols), cols%4)
			p, y := random(r, tokens*keys*step), random(r, tokens*(cols+1))
			before := slices.Clone(y)
			set.GEMV.Mix(mat.Floats{V: y, Stride: cols + 1}, mat.Floats{V: p, Stride: keys * step}, step, mat.Weights{Data: v, Stride: cols * f.Size(), Format: f}, keys, tokens, cols)
			for tok := range tokens {
				for c := range cols {
					i := tok*(cols+1) + c
					want, size := float64(before[i]), 1.0
					for j := range keys {
						e := float64(p[(tok*keys+j)*step]) * float64(held[j*cols+c])
						want, size = want+e, size+math.Abs(e)
					}
					near(t, fmt.Sprintf("cols %d, token %d, column %d", cols, tok, c), y[i], want, size)
				}
				if i := tok*(cols+1) + cols; y[i] != before[i] {
					t.Fatalf("cols %d: wrote past the columns of token %d", cols, tok)
				}
			}
		}
	})
}

// ulps is the distance of got from want in units of want's last place.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	unit := float64(math.Nextafter32(w, float32(math.Inf(1)))) - float64(w)
	return math.Abs(float64(got)-want) / unit
}

func TestExpSum(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
		var x []float32
		for v := float32(-87); v <= 88.7; v += 0.0137 {
			x = append(x, v)
		}
		y := slices.Clone(x)
		set.Vector.ExpSum(y, 0)
		for i, v := range x {
			if want := math.Exp(float64(v)); ulps(y[i], want) > 2 {
				t.Fatalf("exp(%g) is %g, want %g", v, y[i], want)
			}
		}
		for n := range 50 {
			x := random(rand.New(rand.NewPCG(4, uint64(n))), n)
			sum, want := set.Vector.ExpSum(x, 0.5), 0.0
			for _, e := range x {
				want += float64(e)
			}
			near(t, fmt.Sprintf("sum of %d", n), sum, want, want)
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
	eachSet(t, func(t *testing.T, set *Set) {
		for n := range 70 {
			x := random(rand.New(rand.NewPCG(5, uint64(n))), n)
			want, size := 0.0, 0.0
			for _, v := range x {
				want += (float64(v) - 0.25) * (float64(v) - 0.25)
				size += float64(v) * float64(v)
			}
			near(t, fmt.Sprintf("squares of %d", n), set.Vector.SumSquares(x, 0.25), want, size)
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
	eachSet(t, func(t *testing.T, set *Set) {
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
	eachSet(t, func(t *testing.T, set *Set) {
		r := rand.New(rand.NewPCG(7, 1))
		for n := 1; n < 40; n++ {
			for f := range mat.Formats {
				rows, cols := n, 1+n*7%43
				w, held := store(f, random(r, rows*(cols+2)), n%3)
				dst := mat.Floats{V: make([]float32, cols*(rows+1)), Stride: rows + 1}
				set.Vector.Columns(dst, mat.Weights{Data: w, Stride: (cols + 2) * f.Size(), Format: f}, rows, cols)
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

// TestConversionsRoundTrip: every 16-bit value comes back, and halfway cases go to even.
func TestConversionsRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		if f := mat.FromFloat16(uint16(i)); f == f && mat.ToFloat16(f) != uint16(i) {
			t.Fatalf("float16 %#x is %g, which is %#x", i, f, mat.ToFloat16(f))
		}
		if f := mat.FromBFloat16(uint16(i)); f == f && mat.ToBFloat16(f) != uint16(i) {
			t.Fatalf("bfloat16 %#x is %g, which is %#x", i, f, mat.ToBFloat16(f))
		}
	}
	for i := uint16(0); i < 0x7bff; i++ {
		a, b := mat.FromFloat16(i), mat.FromFloat16(i+1)
		middle := (a + b) / 2 // exact
		if want := i + i&1; mat.ToFloat16(middle) != want || mat.ToFloat16(math.Nextafter32(middle, 0)) != i || mat.ToFloat16(math.Nextafter32(middle, b)) != i+1 {
			t.Fatalf("%g between %#x and its neighbour is rounded to %#x", middle, i, mat.ToFloat16(middle))
		}
	}
	for v, want := range map[float32]uint16{65504: 0x7bff, 65519: 0x7bff, 65520: 0x7c00, 1e9: 0x7c00, -65520: 0xfc00} {
		if got := mat.ToFloat16(v); got != want {
			t.Errorf("%g is %#x, want %#x", v, got, want)
		}
	}
	nan := float32(math.NaN())
	if f, b := mat.FromFloat16(mat.ToFloat16(nan)), mat.FromBFloat16(mat.ToBFloat16(nan)); f == f || b == b {
		t.Error("NaN is lost")
	}
	if mat.FromBFloat16(mat.ToBFloat16(math.MaxFloat32)) != float32(math.Inf(1)) {
		t.Error("the largest float32 does not round to an infinite bfloat16")
	}
}

// TestCurves compares GELU and Tanh with float64, relative to the value, over all sizes.
func TestCurves(t *testing.T) {
	eachSet(t, func(t *testing.T, set *Set) {
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

// variants are the kernels of all variants, best first.
func variants() []Set {
	var all []Set
	for _, v := range isa.Available() {
		all = append(all, *For(v))
	}
	return all
}

// from is m from a column on.
func from(m mat.Floats, col int) mat.Floats { return mat.Floats{V: m.V[col:], Stride: m.Stride} }
