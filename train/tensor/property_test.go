package tensor

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// draw makes a parameter of numbers in ±scale, apart from 0 where operations bend.
func draw(t *rapid.T, name string, scale float64, shape ...int) *Parameter {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, name), 1))
	v := make([]float32, count(shape))
	for i := range v {
		x := (0.05 + 0.95*r.Float64()) * scale
		if r.IntN(2) == 0 {
			x = -x
		}
		v[i] = float32(x)
	}
	return NewParameter(v, shape...)
}

// checkGradients compares the gradient of a weighted sum of f's elements with central
// differences along every parameter.
func checkGradients(t *rapid.T, params []*Parameter, f func(tp *Tape, in []*Tensor) *Tensor) {
	tp := NewTape(Options{Threads: 1 + rapid.IntRange(0, 2).Draw(t, "threads")})
	run := func() *Tensor {
		in := make([]*Tensor, len(params))
		for i, p := range params {
			in[i] = tp.Use(p)
		}
		return f(tp, in)
	}
	out := run()
	up := make([]float32, out.Len())
	for i := range up {
		up[i] = float32(math.Sin(float64(3*i + 1)))
	}
	if err := tp.BackwardFrom(out, up); err != nil {
		t.Fatal(err)
	}
	value := func() (sum float64) {
		tp.NoGrad(func() {
			for i, v := range run().Data() {
				sum += float64(v) * float64(up[i])
			}
		})
		return sum
	}
	for k, p := range params {
		for _, i := range []int{0, len(p.Data()) / 2, len(p.Data()) - 1} {
			const h = 1.0 / 128
			at := p.Data()[i]
			rise := func(h float32) float64 {
				p.Data()[i] = at + h
				above := value()
				p.Data()[i] = at - h
				below := value()
				p.Data()[i] = at
				return above - below
			}
			slope, got := (8*rise(h)-rise(2*h))/(12*h), float64(p.Grad()[i])
			if !(math.Abs(slope-got) <= 2e-3*(1+math.Abs(slope))) {
				t.Fatalf("parameter %d, element %d: the gradient is %g, the slope %g", k, i, got, slope)
			}
		}
	}
}

func size(t *rapid.T, name string) int { return rapid.IntRange(1, 4).Draw(t, name) }

func norm(t *rapid.T) []*Parameter {
	b, n := size(t, "rows"), rapid.IntRange(2, 6).Draw(t, "width")
	return []*Parameter{draw(t, "x", 1, b, n), draw(t, "weight", 1, n), draw(t, "bias", 1, n)}
}

func matrix(t *rapid.T) []*Parameter {
	return []*Parameter{draw(t, "x", 2, size(t, "rows"), size(t, "width"))}
}

func pair(t *rapid.T) []*Parameter {
	a, b := size(t, "a"), size(t, "b")
	return []*Parameter{draw(t, "x", 1, a, b), draw(t, "y", 1, a, b)}
}

func product(shapes func(n, k, m int) [3][]int) func(t *rapid.T) []*Parameter {
	return func(t *rapid.T) []*Parameter {
		s := shapes(size(t, "n"), size(t, "k"), size(t, "m"))
		return []*Parameter{draw(t, "x", 1, s[0]...), draw(t, "weight", 1, s[1]...), draw(t, "bias", 1, s[2]...)}
	}
}

func image(t *rapid.T) []*Parameter {
	x := draw(t, "x", 1, size(t, "batch"), 2, 2+size(t, "height"), 2+size(t, "width"))
	for i := range x.Data() { // apart from each other, for the maximum
		x.Data()[i] = float32((i*7919)%97) / 20
	}
	return []*Parameter{x, draw(t, "weight", 1, 2, 1, 2, 2), draw(t, "bias", 1, 2)}
}

func heads(t *rapid.T) []*Parameter {
	b, n, g, w := size(t, "batch"), size(t, "length"), rapid.IntRange(1, 2).Draw(t, "groups"), 2*rapid.IntRange(1, 2).Draw(t, "width")
	return []*Parameter{draw(t, "q", 1, b, n, 2*g, w), draw(t, "k", 1, b, n, g, w), draw(t, "v", 1, b, n, g, w)}
}

func tokens(t *rapid.T) []*Parameter {
	n := size(t, "width")
	return []*Parameter{draw(t, "x", 1, 3, n), draw(t, "weight", 1, 5, n)}
}

// slope is an operation and the parameters it is checked with.
type slope struct {
	name   string
	params func(t *rapid.T) []*Parameter
	f      func(tp *Tape, in []*Tensor) *Tensor
}

func TestGradientsAreSlopes(t *testing.T) {
	for _, c := range []slope{
		{"linear", product(func(n, k, m int) [3][]int { return [3][]int{{n, k}, {m, k}, {m}} }),
			func(tp *Tape, in []*Tensor) *Tensor { return tp.Linear(in[0], in[1], in[2]) }},
		{"conv1d", product(func(n, k, m int) [3][]int { return [3][]int{{n, k}, {k, m}, {m}} }),
			func(tp *Tape, in []*Tensor) *Tensor { return tp.Conv1D(in[0], in[1], in[2]) }},
		{"matmul and add", product(func(n, k, m int) [3][]int { return [3][]int{{2, n, k}, {2, k, m}, {n, 1}} }),
			func(tp *Tape, in []*Tensor) *Tensor { return tp.Add(tp.MatMul(in[0], in[1]), in[2]) }},
		{"matmul of repeated batches", product(func(n, k, m int) [3][]int { return [3][]int{{2, 1, n, k}, {3, k, m}, {1}} }),
			func(tp *Tape, in []*Tensor) *Tensor { return tp.Add(tp.MatMul(in[0], in[1]), in[2]) }},
		{"matmul of a matrix and a batch", product(func(n, k, m int) [3][]int { return [3][]int{{n, k}, {2, k, m}, {m}} }),
			func(tp *Tape, in []*Tensor) *Tensor { return tp.Add(tp.MatMul(in[0], in[1]), in[2]) }},
		{"rmsnorm", norm, func(tp *Tape, in []*Tensor) *Tensor { return tp.Add(tp.RMSNorm(in[0], in[1], 0.05), in[2]) }},
		{"layernorm", norm, func(tp *Tape, in []*Tensor) *Tensor { return tp.LayerNorm(in[0], in[1], in[2], 0.05) }},
		{"softmax", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.Softmax(in[0], 0) }},
		{"log_softmax", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.LogSoftmax(in[0], 1) }},
		{"silu", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.SiLU(in[0]) }},
		{"gelu", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.GELU(in[0]) }},
		{"gelu_tanh", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.GELUTanh(in[0]) }},
		{"relu", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.ReLU(in[0]) }},
		{"tanh and sigmoid", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.Add(tp.Tanh(in[0]), tp.Sigmoid(in[0])) }},
		{"swiglu", pair, func(tp *Tape, in []*Tensor) *Tensor { return tp.SwiGLU(in[0], in[1]) }},
		{"sub and mul", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Mul(tp.Sub(in[0], in[1]), tp.Scale(in[0], 0.5))
		}},
		{"mse", pair, func(tp *Tape, in []*Tensor) *Tensor { return tp.MSE(in[0], in[1], Mean) }},
		{"concat, slice, select, transpose", pair, func(tp *Tape, in []*Tensor) *Tensor {
			x := tp.Concat(-1, in[0], in[1])
			y := tp.Mul(tp.Slice(x, 1, 1, x.Shape()[1]), tp.Slice(x, 1, 0, x.Shape()[1]-1))
			return tp.Mul(tp.Transpose(y, 0, 1), tp.Select(tp.Transpose(x, 0, 1), 0))
		}},
		{"gather and scatter", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Scatter(tp.Mul(tp.Gather(in[0], []int{0, 0}), tp.Gather(in[1], []int{0, 0})), []int{2, 1}, 3)
		}},
		{"sums and means", matrix, func(tp *Tape, in []*Tensor) *Tensor {
			x := tp.Mul(in[0], in[0])
			return tp.Mul(tp.Add(tp.SumDim(x, 0), tp.Mean(x)), tp.Add(tp.MeanDim(x, 0), tp.Sum(x)))
		}},
	} {
		t.Run(c.name, rapid.MakeCheck(func(t *rapid.T) { checkGradients(t, c.params(t), c.f) }))
	}
}

func TestGradientsOfLayersAreSlopes(t *testing.T) {
	for _, c := range []slope{
		{"attention", heads, func(tp *Tape, in []*Tensor) *Tensor {
			table := NewRotary(in[0].Shape()[3], 8, 100)
			return tp.Attention(tp.Rope(in[0], table, nil), tp.Rope(in[1], table, nil), in[2], AttentionOptions{Causal: true, Window: 2, Scale: 0.7})
		}},
		{"attention of all", heads, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Attention(in[0], in[1], in[2], AttentionOptions{})
		}},
		{"conv2d", image, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Conv2D(in[0], in[1], in[2], ConvOptions{Stride: 2, Padding: 1, Groups: 2})
		}},
		{"pooling", image, func(tp *Tape, in []*Tensor) *Tensor {
			x := tp.Mul(tp.Reshape(in[2], 2, 1, 1), tp.Mul(in[0], tp.Add(tp.Mean(in[1]), tp.Scalar(2))))
			return tp.Add(tp.AdaptiveAvgPool2D(tp.MaxPool2D(x, 2, 1, 1), 2, 2), tp.AdaptiveAvgPool2D(tp.AvgPool2D(x, 2, 2, 1), 2, 2))
		}},
		{"batchnorm2d", image, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.BatchNorm2D(in[0], in[2], tp.SumDim(tp.Reshape(in[1], 2, 4), 1), NewBatchNorm(2))
		}},
		{"cross_entropy", tokens, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.CrossEntropy(tp.Linear(in[0], in[1], nil), []int{4, -100, 0}, CrossEntropyOptions{Smoothing: 0.2})
		}},
		{"linear_cross_entropy", tokens, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.LinearCrossEntropy(in[0], in[1], []int{4, -100, 0}, CrossEntropyOptions{Smoothing: 0.2})
		}},
	} {
		t.Run(c.name, rapid.MakeCheck(func(t *rapid.T) { checkGradients(t, c.params(t), c.f) }))
	}
}
