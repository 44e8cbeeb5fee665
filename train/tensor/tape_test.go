package tensor

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/train/rng"
)

// random makes a parameter of numbers in ±1.
func random(seed uint64, shape ...int) *Parameter {
	r := rand.New(rand.NewPCG(seed, 7))
	v := make([]float32, count(shape))
	for i := range v {
		v[i] = 2*r.Float32() - 1
	}
	return NewParameter(v, shape...)
}

// small is a decoder of one block, whose parameters are p.
type small struct{ embed, norm, q, k, v, o, gate, up, down *Parameter }

func newSmall() *small {
	return &small{random(1, 50, 32), random(2, 32), random(3, 32, 32), random(4, 16, 32), random(5, 16, 32),
		random(6, 32, 32), random(7, 72, 32), random(8, 72, 32), random(9, 32, 72)}
}

func (s *small) all() []*Parameter {
	return []*Parameter{s.embed, s.norm, s.q, s.k, s.v, s.o, s.gate, s.up, s.down}
}

func (s *small) block(tp *Tape, x *Tensor, drop RandomSource) *Tensor {
	shape, table := x.Shape(), NewRotary(8, 64, 10000)
	n := tp.RMSNorm(x, tp.Use(s.norm), 1e-6)
	heads := func(p *Parameter) *Tensor {
		return tp.Reshape(tp.Linear(n, tp.Use(p), nil), shape[0], shape[1], -1, 8)
	}
	a := tp.Attention(tp.Rope(heads(s.q), table, nil), tp.Rope(heads(s.k), table, nil), heads(s.v), AttentionOptions{Causal: true})
	x = tp.Add(x, tp.Dropout(tp.Linear(tp.Reshape(a, shape...), tp.Use(s.o), nil), 0.1, drop))
	n = tp.RMSNorm(x, tp.Use(s.norm), 1e-6)
	h := tp.SwiGLU(tp.Linear(n, tp.Use(s.gate), nil), tp.Linear(n, tp.Use(s.up), nil))
	return tp.Add(x, tp.Linear(h, tp.Use(s.down), nil))
}

// pass is the loss of a fixed batch; the block is computed twice where again is set.
func (s *small) pass(t *testing.T, o Options, again bool) float32 {
	t.Helper()
	for _, p := range s.all() {
		p.ZeroGrad()
	}
	tp, drop := NewTape(o), rng.New(5)
	ids := make([]int, 3*61)
	for i := range ids {
		ids[i] = i * i % 50
	}
	x := tp.Embedding(tp.Use(s.embed), ids, 3, 61)
	if again {
		x = tp.Checkpoint(func(tp *Tape, in []*Tensor) *Tensor { return s.block(tp, in[0], drop) }, []RewindableSource{drop}, x)
	} else {
		x = s.block(tp, x, drop)
	}
	loss := tp.LinearCrossEntropy(x, tp.Use(s.embed), ShiftLabels(ids, 61, CrossEntropyOptions{}), CrossEntropyOptions{})
	if err := tp.Backward(loss, 0.5); err != nil {
		t.Fatal(err)
	}
	return loss.Item()
}

func (s *small) grads() [][]float32 {
	var all [][]float32
	for _, p := range s.all() {
		all = append(all, p.Grad())
	}
	return all
}

func same(a, b [][]float32) bool { return slices.EqualFunc(a, b, slices.Equal[[]float32]) }

func TestThreadsDoNotChangeResults(t *testing.T) {
	for _, variant := range kernels.Names() {
		s := newSmall()
		loss := s.pass(t, Options{Threads: 1, Kernels: variant}, false)
		grads := s.grads()
		for _, threads := range []int{2, 3, 8} {
			if l := s.pass(t, Options{Threads: threads, Kernels: variant}, false); l != loss || !same(grads, s.grads()) {
				t.Errorf("%s: %d threads compute other bits than 1", variant, threads)
			}
		}
	}
}

func TestCheckpointIsBitwiseTheSame(t *testing.T) {
	s := newSmall()
	loss := s.pass(t, Options{}, false)
	grads := s.grads()
	if l := s.pass(t, Options{}, true); l != loss || !same(grads, s.grads()) {
		t.Error("computing a block again changes the gradients")
	}
}

func TestFusedLossIsTheLossOfLogits(t *testing.T) {
	const rows, classes = 300, 16000 // several chunks of rows
	x, w := random(1, rows, 8), random(2, classes, 8)
	labels := make([]int, rows)
	for i := range labels {
		labels[i] = i * 131 % classes
		if i%7 == 0 {
			labels[i] = IgnoreIndex
		}
	}
	for _, o := range []CrossEntropyOptions{{}, {Reduction: Sum}, {Smoothing: 0.1}, {Items: 12}} {
		tp := NewTape(Options{})
		run := func(loss *Tensor) (float32, [][]float32) {
			x.ZeroGrad()
			w.ZeroGrad()
			if err := tp.Backward(loss, 0.25); err != nil {
				t.Fatal(err)
			}
			return loss.Item(), [][]float32{x.Grad(), w.Grad()}
		}
		want, wantGrads := run(tp.CrossEntropy(tp.Linear(tp.Use(x), tp.Use(w), nil), labels, o))
		got, grads := run(tp.LinearCrossEntropy(tp.Use(x), tp.Use(w), labels, o))
		if !(math.Abs(float64(got-want)) <= 1e-6*float64(want)) {
			t.Errorf("%+v: the loss is %g, want %g", o, got, want)
		}
		for k := range grads {
			for i, g := range grads[k] {
				if w := wantGrads[k][i]; !(math.Abs(float64(g-w)) <= 1e-6*(1+math.Abs(float64(w)))) {
					t.Fatalf("%+v: gradient %d[%d] is %g, want %g", o, k, i, g, w)
				}
			}
		}
	}
}

func TestGradientsAddUp(t *testing.T) {
	w := NewParameter([]float32{2}, 1, 1)
	tp := NewTape(Options{})
	for range 3 {
		y := tp.Linear(tp.Input([]float32{1, 3}, 2, 1), tp.Use(w), nil)
		if err := Backward(tp.Sum(y), 0.5); err != nil {
			t.Fatal(err)
		}
	}
	if w.Grad()[0] != 6 {
		t.Errorf("three passes add up to %g, want 6", w.Grad()[0])
	}
	if w.ZeroGrad(); w.Grad() != nil {
		t.Error("ZeroGrad leaves a gradient")
	}
}

func TestFrozenParametersGetNoGradient(t *testing.T) {
	w, frozen := random(1, 4, 4), random(2, 4, 4)
	frozen.Trainable = false
	tp := NewTape(Options{})
	y := tp.Linear(tp.Linear(tp.Input(make([]float32, 8), 2, 4), tp.Use(w), nil), tp.Use(frozen), nil)
	if err := tp.Backward(tp.Sum(y), 1); err != nil {
		t.Fatal(err)
	}
	if frozen.Grad() != nil || w.Grad() == nil {
		t.Error("want a gradient of the trainable parameter only")
	}
}

func TestNoGradIsConstant(t *testing.T) {
	w, tp := random(1, 2, 2), NewTape(Options{})
	var y *Tensor
	tp.NoGrad(func() { y = tp.Sum(tp.Use(w)) })
	if y.RequiresGrad() {
		t.Error("a result within NoGrad wants a gradient")
	}
	if err := tp.Backward(y, 1); err == nil || !strings.Contains(err.Error(), "no trainable parameter") {
		t.Errorf("Backward of a constant: %v", err)
	}
}

func TestBadInputIsAnError(t *testing.T) {
	other := NewTape(Options{})
	for _, c := range []struct {
		want string
		f    func(tp *Tape, x *Tensor) *Tensor // x is [2 3]
	}{
		{"linear: weight has shape [2 3], bias [2 3]", func(tp *Tape, x *Tensor) *Tensor {
			return tp.Linear(tp.Transpose(tp.Transpose(x, 0, 1), 0, 1), tp.Input(make([]float32, 6), 2, 3), x)
		}},
		{"linear: operand 2 is missing", func(tp *Tape, x *Tensor) *Tensor { return tp.Linear(x, nil, nil) }},
		{"linear: x has shape [2 3], weight [3 2]", func(tp *Tape, x *Tensor) *Tensor { return tp.Linear(x, tp.Transpose(x, 0, 1), nil) }},
		{"add: cannot broadcast shapes [2 3] and [2]", func(tp *Tape, x *Tensor) *Tensor { return tp.Add(x, tp.Input(make([]float32, 2))) }},
		{"matmul: a has shape [2 3], b [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.MatMul(x, x) }},
		{"embedding: got id 7 at position 1, want one of the rows of weight of shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.Embedding(x, []int{1, 7}) }},
		{"cross_entropy: got label 3 at position 1, want one below 3", func(tp *Tape, x *Tensor) *Tensor { return tp.CrossEntropy(x, []int{-100, 3}, CrossEntropyOptions{}) }},
		{"cross_entropy: got 1 labels for 2 rows", func(tp *Tape, x *Tensor) *Tensor { return tp.CrossEntropy(x, []int{1}, CrossEntropyOptions{}) }},
		{"causal_loss: logits have shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.CausalLoss(x, nil, CrossEntropyOptions{}) }},
		{"mse: got shapes [2 3] and []", func(tp *Tape, x *Tensor) *Tensor { return tp.MSE(x, tp.Scalar(1), Mean) }},
		{"attention: q has shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.Attention(x, x, x, AttentionOptions{}) }},
		{"rope: x has shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.Rope(x, nil, nil) }},
		{"rmsnorm: x has shape [2 3], weight [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.RMSNorm(x, x, 1) }},
		{"softmax: x has shape [2 3]: dimension 2 is out of range", func(tp *Tape, x *Tensor) *Tensor { return tp.Softmax(x, 2) }},
		{"reshape: x has shape [2 3], which does not fill [4 1]", func(tp *Tape, x *Tensor) *Tensor { return tp.Reshape(x, 4, -1) }},
		{"reshape", func(tp *Tape, x *Tensor) *Tensor { return tp.Reshape(x, 1<<62, 8, -1) }},
		{"slice: x has shape [2 3]: [1:4] of dimension 1 is out of range", func(tp *Tape, x *Tensor) *Tensor { return tp.Slice(x, 1, 1, 4) }},
		{"concat: shapes [2 3] and [6]", func(tp *Tape, x *Tensor) *Tensor { return tp.Concat(0, x, tp.Reshape(x, 6)) }},
		{"select: x has shape [2 3]: entry -1 is out of range", func(tp *Tape, x *Tensor) *Tensor { return tp.Select(x, -1) }},
		{"conv2d: x has shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.Conv2D(x, x, nil, ConvOptions{}) }},
		{"maxpool2d: x has shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.MaxPool2D(x, 2, 2, 0) }},
		{"batchnorm2d: x has shape [2 3]", func(tp *Tape, x *Tensor) *Tensor { return tp.BatchNorm2D(x, x, x, nil) }},
		{"dropout: got probability 2", func(tp *Tape, x *Tensor) *Tensor { return tp.Dropout(x, 2, constant(0)) }},
		{"input: got 3 elements for shape [2]", func(tp *Tape, _ *Tensor) *Tensor { return tp.Input(make([]float32, 3), 2) }},
		{"belongs to another tape", func(tp *Tape, x *Tensor) *Tensor { return tp.Add(x, other.Scalar(1)) }},
		{"the loss has shape [2 3], want one element", func(_ *Tape, x *Tensor) *Tensor { return x }},
	} {
		tp := NewTape(Options{})
		y := c.f(tp, tp.Use(random(1, 2, 3)))
		err := tp.Backward(tp.SiLU(y), 1)
		if err == nil || !strings.HasPrefix(err.Error(), "tensor: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		if tp.Err() != nil {
			t.Errorf("%q sticks to the tape after Backward", c.want)
		}
	}
}

func TestTensorOfAFreedPass(t *testing.T) {
	tp, w := NewTape(Options{}), random(1, 2)
	y := tp.SiLU(tp.Use(w))
	if err := tp.Backward(tp.Sum(y), 1); err != nil {
		t.Fatal(err)
	}
	if err := tp.Backward(tp.Sum(y), 1); err == nil || !strings.Contains(err.Error(), "belongs to a pass whose record was freed") {
		t.Errorf("a second Backward: %v", err)
	}
}

func TestUnknownKernels(t *testing.T) {
	tp := NewTape(Options{Kernels: "abacus"})
	if err := tp.Backward(tp.Scalar(1), 1); err == nil || !strings.Contains(err.Error(), "abacus") {
		t.Errorf("got %v", err)
	}
}
