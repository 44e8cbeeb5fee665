package tensor

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
)

// loose is a number of a fixture, or one of the strings for numbers that JSON lacks.
type loose float32

func (l *loose) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	*l = loose(v)
	return err
}

type torchArray struct {
	Shape []int
	Data  []loose
	Grad  bool
}

// torchCase is a case that scripts/make-tensor-fixtures.py made.
type torchCase struct {
	Name, Op string
	Attrs    struct {
		Beta, Threshold, Exponent, Delta float64
		Value                            float32
		Lo, Hi                           *float32
		Reduction                        string
		Labels, Shape, Pad               []int
		Weights                          []loose
		Ignore                           *int
		Dim, K, Weight                   int
		Stride, Padding, Dilation        int
		Groups, Kernel                   int
		PosWeight                        int  `json:"pos_weight"`
		LogTarget                        bool `json:"log_target"`
		Smallest, Training, Causal       bool
		Size                             any
	}
	Inputs []torchArray
	Out    torchArray
	Index  []int
	Up     []loose
	Grads  [][]loose
}

func numbers(v []loose) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// TestOperationsAreTorchs compares results and gradients with torch's, edge cases included.
func TestOperationsAreTorchs(t *testing.T) {
	b, err := golden.Read("testdata/torch.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []torchCase }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 180 {
		t.Fatalf("got %d cases, want at least 180", len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) { c.check(t) })
	}
}

func (c *torchCase) check(t *testing.T) {
	tp := NewTape(Options{})
	params, in := make([]*Parameter, len(c.Inputs)), make([]*Tensor, len(c.Inputs))
	for i, a := range c.Inputs {
		params[i] = NewStored(Memory(numbers(a.Data)), a.Shape...)
		params[i].Trainable = a.Grad
		in[i] = tp.Use(params[i])
	}
	out, index := c.run(tp, in)
	if err := tp.Err(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(index, c.Index) {
		t.Errorf("index is %v, torch's %v", index, c.Index)
	}
	if !out.is(c.Out.Shape...) {
		t.Fatalf("shape is %v, torch's %v", out, c.Out.Shape)
	}
	tolerance := 2e-6
	if c.Op == "conv2d" || c.Op == "matmul" { // whose sums have a hundred terms
		tolerance = 8e-6
	}
	closeTo(t, "result", out.Data(), numbers(c.Out.Data), tolerance)
	if c.Up == nil {
		return
	}
	if err := tp.BackwardFrom(out, numbers(c.Up)); err != nil {
		t.Fatal(err)
	}
	for i, g := range c.Grads {
		if g != nil {
			closeTo(t, "gradient "+strconv.Itoa(i), params[i].Grad(), numbers(g), tolerance)
		}
	}
}

// closeTo compares numbers with torch's: infinities and NaN must be equal.
func closeTo(t *testing.T, what string, got, want []float32, tolerance float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		equal := g == w || g != g && w != w
		if !equal && !(math.Abs(float64(g-w)) <= tolerance*(1+math.Abs(float64(w)))) {
			t.Errorf("%s[%d] is %g, torch's %g", what, i, g, w)
		}
	}
}

func (c *torchCase) reduction() Reduction {
	return map[string]Reduction{"mean": Mean, "sum": Sum, "none": None, "batchmean": BatchMean}[c.Attrs.Reduction]
}

// run runs the operation of a case.
func (c *torchCase) run(tp *Tape, in []*Tensor) (*Tensor, []int) {
	if f := map[string]func(*Tensor) *Tensor{"exp": tp.Exp, "log": tp.Log, "sqrt": tp.Sqrt, "neg": tp.Neg, "abs": tp.Abs, "log_sigmoid": tp.LogSigmoid}[c.Op]; f != nil {
		return f(in[0]), nil
	}
	a := &c.Attrs
	switch c.Op {
	case "softplus":
		return tp.Softplus(in[0], a.Beta, a.Threshold), nil
	case "pow":
		return tp.Pow(in[0], a.Exponent), nil
	case "clamp":
		lo, hi := float32(math.Inf(-1)), float32(math.Inf(1))
		if a.Lo != nil {
			lo = *a.Lo
		}
		if a.Hi != nil {
			hi = *a.Hi
		}
		return tp.Clamp(in[0], lo, hi), nil
	case "div":
		return tp.Div(in[0], in[1]), nil
	case "pow_tensor":
		return tp.PowTensor(in[0], in[1]), nil
	case "where":
		return tp.Where(in[0], in[1], in[2]), nil
	case "where_log":
		return tp.Where(in[0], tp.Clamp(in[1], 0, float32(math.Inf(1))), tp.Scalar(0)), nil
	case "argmax":
		return in[0], tp.Argmax(in[0], a.Dim)
	case "topk":
		return tp.TopK(in[0], a.K, a.Dim, a.Smallest)
	case "attention":
		return tp.Attention(in[0], in[1], in[2], AttentionOptions{Causal: a.Causal, Mask: in[3]}), nil
	case "batchnorm1d":
		s := NewBatchNorm(3)
		s.Training = a.Training
		fill(s.Mean, 0.25)
		fill(s.Var, 2)
		in = append(in, nil, nil)
		return tp.BatchNorm1D(in[0], in[1], in[2], s), nil
	}
	if y := c.layout(tp, in); y != nil {
		return y, nil
	}
	if y := c.product(tp, in); y != nil {
		return y, nil
	}
	return c.loss(tp, in), nil
}

func (c *torchCase) layout(tp *Tape, in []*Tensor) *Tensor {
	a := &c.Attrs
	switch c.Op {
	case "cumsum":
		return tp.CumSum(in[0], a.Dim)
	case "expand":
		return tp.Expand(in[0], a.Shape...)
	case "stack":
		return tp.Stack(a.Dim, in...)
	case "pad":
		return tp.Pad(in[0], a.Pad, a.Value)
	case "split":
		var parts []*Tensor
		if size, ok := a.Size.(float64); ok {
			parts = tp.Split(in[0], int(size), a.Dim)
		} else {
			var sizes []int
			for _, n := range a.Size.([]any) {
				sizes = append(sizes, int(n.(float64)))
			}
			parts = tp.SplitSizes(in[0], sizes, a.Dim)
		}
		for i, p := range parts {
			parts[i] = tp.Scale(tp.SumDim(p, 1-a.Dim), float32(i+1))
		}
		return tp.Concat(0, parts...)
	}
	return nil
}

// product runs operations that multiply, and those of images.
func (c *torchCase) product(tp *Tape, in []*Tensor) *Tensor {
	a := &c.Attrs
	switch c.Op {
	case "conv2d":
		in = append(in, nil)
		return tp.Conv2D(in[0], in[1], in[2], ConvOptions{Stride: a.Stride, Padding: a.Padding, Dilation: a.Dilation, Groups: a.Groups})
	case "maxpool2d":
		return tp.MaxPool2D(in[0], a.Kernel, a.Stride, a.Padding)
	case "avgpool2d":
		return tp.AvgPool2D(in[0], a.Kernel, a.Stride, a.Padding)
	case "adaptive_avgpool2d":
		return tp.AdaptiveAvgPool2D(in[0], a.Shape[0], a.Shape[1])
	case "matmul":
		return tp.MatMul(in[0], in[1])
	case "linear_cross_entropy":
		return tp.LinearCrossEntropy(in[0], in[1], a.Labels, CrossEntropyOptions{Reduction: c.reduction(), Smoothing: float64(a.Value)})
	}
	return nil
}

func (c *torchCase) loss(tp *Tape, in []*Tensor) *Tensor {
	a, r := &c.Attrs, c.reduction()
	bce := BCEOptions{Reduction: r}
	if a.Weight > 0 {
		bce.Weight = in[a.Weight]
	}
	if a.PosWeight > 0 {
		bce.PosWeight = in[a.PosWeight]
	}
	switch c.Op {
	case "l1":
		return tp.L1(in[0], in[1], r)
	case "huber":
		return tp.Huber(in[0], in[1], a.Delta, r)
	case "kl":
		return tp.KLDiv(in[0], in[1], a.LogTarget, r)
	case "bce":
		return tp.BCE(in[0], in[1], bce)
	case "bce_with_logits":
		return tp.BCEWithLogits(in[0], in[1], bce)
	case "nll":
		o := NLLOptions{Reduction: r, Ignore: a.Ignore}
		if a.Weights != nil {
			o.Weight = numbers(a.Weights)
		}
		return tp.NLL(in[0], a.Labels, o)
	}
	panic("no operation " + c.Op)
}
