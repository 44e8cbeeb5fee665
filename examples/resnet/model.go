package main

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// resnet18 is torchvision's ResNet18 of any width: its names, shapes and initial
// distribution. The original has 64 channels in its first layer.
type resnet18 struct {
	names  []string
	params map[string]*tensor.Parameter
	norms  map[string]*tensor.BatchNorm // running moments: no parameters
}

func newResNet18(width, classes int, g *rng.Generator) *resnet18 {
	m := &resnet18{params: map[string]*tensor.Parameter{}, norms: map[string]*tensor.BatchNorm{}}
	m.conv("conv1", "bn1", width, 3, 7, g)
	in := width
	for layer := range 4 {
		out := width << layer
		for block := range 2 {
			name := fmt.Sprintf("layer%d.%d.", layer+1, block)
			m.conv(name+"conv1", name+"bn1", out, in, 3, g)
			m.conv(name+"conv2", name+"bn2", out, out, 3, g)
			if in != out {
				m.conv(name+"downsample.0", name+"downsample.1", out, in, 1, g)
			}
			in = out
		}
	}
	weight, bias := make([]float32, classes*in), make([]float32, classes)
	g.Linear(weight, bias, in)
	m.add("fc.weight", weight, classes, in)
	m.add("fc.bias", bias, classes)
	return m
}

func (m *resnet18) add(name string, x []float32, shape ...int) {
	m.names = append(m.names, name)
	m.params[name] = tensor.NewParameter(x, shape...)
}

// conv adds a convolution without bias, and the norm behind it. Weights are normal, their
// variance 2 by what a result's gradient is spread to (He's, fan out).
func (m *resnet18) conv(conv, norm string, out, in, kernel int, g *rng.Generator) {
	x := make([]float32, out*in*kernel*kernel)
	g.Normal(x, 0, float32(math.Sqrt(2/float64(out*kernel*kernel))))
	m.add(conv+".weight", x, out, in, kernel, kernel)
	scale := make([]float32, out)
	for i := range scale {
		scale[i] = 1
	}
	m.add(norm+".weight", scale, out)
	m.add(norm+".bias", make([]float32, out), out)
	m.norms[norm] = tensor.NewBatchNorm(out)
}

func (m *resnet18) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for _, name := range m.names {
			if !yield(name, m.params[name]) {
				return
			}
		}
	}
}

// Buffers yields the running moments, which all ranks take from rank 0.
func (m *resnet18) Buffers() iter.Seq2[string, []float32] {
	return func(yield func(string, []float32) bool) {
		for _, name := range slices.Sorted(maps.Keys(m.norms)) {
			if n := m.norms[name]; !yield(name+".running_mean", n.Mean) || !yield(name+".running_var", n.Var) {
				return
			}
		}
	}
}

// SetTraining chooses between the moments of a batch and the running ones.
func (m *resnet18) SetTraining(on bool) {
	for _, n := range m.norms {
		n.Training = on
	}
}

// forward makes logits of images [batch, 3, height, width].
func (m *resnet18) forward(t *tensor.Tape, x *tensor.Tensor) *tensor.Tensor {
	use := func(name string) *tensor.Tensor { return t.Use(m.params[name]) }
	conv := func(x *tensor.Tensor, conv, norm string, stride, padding int) *tensor.Tensor {
		x = t.Conv2D(x, use(conv+".weight"), nil, tensor.ConvOptions{Stride: stride, Padding: padding})
		return t.BatchNorm2D(x, use(norm+".weight"), use(norm+".bias"), m.norms[norm])
	}
	x = t.MaxPool2D(t.ReLU(conv(x, "conv1", "bn1", 2, 3)), 3, 2, 1)
	for layer := range 4 {
		for block := range 2 {
			name, stride := fmt.Sprintf("layer%d.%d.", layer+1, block), 1
			if layer > 0 && block == 0 {
				stride = 2
			}
			y := t.ReLU(conv(x, name+"conv1", name+"bn1", stride, 1))
			y = conv(y, name+"conv2", name+"bn2", 1, 1)
			if m.params[name+"downsample.0.weight"] != nil {
				x = conv(x, name+"downsample.0", name+"downsample.1", stride, 0)
			}
			x = t.ReLU(t.Add(y, x))
		}
	}
	x = t.AdaptiveAvgPool2D(x, 1, 1)
	return t.Linear(t.Reshape(x, x.Shape()[0], -1), use("fc.weight"), use("fc.bias"))
}
