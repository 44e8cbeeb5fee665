package main

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/heftai/heft/train/rng"
	"github.com/heftai/heft/train/tensor"
)

// resnet18 is torchvision's ResNet18 of any width: its names, shapes and initial
// distribution. The original has 64 channels in its first layer.
type resnet18 struct {
	names  []string
	params map[string]*tensor.Parameter
	norms  map[string]*tensor.BatchNorm // running moments: no parameters

	recompute bool // blocks in the backward pass
}

func newResNet18(width, classes int, g *rng.Generator) *resnet18 {
	m := &resnet18{params: map[string]*tensor.Parameter{}, norms: map[string]*tensor.BatchNorm{}}
	m.addConv("conv1", "bn1", width, 3, 7, g)
	in := width
	for layer := range 4 {
		out := width << layer
		for block := range 2 {
			name := fmt.Sprintf("layer%d.%d.", layer+1, block)
			m.addConv(name+"conv1", name+"bn1", out, in, 3, g)
			m.addConv(name+"conv2", name+"bn2", out, out, 3, g)
			if in != out {
				m.addConv(name+"downsample.0", name+"downsample.1", out, in, 1, g)
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

// addConv adds a convolution without bias, and the norm behind it. Weights are normal, their
// variance 2 by what a result's gradient is spread to (He's, fan out).
func (m *resnet18) addConv(conv, norm string, out, in, kernel int, g *rng.Generator) {
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

// conv is a convolution with its norm.
func (m *resnet18) conv(t *tensor.Tape, x *tensor.Tensor, conv, norm string, stride, padding int) *tensor.Tensor {
	x = t.Conv2D(x, t.Use(m.params[conv+".weight"]), nil, tensor.ConvOptions{Stride: stride, Padding: padding})
	return t.BatchNorm2D(x, t.Use(m.params[norm+".weight"]), t.Use(m.params[norm+".bias"]), m.norms[norm])
}

// block is a residual block.
func (m *resnet18) block(t *tensor.Tape, x *tensor.Tensor, name string, stride int) *tensor.Tensor {
	y := t.ReLU(m.conv(t, x, name+"conv1", name+"bn1", stride, 1))
	y = m.conv(t, y, name+"conv2", name+"bn2", 1, 1)
	if m.params[name+"downsample.0.weight"] != nil {
		x = m.conv(t, x, name+"downsample.0", name+"downsample.1", stride, 0)
	}
	return t.ReLU(t.Add(y, x))
}

// recomputed is block, which is run again in the backward pass. Its weights are in memory only while it runs, and the
// running moments of its norms move in the first run only.
func (m *resnet18) recomputed(t *tensor.Tape, x *tensor.Tensor, name string, stride int) *tensor.Tensor {
	ran := false
	return t.Checkpoint(func(t *tensor.Tape, in []*tensor.Tensor) *tensor.Tensor {
		if ran {
			defer m.keepMoments(name)()
		}
		ran = true
		return m.block(t, in[0], name, stride)
	}, nil, x)
}

// keepMoments returns a function that restores the running moments of a block's norms.
func (m *resnet18) keepMoments(block string) func() {
	var restore []func()
	for name, n := range m.norms {
		if strings.HasPrefix(name, block) {
			mean, variance := slices.Clone(n.Mean), slices.Clone(n.Var)
			restore = append(restore, func() { copy(n.Mean, mean); copy(n.Var, variance) })
		}
	}
	return func() {
		for _, f := range restore {
			f()
		}
	}
}

// forward makes logits of images [batch, 3, height, width].
func (m *resnet18) forward(t *tensor.Tape, x *tensor.Tensor) *tensor.Tensor {
	x = t.MaxPool2D(t.ReLU(m.conv(t, x, "conv1", "bn1", 2, 3)), 3, 2, 1)
	block := m.block
	if m.recompute {
		block = m.recomputed
	}
	for layer := range 4 {
		for i := range 2 {
			stride := 1
			if layer > 0 && i == 0 {
				stride = 2
			}
			x = block(t, x, fmt.Sprintf("layer%d.%d.", layer+1, i), stride)
		}
	}
	x = t.AdaptiveAvgPool2D(x, 1, 1)
	return t.Linear(t.Reshape(x, x.Shape()[0], -1), t.Use(m.params["fc.weight"]), t.Use(m.params["fc.bias"]))
}
