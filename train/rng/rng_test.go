package rng

import (
	"math"
	"reflect"
	"strconv"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

func TestGoldenTorch(t *testing.T) {
	n := 0
	for _, path := range golden.Glob(t, "train/rng/*.json") {
		var file struct {
			Cases []struct {
				Seed   float64
				Words  []float64            `json:"mt19937_u32"`
				Rand   []float64            `json:"rand_float32"`
				Perms  map[string][]float64 `json:"randperm"`
				Linear *struct {
					Weight [][]float64
					Bias   []float64
				} `json:"manual_seed_then_linear_3_2"`
			}
		}
		golden.JSON(t, path, &file)
		for _, c := range file.Cases {
			n++
			seed := uint64(int64(c.Seed))
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				g := New(seed)
				for i, want := range c.Words {
					if got := g.Uint32(); float64(got) != want {
						t.Fatalf("word %d is %d, want %v", i, got, want)
					}
				}
				g.Seed(seed)
				for i, want := range c.Rand {
					if got := g.Float32(); float64(got) != want {
						t.Fatalf("rand %d is %v, want %v", i, got, want)
					}
				}
				for text, want := range c.Perms {
					size, _ := strconv.Atoi(text)
					if got := floats(New(seed).Perm(size)); !reflect.DeepEqual(got, want) {
						t.Errorf("permutation of %d: %v, want %v", size, got, want)
					}
				}
				if c.Linear != nil {
					checkLinear(t, seed, c.Linear.Weight, c.Linear.Bias)
				}
			})
		}
	}
	golden.Count(t, "train/rng", n)
}

func checkLinear(t *testing.T, seed uint64, weight [][]float64, bias []float64) {
	t.Helper()
	if len(weight) == 0 {
		return
	}
	in := len(weight[0])
	w, b := make([]float32, in*len(weight)), make([]float32, len(bias))
	New(seed).Linear(w, b, in)
	for i, row := range weight {
		for j, want := range row {
			if float64(w[i*in+j]) != want {
				t.Errorf("weight[%d][%d] is %v, want %v", i, j, w[i*in+j], want)
			}
		}
	}
	for i, want := range bias {
		if float64(b[i]) != want {
			t.Errorf("bias[%d] is %v, want %v", i, b[i], want)
		}
	}
}

func floats(x []int) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// The numbers of this test were printed by torch 2.15.
func TestDrawsOfEveryKindFollowTorch(t *testing.T) {
	g := New(5)
	if got := g.Int63(); got != 4095051218741643470 {
		t.Errorf("random_ is %d", got)
	}
	for _, draw := range []struct {
		n    int
		want []int
	}{
		{10, []int{7, 5, 6, 0, 2}},
		{1 << 29, []int{487097352, 479936231, 68323739}},
		{1 << 40, []int{483262925470, 894627945991, 876979584911}},
	} {
		for i, want := range draw.want {
			if got := g.IntN(draw.n); got != want {
				t.Errorf("randint(0, %d) number %d is %d, want %d", draw.n, i, got, want)
			}
		}
	}
	if g := New(7); g.Float64() != 0.279380429906404 || g.Float64() != 0.27369371365176565 {
		t.Error("float64 numbers differ")
	}
	if g := New(1<<40 + 7); g.Float32() != 0.5349225401878357 {
		t.Error("a wide seed is not cut to 32 bits")
	}
	if g := New(uint64(math.MaxUint64 - 2)); g.Float32() != 0.6248647570610046 || g.InitialSeed() != 18446744073709551613 {
		t.Error("a negative seed differs")
	}
}

func TestNormalFollowsTorch(t *testing.T) {
	for _, want := range [][]float32{
		{-0.1467950940132141, 0.7861412763595581, 0.9468216300010681, -1.1143440008163452, 1.6907901763916016},
		{-0.8201345205307007, 0.39563116431236267, 0.8989084959030151, -1.3884038925170898, 0.19844505190849304, 0.7820726633071899,
			1.0391076803207397, -0.7245107293128967, -0.8489086031913757, -1.2169294357299805, -0.08102158457040787, 1.3614851236343384,
			-2.0614778995513916, 0.6741006970405579, -1.3233457803726196, -1.3597689867019653, -0.866701602935791, -0.5640066862106323,
			-2.056462526321411, -0.35672253370285034},
	} {
		got := make([]float32, len(want))
		New(7).Normal(got, 0, 1)
		for i := range want {
			if !(math.Abs(float64(got[i]-want[i])) <= 5e-7) {
				t.Errorf("number %d of %d is %v, want %v", i, len(want), got[i], want[i])
			}
		}
	}
}

func TestAStateContinues(t *testing.T) {
	g := New(3)
	g.Normal(make([]float32, 3), 0, 1)
	for range 700 {
		g.Uint32()
	}
	b, err := g.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	var h Generator
	if err := h.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*g, h) {
		t.Error("the state came back different")
	}
	if g.normal() != h.normal() || g.Uint64() != h.Uint64() {
		t.Error("the copy continues differently")
	}
	for _, bad := range [][]byte{nil, b[1:], func() []byte { c := append([]byte(nil), b...); c[8+4*words+1] = 9; return c }()} {
		if err := h.UnmarshalBinary(bad); err == nil {
			t.Errorf("a state of %d bytes was taken", len(bad))
		}
	}
}

func TestEmptyDraws(t *testing.T) {
	g := New(0)
	if g.Perm(0) != nil || g.Perm(-1) != nil || g.IntN(0) != 0 {
		t.Error("draws of nothing")
	}
	g.Linear(nil, nil, 0)
	if g.Uint32() != New(0).Uint32() {
		t.Error("drawing nothing took a number")
	}
}

func BenchmarkPerm(b *testing.B) {
	g := New(1)
	for b.Loop() {
		g.Perm(50000)
	}
}
