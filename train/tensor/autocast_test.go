package tensor

import (
	"math"
	"testing"

	"github.com/heftai/heft/internal/floats"
)

// slowHalf rounds by definition: to the gap between halves around x.
func slowHalf(x float32) float32 {
	a := math.Abs(float64(x))
	if !(a < 65520) {
		return float32(math.Copysign(math.Inf(1), float64(x)))
	}
	_, exponent := math.Frexp(a)
	unit := math.Ldexp(1, max(exponent-11, -24))
	return float32(math.Copysign(math.RoundToEven(a/unit)*unit, float64(x)))
}

func TestHalvesRound(t *testing.T) {
	for b := uint32(0); b < 0x7f800000; b += 9973 {
		for _, x := range []float32{math.Float32frombits(b), -math.Float32frombits(b)} {
			if got, want := floats.RoundFloat16(x), slowHalf(x); math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%v rounds to %v, want %v", x, got, want)
			}
		}
	}
	for _, x := range []float32{65504, 65519, 65520, 65536, 6.1e-5, 5.9604645e-08, 2.9802322e-08, 2.9802326e-08, 8.940697e-08} {
		if got, want := floats.RoundFloat16(x), slowHalf(x); got != want {
			t.Errorf("%v rounds to %v, want %v", x, got, want)
		}
	}
	for _, p := range []Precision{BFloat16, Float16} {
		x := []float32{float32(math.NaN()), float32(math.Inf(-1)), float32(math.Copysign(0, -1))}
		round(x, x, p)
		if x[0] == x[0] || !math.IsInf(float64(x[1]), -1) || !math.Signbit(float64(x[2])) {
			t.Errorf("%v: %v", p, x)
		}
	}
}

func TestAutocastRoundsProducts(t *testing.T) {
	const third = float32(1) / 3
	for _, p := range []Precision{Float32, BFloat16, Float16} {
		want := third
		if p == BFloat16 {
			want = 0.33398438
		} else if p == Float16 {
			want = 0.33325195
		}
		for name, product := range map[string]func(tp *Tape, x, w *Tensor) *Tensor{
			"linear": func(tp *Tape, x, w *Tensor) *Tensor { return tp.Linear(x, w, nil) },
			"conv1d": func(tp *Tape, x, w *Tensor) *Tensor { return tp.Conv1D(x, w, nil) },
			"matmul": func(tp *Tape, x, w *Tensor) *Tensor { return tp.MatMul(x, w) },
			"conv2d": func(tp *Tape, x, w *Tensor) *Tensor {
				return tp.Conv2D(tp.Reshape(x, 1, 1, 1, 1), tp.Reshape(w, 1, 1, 1, 1), nil, ConvOptions{})
			},
		} {
			tape := NewTape(Options{Autocast: p})
			w := NewParameter([]float32{third}, 1, 1)
			y := product(tape, tape.Input([]float32{1}, 1, 1), tape.Use(w))
			if y.Data()[0] != want {
				t.Errorf("%v, %s: %v, want %v (%v)", p, name, y.Data(), want, tape.Err())
			}
			if err := tape.Backward(tape.Sum(y), 1); err != nil || w.Grad()[0] != 1 || w.Data()[0] != third {
				t.Errorf("%v, %s: gradient %v of %v (%v)", p, name, w.Grad(), w.Data(), err)
			}
		}
	}
}

func TestAutocastEndsAndNests(t *testing.T) {
	tape := NewTape(Options{})
	tape.Autocast(BFloat16, func() {
		tape.Autocast(Float32, func() {
			if tape.Autocasting() != Float32 {
				t.Error("float32 within bf16 is", tape.Autocasting())
			}
		})
		if tape.Autocasting() != BFloat16 {
			t.Error("bf16 is", tape.Autocasting())
		}
	})
	if tape.Autocasting() != Float32 {
		t.Error("afterwards it is", tape.Autocasting())
	}
}

// TestGradientsOverflowInFloat16: gradients for which a loss scale is too large become infinite in
// the gradients, as in torch, and not in bfloat16.
func TestGradientsOverflowInFloat16(t *testing.T) {
	for p, infinite := range map[Precision]bool{Float32: false, BFloat16: false, Float16: true} {
		tape := NewTape(Options{Autocast: p})
		w := NewParameter([]float32{1, 2, 3, 4}, 2, 2)
		y := tape.Linear(tape.Tanh(tape.Linear(tape.Input([]float32{1, 2}, 1, 2), tape.Use(w), nil)), tape.Use(w), nil)
		if err := tape.Backward(tape.Sum(y), 1e6); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, g := range w.Grad() {
			sum += float64(g)
		}
		if (math.IsInf(sum, 0) || math.IsNaN(sum)) != infinite {
			t.Errorf("%v: gradients %v", p, w.Grad())
		}
	}
}
