package tensor

import (
	"fmt"
	"testing"
)

// gflops reports the rate of an operation of n multiplications and additions.
func gflops(b *testing.B, n float64) {
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
}

func BenchmarkLinear(b *testing.B) {
	for _, s := range [][3]int{{2048, 288, 768}, {2048, 768, 768}, {2048, 768, 3072}} {
		rows, in, out := s[0], s[1], s[2]
		x, w := random(1, rows, in), random(2, out, in)
		for _, threads := range []int{1, 2} {
			tp := NewTape(Options{Threads: threads})
			flops := 2 * float64(rows) * float64(in) * float64(out)
			b.Run(fmt.Sprintf("forward/%dx%dx%d/threads=%d", rows, in, out, threads), func(b *testing.B) {
				for b.Loop() {
					tp.NoGrad(func() { tp.Linear(tp.Use(x), tp.Use(w), nil) })
				}
				gflops(b, flops)
			})
			up := make([]float32, rows*out)
			b.Run(fmt.Sprintf("both/%dx%dx%d/threads=%d", rows, in, out, threads), func(b *testing.B) {
				for b.Loop() {
					if err := tp.BackwardFrom(tp.Linear(tp.Use(x), tp.Use(w), nil), up); err != nil {
						b.Fatal(err)
					}
				}
				gflops(b, 3*flops)
			})
		}
	}
}

// BenchmarkMatMul has many small products and few large ones, forward and back.
func BenchmarkMatMul(b *testing.B) {
	for _, s := range [][4]int{{96, 16, 16, 16}, {96, 128, 64, 128}, {1, 1024, 512, 512}} {
		x, y := random(1, s[0], s[1], s[2]), random(2, s[0], s[2], s[3])
		tp, up := NewTape(Options{}), make([]float32, s[0]*s[1]*s[3])
		b.Run(fmt.Sprint(s), func(b *testing.B) {
			for b.Loop() {
				if err := tp.BackwardFrom(tp.MatMul(tp.Use(x), tp.Use(y)), up); err != nil {
					b.Fatal(err)
				}
			}
			gflops(b, 6*float64(s[0]*s[1]*s[2]*s[3]))
		})
	}
}

// BenchmarkCrossEntropy measures the allocations of a pass with logits and without.
func BenchmarkCrossEntropy(b *testing.B) {
	const rows, width, classes = 1024, 64, 32000
	x, w := random(1, rows, width), random(2, classes, width)
	labels := make([]int, rows)
	for i := range labels {
		labels[i] = i * 31 % classes
	}
	for _, c := range []struct {
		name string
		loss func(tp *Tape) *Tensor
	}{
		{"logits", func(tp *Tape) *Tensor {
			return tp.CrossEntropy(tp.Linear(tp.Use(x), tp.Use(w), nil), labels, CrossEntropyOptions{})
		}},
		{"fused", func(tp *Tape) *Tensor {
			return tp.LinearCrossEntropy(tp.Use(x), tp.Use(w), labels, CrossEntropyOptions{})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.ZeroGrad()
				w.ZeroGrad()
				if err := Backward(c.loss(NewTape(Options{})), 1); err != nil {
					b.Fatal(err)
				}
			}
			gflops(b, 6*rows*width*classes)
		})
	}
}

func BenchmarkAttention(b *testing.B) {
	const length, heads, width = 256, 6, 48
	q, k, v := random(1, 8, length, heads, width), random(2, 8, length, heads, width), random(3, 8, length, heads, width)
	tp, up := NewTape(Options{}), make([]float32, 8*length*heads*width)
	for b.Loop() {
		if err := tp.BackwardFrom(tp.Attention(tp.Use(q), tp.Use(k), tp.Use(v), AttentionOptions{Causal: true}), up); err != nil {
			b.Fatal(err)
		}
	}
	gflops(b, 8*heads*length*length*width*2*7/2)
}

// BenchmarkLayers are operations of layers on 2048 rows of 768 elements, forward and back.
func BenchmarkLayers(b *testing.B) {
	const batch, length, heads, width = 8, 256, 12, 64
	x, y, w := random(1, batch, length, heads, width), random(2, batch, length, heads, width), random(3, heads*width)
	table, kernel := NewRotary(width, length, 10000), random(4, 16, 16, 3, 3)
	rows := func(tp *Tape, p *Parameter) *Tensor { return tp.Reshape(tp.Use(p), batch*length, heads*width) }
	for _, c := range []struct {
		name string
		run  func(tp *Tape) *Tensor
	}{
		{"RMSNorm", func(tp *Tape) *Tensor { return tp.RMSNorm(rows(tp, x), tp.Use(w), 1e-5) }},
		{"LayerNorm", func(tp *Tape) *Tensor { return tp.LayerNorm(rows(tp, x), tp.Use(w), tp.Use(w), 1e-5) }},
		{"Rope", func(tp *Tape) *Tensor { return tp.Rope(tp.Use(x), table, nil) }},
		{"SiLU", func(tp *Tape) *Tensor { return tp.SiLU(rows(tp, x)) }},
		{"GELU", func(tp *Tape) *Tensor { return tp.GELU(rows(tp, x)) }},
		{"GELUTanh", func(tp *Tape) *Tensor { return tp.GELUTanh(rows(tp, x)) }},
		{"ReLU", func(tp *Tape) *Tensor { return tp.ReLU(rows(tp, x)) }},
		{"Tanh", func(tp *Tape) *Tensor { return tp.Tanh(rows(tp, x)) }},
		{"Sigmoid", func(tp *Tape) *Tensor { return tp.Sigmoid(rows(tp, x)) }},
		{"Softmax", func(tp *Tape) *Tensor { return tp.Softmax(rows(tp, x), -1) }},
		{"LogSoftmax", func(tp *Tape) *Tensor { return tp.LogSoftmax(rows(tp, x), -1) }},
		{"Conv2D", func(tp *Tape) *Tensor {
			return tp.Conv2D(tp.Reshape(tp.Use(x), batch*4, 16, 24, 128), tp.Use(kernel), nil, ConvOptions{Padding: 1})
		}},
		{"SwiGLU", func(tp *Tape) *Tensor { return tp.SwiGLU(rows(tp, x), rows(tp, y)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tp, up := NewTape(Options{}), make([]float32, batch*length*heads*width)
			b.ReportAllocs()
			for b.Loop() {
				if err := tp.BackwardFrom(c.run(tp), up); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(up)), "ns/elem")
		})
	}
}
