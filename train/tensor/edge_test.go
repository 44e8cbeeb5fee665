package tensor

import (
	"math"
	"testing"

	"github.com/heftai/heft/internal/kernels"
)

// TestSlopesOfGatesKeepTheirPrecision: where a sigmoid is close to 1 its distance to 1 counts.
func TestSlopesOfGatesKeepTheirPrecision(t *testing.T) {
	var x []float32
	for v := float32(-12); v < 12; v += 1.0 / 256 {
		x = append(x, v)
	}
	ones := make([]float32, len(x))
	for i := range ones {
		ones[i] = 1
	}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	for _, variant := range kernels.Names() {
		for _, c := range []struct {
			name  string
			f     func(*Tape, *Tensor) *Tensor
			slope func(float64) float64
		}{
			{"silu", (*Tape).SiLU, func(v float64) float64 { return sigmoid(v) * (1 + v*sigmoid(-v)) }},
			{"swiglu", func(tp *Tape, x *Tensor) *Tensor { return tp.SwiGLU(x, tp.Input(ones)) }, func(v float64) float64 {
				return sigmoid(v) * (1 + v*sigmoid(-v))
			}},
			{"gelu", (*Tape).GELU, func(v float64) float64 {
				return 0.5*math.Erfc(-v/math.Sqrt2) + v*math.Exp(-v*v/2)/math.Sqrt(2*math.Pi)
			}},
			{"gelu_tanh", (*Tape).GELUTanh, func(v float64) float64 {
				c := 2 * math.Sqrt(2/math.Pi)
				u := c * (v + 0.044715*v*v*v)
				return sigmoid(u) * (1 + v*sigmoid(-u)*c*(1+3*0.044715*v*v))
			}},
		} {
			tp, p := NewTape(Options{Kernels: variant}), NewParameter(x)
			if err := tp.BackwardFrom(c.f(tp, tp.Use(p)), ones); err != nil {
				t.Fatal(err)
			}
			for i, v := range x {
				if want := c.slope(float64(v)); !(math.Abs(float64(p.Grad()[i])-want) <= 4e-7) {
					t.Errorf("%s (%s) at %v: slope %v, want %v", c.name, variant, v, p.Grad()[i], want)
					break
				}
			}
		}
	}
}

// TestMatMulRepeatsBatches, as torch's does.
func TestMatMulRepeatsBatches(t *testing.T) {
	tp := NewTape(Options{})
	a := NewParameter([]float32{1, 2, 3, 4}, 2, 1, 1, 2) // two batches of one row
	b := NewParameter([]float32{1, 1, 2, 0, 0, 3}, 3, 2, 1)
	y := tp.MatMul(tp.Use(a), tp.Use(b))
	want := []float32{3, 2, 6, 7, 6, 12}
	if !y.is(2, 3, 1, 1) {
		t.Fatalf("the product has shape %v (%v)", y.Shape(), tp.Err())
	}
	for i, v := range want {
		if y.Data()[i] != v {
			t.Errorf("product %v, want %v", y.Data(), want)
			break
		}
	}
	if err := tp.Backward(tp.Sum(y), 1); err != nil {
		t.Fatal(err)
	}
	for i, v := range []float32{3, 4, 3, 4} {
		if a.Grad()[i] != v {
			t.Errorf("gradient of a %v, want [3 4 3 4]", a.Grad())
			break
		}
	}
	for i, v := range []float32{4, 6, 4, 6, 4, 6} {
		if b.Grad()[i] != v {
			t.Errorf("gradient of b %v, want 4 and 6 in turn", b.Grad())
			break
		}
	}
}

func vector(tp *Tape, n int) *Tensor { return tp.Input(make([]float32, n), n) }

// TestEmptyTensors: operations on tensors without rows succeed or return an error, but never panic.
func TestEmptyTensors(t *testing.T) {
	for _, group := range []map[string]func(tp *Tape, x *Tensor) *Tensor{emptyMaps, emptyLayers} { // x is [0 4]
		for name, f := range group {
			t.Run(name, func(t *testing.T) {
				tp := NewTape(Options{})
				y := f(tp, tp.Use(NewParameter(nil, 0, 4)))
				if tp.Err() != nil {
					t.Logf("refused: %v", tp.Err())
				}
				_ = tp.Backward(tp.Sum(y), 1)
			})
		}
	}
}

var emptyMaps = map[string]func(tp *Tape, x *Tensor) *Tensor{
	"linear": func(tp *Tape, x *Tensor) *Tensor {
		return tp.Linear(x, tp.Input(make([]float32, 12), 3, 4), vector(tp, 3))
	},
	"conv1d": func(tp *Tape, x *Tensor) *Tensor {
		return tp.Conv1D(x, tp.Input(make([]float32, 12), 4, 3), vector(tp, 3))
	},
	"matmul": func(tp *Tape, x *Tensor) *Tensor { return tp.MatMul(x, tp.Input(make([]float32, 12), 4, 3)) },
	"matmul of 0": func(tp *Tape, x *Tensor) *Tensor {
		return tp.MatMul(tp.Input(make([]float32, 6), 2, 3), tp.Input(nil, 0, 3, 2))
	},
	"matmul by 0": func(tp *Tape, x *Tensor) *Tensor { return tp.MatMul(tp.Transpose(x, 0, 1), x) },
	"add":         func(tp *Tape, x *Tensor) *Tensor { return tp.Add(x, vector(tp, 4)) },
	"add of 1":    func(tp *Tape, x *Tensor) *Tensor { return tp.Mul(x, tp.Input(make([]float32, 1), 1, 1)) },
	"rmsnorm":     func(tp *Tape, x *Tensor) *Tensor { return tp.RMSNorm(x, vector(tp, 4), 1e-6) },
	"layernorm":   func(tp *Tape, x *Tensor) *Tensor { return tp.LayerNorm(x, vector(tp, 4), nil, 1e-6) },
	"no width": func(tp *Tape, x *Tensor) *Tensor {
		return tp.LayerNorm(tp.Transpose(x, 0, 1), tp.Input(nil, 0), nil, 1e-6)
	},
	"softmax":     func(tp *Tape, x *Tensor) *Tensor { return tp.Softmax(x, -1) },
	"softmax 0":   func(tp *Tape, x *Tensor) *Tensor { return tp.Softmax(x, 0) },
	"log_softmax": func(tp *Tape, x *Tensor) *Tensor { return tp.LogSoftmax(x, 0) },
	"silu":        (*Tape).SiLU,
	"gelu":        (*Tape).GELU,
	"gelu_tanh":   (*Tape).GELUTanh,
	"relu":        (*Tape).ReLU,
	"tanh":        (*Tape).Tanh,
	"sigmoid":     (*Tape).Sigmoid,
	"swiglu":      func(tp *Tape, x *Tensor) *Tensor { return tp.SwiGLU(x, x) },
	"embedding":   func(tp *Tape, x *Tensor) *Tensor { return tp.Embedding(tp.Input(make([]float32, 4), 2, 2), nil, 0, 3) },
	"of nothing":  func(tp *Tape, x *Tensor) *Tensor { return tp.Embedding(x, nil, 0) },
}

var emptyLayers = map[string]func(tp *Tape, x *Tensor) *Tensor{
	"mean": func(tp *Tape, x *Tensor) *Tensor { return tp.CrossEntropy(x, nil, CrossEntropyOptions{}) },
	"sum":  func(tp *Tape, x *Tensor) *Tensor { return tp.CrossEntropy(x, nil, CrossEntropyOptions{Reduction: Sum}) },
	"none": func(tp *Tape, x *Tensor) *Tensor {
		return tp.CrossEntropy(x, nil, CrossEntropyOptions{Reduction: None})
	},
	"head": func(tp *Tape, x *Tensor) *Tensor {
		return tp.LinearCrossEntropy(x, tp.Input(make([]float32, 12), 3, 4), nil, CrossEntropyOptions{})
	},
	"causal": func(tp *Tape, x *Tensor) *Tensor {
		return tp.CausalLoss(tp.Reshape(x, 0, 2, 2), nil, CrossEntropyOptions{})
	},
	"mse":       func(tp *Tape, x *Tensor) *Tensor { return tp.MSE(x, x, Mean) },
	"dropout":   func(tp *Tape, x *Tensor) *Tensor { return tp.Dropout(x, 0.5, constant(0.7)) },
	"sums":      func(tp *Tape, x *Tensor) *Tensor { return tp.Add(tp.SumDim(x, 0), tp.Add(tp.Sum(x), tp.Mean(x))) },
	"mean of 0": func(tp *Tape, x *Tensor) *Tensor { return tp.MeanDim(x, 0) },
	"concat":    func(tp *Tape, x *Tensor) *Tensor { return tp.Concat(0, x, x) },
	"gather":    func(tp *Tape, x *Tensor) *Tensor { return tp.Scatter(tp.Gather(x, nil), nil, 0) },
	"attention": func(tp *Tape, x *Tensor) *Tensor {
		h := tp.Reshape(x, 0, 1, 1, 4)
		return tp.Attention(h, h, h, AttentionOptions{Causal: true})
	},
	"attention of no tokens": func(tp *Tape, x *Tensor) *Tensor {
		h := tp.Reshape(x, 2, 0, 1, 2)
		return tp.Attention(tp.Rope(h, NewRotary(2, 4, 100), nil), h, h, AttentionOptions{})
	},
	"conv2d": func(tp *Tape, x *Tensor) *Tensor {
		return tp.Conv2D(tp.Reshape(x, 0, 1, 2, 2), tp.Input(make([]float32, 1), 1, 1, 1, 1), nil, ConvOptions{})
	},
	"pools": func(tp *Tape, x *Tensor) *Tensor {
		h := tp.Reshape(x, 0, 1, 2, 2)
		return tp.Add(tp.MaxPool2D(h, 2, 2, 0), tp.Add(tp.AvgPool2D(h, 2, 2, 0), tp.AdaptiveAvgPool2D(h, 1, 1)))
	},
	"batchnorm2d": func(tp *Tape, x *Tensor) *Tensor {
		return tp.BatchNorm2D(tp.Reshape(x, 0, 1, 2, 2), vector(tp, 1), vector(tp, 1), NewBatchNorm(1))
	},
}
