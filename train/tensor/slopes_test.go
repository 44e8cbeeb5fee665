package tensor

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestGradientsOfTorchsOperationsAreSlopes compares with central differences.
func TestGradientsOfTorchsOperationsAreSlopes(t *testing.T) {
	positive := func(tp *Tape, x *Tensor) *Tensor { return tp.Add(tp.Sigmoid(x), tp.Scalar(0.5)) }
	probability := func(tp *Tape, x *Tensor) *Tensor { return tp.Sigmoid(x) }
	for _, c := range []slope{
		{"exp and neg", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.Exp(tp.Neg(in[0])) }},
		{"log, sqrt and pow", matrix, func(tp *Tape, in []*Tensor) *Tensor {
			x := positive(tp, in[0])
			return tp.Add(tp.Log(x), tp.Add(tp.Sqrt(x), tp.Pow(x, -1.5)))
		}},
		{"log_sigmoid and softplus", matrix, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Mul(tp.LogSigmoid(in[0]), tp.Softplus(in[0], 2, 0))
		}},
		{"div and pow", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Div(in[0], tp.PowTensor(positive(tp, in[1]), in[0]))
		}},
		{"where", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Where(tp.Bools([]bool{true}, 1), in[0], in[1])
		}},
		{"bce", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.BCE(probability(tp, in[0]), probability(tp, in[1]), BCEOptions{})
		}},
		{"bce_with_logits", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.BCEWithLogits(in[0], in[1], BCEOptions{Reduction: Sum, PosWeight: tp.Scalar(2), Weight: tp.Scalar(0.5)})
		}},
		{"kl", pair, func(tp *Tape, in []*Tensor) *Tensor {
			return tp.Add(tp.KLDiv(in[0], probability(tp, in[1]), false, BatchMean), tp.KLDiv(in[0], in[1], true, Sum))
		}},
		{"stack, split, expand and pad", pair, func(tp *Tape, in []*Tensor) *Tensor {
			parts := tp.Split(tp.Stack(1, in[0], in[1]), 1, 1)
			return tp.Pad(tp.Expand(tp.Mul(parts[0], parts[1]), -1, 2, -1), []int{1, -1, 0, 1}, 2)
		}},
		{"cumsum", matrix, func(tp *Tape, in []*Tensor) *Tensor { return tp.Mul(tp.CumSum(in[0], 0), tp.CumSum(in[0], 1)) }},
		{"masked attention", heads, func(tp *Tape, in []*Tensor) *Tensor {
			n := in[0].shape[1]
			keep := make([]bool, n)
			keep[n-1] = true
			return tp.Attention(in[0], in[1], in[2], AttentionOptions{Causal: true, Mask: tp.Keep(keep, 1, n)})
		}},
	} {
		t.Run(c.name, rapid.MakeCheck(func(t *rapid.T) { checkGradients(t, c.params(t), c.f) }))
	}
}

// TestOperationsRejectBadOperands with the operation's name and the shapes.
func TestOperationsRejectBadOperands(t *testing.T) {
	for _, c := range []struct {
		want string
		f    func(tp *Tape, x *Tensor) // x is [2 3]
	}{
		{"div: cannot broadcast shapes [2 3] and [2]", func(tp *Tape, x *Tensor) { tp.Div(x, tp.Input(make([]float32, 2))) }},
		{"where: cannot broadcast", func(tp *Tape, x *Tensor) { tp.Where(x, x, tp.Input(make([]float32, 2))) }},
		{"expand: x has shape [2 3], which cannot expand to [2 4]", func(tp *Tape, x *Tensor) { tp.Expand(x, 2, 4) }},
		{"expand: x has shape [2 3]", func(tp *Tape, x *Tensor) { tp.Expand(x, 3) }},
		{"expand: x has shape [2 3]", func(tp *Tape, x *Tensor) { tp.Expand(x, -1, 2, 3) }},
		{"stack: got shapes [2 3] and [6]", func(tp *Tape, x *Tensor) { tp.Stack(0, x, tp.Reshape(x, 6)) }},
		{"stack: dimension 3", func(tp *Tape, x *Tensor) { tp.Stack(3, x, x) }},
		{"split: x has shape [2 3]: invalid size 0", func(tp *Tape, x *Tensor) { tp.Split(x, 0, 1) }},
		{"split: x has shape [2 3]: got sizes [1 1]", func(tp *Tape, x *Tensor) { tp.SplitSizes(x, []int{1, 1}, 1) }},
		{"pad: x has shape [2 3]: got 3 numbers", func(tp *Tape, x *Tensor) { tp.Pad(x, []int{1, 2, 3}, 0) }},
		{"pad: x has shape [2 3]: cannot pad dimension 1 by -4 and 0", func(tp *Tape, x *Tensor) { tp.Pad(x, []int{-4, 0}, 0) }},
		{"cumsum: x has shape [2 3]: dimension 2", func(tp *Tape, x *Tensor) { tp.CumSum(x, 2) }},
		{"argmax: x has shape [2 3]: dimension 2", func(tp *Tape, x *Tensor) { tp.Argmax(x, 2) }},
		{"topk: x has shape [2 3]: got k = 4", func(tp *Tape, x *Tensor) { tp.TopK(x, 4, 1, false) }},
		{"nll: got label 3 at position 0", func(tp *Tape, x *Tensor) { tp.NLL(x, []int{3, 0}, NLLOptions{}) }},
		{"bce: got x = 2 at position 0, want a probability", func(tp *Tape, x *Tensor) {
			y := tp.Add(tp.Mul(x, tp.Scalar(0)), tp.Scalar(2))
			tp.BCE(y, y, BCEOptions{})
		}},
		{"bce_with_logits: x has shape [2 3], target [6]", func(tp *Tape, x *Tensor) { tp.BCEWithLogits(x, tp.Reshape(x, 6), BCEOptions{}) }},
		{"huber: got delta 0", func(tp *Tape, x *Tensor) { tp.Huber(x, x, 0, Mean) }},
		{"l1: got reduction", func(tp *Tape, x *Tensor) { tp.L1(x, x, BatchMean) }},
		{"batchnorm1d: x has shape [6]", func(tp *Tape, x *Tensor) { tp.BatchNorm1D(tp.Reshape(x, 6), nil, nil, NewBatchNorm(6)) }},
		{"attention: mask has shape [2 3]", func(tp *Tape, x *Tensor) {
			h := tp.Reshape(x, 1, 2, 1, 3)
			tp.Attention(h, h, h, AttentionOptions{Mask: x})
		}},
		{"operand 2 is missing", func(tp *Tape, x *Tensor) { tp.L1(x, nil, Mean) }},
	} {
		tp := NewTape(Options{})
		c.f(tp, tp.Use(random(1, 2, 3)))
		if err := tp.Reset(); err == nil || !strings.HasPrefix(err.Error(), "tensor: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestDetachStopsGradients: the discriminator's loss does not reach the generator.
func TestDetachStopsGradients(t *testing.T) {
	tp, w := NewTape(Options{}), random(1, 3)
	x := tp.Use(w)
	if err := tp.Backward(tp.Sum(tp.Mul(tp.Detach(x), x)), 1); err != nil {
		t.Fatal(err)
	}
	for i, v := range w.Data() {
		if w.Grad()[i] != v {
			t.Errorf("gradient %d is %g, want %g", i, w.Grad()[i], v)
		}
	}
}
