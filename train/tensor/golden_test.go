package tensor

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/internal/kernels"
)

// goldenCase is a case of ops/manifest.json.
type goldenCase struct {
	Name, File, Op string
	Attrs          map[string]any
	Inputs         map[string]struct {
		Shape []float64
		DType string
		Grad  bool
	}
	Outputs []string
	Off     map[string]struct {
		MaxAbs any `json:"max_abs"`
	} `json:"f32_vs_f64"`
}

func TestGoldenOps(t *testing.T) {
	var manifest struct{ Cases []goldenCase }
	if !golden.JSON(t, golden.Path(t, "train", "ops", "manifest.json"), &manifest) {
		golden.Count(t, "train/ops", 0)
		return
	}
	n := 0
	for _, c := range manifest.Cases {
		t.Run(c.Name, func(t *testing.T) {
			n++
			for _, variant := range kernels.Names() {
				newGoldenRun(t, c, variant).check()
			}
		})
	}
	golden.Count(t, "train/ops", n)
}

// goldenRun is one case on a tape.
type goldenRun struct {
	*testing.T
	c      goldenCase
	arrays map[string]goldenArray
	tape   *Tape
	params map[string]*Parameter
	after  map[string][]float32 // results in addition to out
}

func newGoldenRun(t *testing.T, c goldenCase, variant string) *goldenRun {
	file, err := golden.Read(golden.Path(t, "train", "ops", c.File))
	if err != nil {
		t.Fatal(err)
	}
	g := &goldenRun{T: t, c: c, arrays: goldenArrays(t, file), tape: NewTape(Options{Kernels: variant}), params: map[string]*Parameter{}, after: map[string][]float32{}}
	for name, in := range c.Inputs {
		if strings.HasPrefix(in.DType, "float") {
			a := g.arrays["in_"+name]
			g.params[name] = NewParameter(a.floats(), a.shape...)
			g.params[name].Trainable = in.Grad
		}
	}
	return g
}

// in is an input as a tensor, nil if the case has none of the name.
func (g *goldenRun) in(name string) *Tensor {
	if p := g.params[name]; p != nil {
		return g.tape.Use(p)
	}
	return nil
}

func (g *goldenRun) ints(name string) []int {
	var v []int
	for _, x := range g.arrays["in_"+name].v {
		v = append(v, int(x))
	}
	return v
}

// num returns an attribute, or its default.
func (g *goldenRun) num(name string, otherwise float64) float64 {
	if v, ok := g.c.Attrs[name].(float64); ok {
		return v
	}
	return otherwise
}

func (g *goldenRun) flag(name string) bool { return g.c.Attrs[name] == true }

func (g *goldenRun) check() {
	out := g.run()
	if err := g.tape.Err(); err != nil {
		g.Fatal(err)
	}
	up := []float32{1}
	if a, ok := g.arrays["grad_out"]; ok {
		up = a.floats()
	}
	if err := g.tape.BackwardFrom(out, up); err != nil {
		g.Fatal(err)
	}
	for _, name := range g.c.Outputs {
		got := g.after[name]
		if name == "out" {
			got = out.Data()
		} else if p, ok := strings.CutPrefix(name, "grad_"); ok {
			got = g.params[p].Grad()
		}
		g.compare(name, got)
	}
}

// compare allows 4 times what float32 itself is off, or 1e-6.
func (g *goldenRun) compare(name string, got []float32) {
	want, ok := g.arrays[name+"__f64"]
	if !ok {
		want = g.arrays[name]
	}
	if len(got) != len(want.v) {
		g.Errorf("%s has %d elements, want %d", name, len(got), len(want.v))
		return
	}
	off, _ := g.c.Off[name].MaxAbs.(float64)
	tolerance := max(4*off, 1e-6)
	for i, w := range want.v {
		v := float64(got[i])
		if math.IsNaN(w) && math.IsNaN(v) || v == w {
			continue
		}
		if !(math.Abs(v-w) <= tolerance) {
			g.Errorf("%s[%d] = %g, want %g within %.2g", name, i, v, w, tolerance)
			return
		}
	}
}

func (g *goldenRun) run() *Tensor {
	tp := g.tape
	switch g.c.Op {
	case "matmul":
		return tp.MatMul(g.in("a"), g.in("b"))
	case "linear":
		return tp.Linear(g.in("x"), g.in("weight"), g.in("bias"))
	case "conv1d_gpt2":
		return tp.Conv1D(g.in("x"), g.in("weight"), g.in("bias"))
	case "embedding":
		shape := g.arrays["in_ids"].shape
		if g.c.Attrs["padding_idx"] != nil {
			return tp.EmbeddingPadded(g.in("weight"), g.ints("ids"), int(g.num("padding_idx", 0)), shape...)
		}
		return tp.Embedding(g.in("weight"), g.ints("ids"), shape...)
	case "rmsnorm":
		return tp.RMSNorm(g.in("x"), g.in("weight"), g.num("eps", 1e-6))
	case "layernorm":
		return tp.LayerNorm(g.in("x"), g.in("weight"), g.in("bias"), g.num("eps", 1e-5))
	case "softmax":
		return tp.Softmax(g.in("x"), int(g.num("dim", -1)))
	case "log_softmax":
		return tp.LogSoftmax(g.in("x"), int(g.num("dim", -1)))
	case "sdpa":
		return g.attention()
	case "swiglu_mlp":
		h := tp.SwiGLU(tp.Linear(g.in("x"), g.in("gate_proj"), nil), tp.Linear(g.in("x"), g.in("up_proj"), nil))
		return tp.Linear(h, g.in("down_proj"), nil)
	case "cross_entropy":
		return tp.CrossEntropy(g.in("logits"), g.ints("labels"), g.lossOptions())
	case "causal_lm_loss":
		return tp.CausalLoss(g.in("logits"), g.ints("labels"), g.lossOptions())
	case "mse":
		return tp.MSE(g.in("x"), g.in("y"), g.lossOptions().Reduction)
	}
	return g.runSmall()
}

func (g *goldenRun) runSmall() *Tensor {
	tp, x := g.tape, g.in("x")
	size := func(name string) int { return int(g.num(name, 0)) }
	switch g.c.Op {
	case "silu":
		return tp.SiLU(x)
	case "relu":
		return tp.ReLU(x)
	case "tanh":
		return tp.Tanh(x)
	case "sigmoid":
		return tp.Sigmoid(x)
	case "gelu":
		if g.c.Attrs["approximate"] == "tanh" {
			return tp.GELUTanh(x)
		}
		return tp.GELU(x)
	case "dropout":
		if !g.flag("training") {
			return tp.Dropout(x, g.num("p", 0), nil)
		}
		return tp.Dropout(x, g.num("p", 0), constant(0.999))
	case "dropout_mask":
		return tp.DropoutMask(x, g.params["mask"].Data(), g.num("p", 0))
	case "residual_add":
		return tp.Add(x, g.in("y"))
	case "mul":
		return tp.Mul(x, g.in("y"))
	case "conv2d":
		return tp.Conv2D(x, g.in("weight"), g.in("bias"), ConvOptions{Stride: size("stride"), Padding: size("padding"), Dilation: size("dilation"), Groups: size("groups")})
	case "batchnorm2d":
		s := &BatchNorm{Mean: slices.Clone(g.params["running_mean"].Data()), Var: slices.Clone(g.params["running_var"].Data()),
			Momentum: g.num("momentum", 0.1), Eps: g.num("eps", 1e-5), Training: g.flag("training")}
		g.after["running_mean_after"], g.after["running_var_after"] = s.Mean, s.Var
		return tp.BatchNorm2D(x, g.in("weight"), g.in("bias"), s)
	case "maxpool2d":
		return tp.MaxPool2D(x, size("kernel"), size("stride"), size("padding"))
	case "avgpool2d":
		return tp.AvgPool2D(x, size("kernel"), size("stride"), size("padding"))
	case "adaptive_avgpool2d":
		to := g.c.Attrs["output"].([]any)
		return tp.AdaptiveAvgPool2D(x, int(to[0].(float64)), int(to[1].(float64)))
	}
	g.Fatalf("no operation %q", g.c.Op)
	return nil
}

// constant is a source of one number.
type constant float32

func (c constant) Float32() float32 { return float32(c) }

// attention brings [batch heads length width] to our layout and back.
func (g *goldenRun) attention() *Tensor {
	tp := g.tape
	q, k, v := tp.Transpose(g.in("q"), 1, 2), tp.Transpose(g.in("k"), 1, 2), tp.Transpose(g.in("v"), 1, 2)
	if g.flag("rope") {
		shape := q.Shape()
		table := NewRotary(shape[3], shape[1], g.num("rope_theta", 10000))
		q, k = tp.Rope(q, table, nil), tp.Rope(k, table, nil)
	}
	o := AttentionOptions{Causal: g.flag("causal"), Window: int(g.num("sliding_window", 0))}
	return tp.Transpose(tp.Attention(q, k, v, o), 1, 2)
}

func (g *goldenRun) lossOptions() CrossEntropyOptions {
	ignore := int(g.num("ignore_index", IgnoreIndex))
	o := CrossEntropyOptions{Ignore: &ignore, Smoothing: g.num("label_smoothing", 0), Items: g.num("num_items_in_batch", 0)}
	switch g.c.Attrs["reduction"] {
	case "sum":
		o.Reduction = Sum
	case "none":
		o.Reduction = None
	}
	return o
}

// goldenArray is an array of a safetensors file, widened.
type goldenArray struct {
	shape []int
	v     []float64
}

func (a goldenArray) floats() []float32 {
	out := make([]float32, len(a.v))
	for i, v := range a.v {
		out[i] = float32(v)
	}
	return out
}

// goldenArrays reads a safetensors file of trusted make.
func goldenArrays(t testing.TB, file []byte) map[string]goldenArray {
	t.Helper()
	size := binary.LittleEndian.Uint64(file)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	arrays := map[string]goldenArray{}
	for name, raw := range header {
		var h struct {
			DType   string
			Shape   []int
			Offsets [2]int `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &h); err != nil {
			t.Fatal(err)
		}
		b := file[8+size:][h.Offsets[0]:h.Offsets[1]]
		a := goldenArray{shape: h.Shape}
		for i := range count(h.Shape) {
			switch h.DType {
			case "F32":
				a.v = append(a.v, float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))))
			case "F64":
				a.v = append(a.v, math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])))
			case "U8":
				a.v = append(a.v, float64(b[i]))
			case "I64":
				a.v = append(a.v, float64(int64(binary.LittleEndian.Uint64(b[8*i:]))))
			default:
				t.Fatalf("array %s has dtype %s", name, h.DType)
			}
		}
		arrays[name] = a
	}
	return arrays
}
