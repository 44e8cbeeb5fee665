package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
)

// resnetTrace is two runs of scripts/make-resnet-ddp-fixtures.py.
type resnetTrace struct {
	Batch, Size int
	Window      int `json:"gradient_accumulation"`
	Cases       []struct {
		Mode  string
		Ranks [][]resnetRow
	}
}

type resnetRow struct {
	Loss     float64
	Stepped  bool
	Conv1    []float64 `json:"conv1_first10"`
	Bias     []float64 `json:"fc_bias"`
	Mean     []float64 `json:"bn1_running_mean"`
	Variance []float64 `json:"bn1_running_var"`
	Last     []float64 `json:"last_running_var"`
}

// resnet is torchvision's ResNet18 of any width, with its batch norms' moments as buffers.
type resnet struct {
	names   []string
	params  map[string]*tensor.Parameter
	norms   map[string]*tensor.BatchNorm
	precise bool // convolutions in float64
}

func newResnet(init map[string]*tensor.Parameter) *resnet {
	r := &resnet{params: map[string]*tensor.Parameter{}, norms: map[string]*tensor.BatchNorm{}}
	for _, name := range slices.Sorted(maps.Keys(init)) {
		x := init[name]
		norm, isMean := strings.CutSuffix(name, ".running_mean")
		switch {
		case isMean:
			r.norms[norm] = tensor.NewBatchNorm(x.Len())
			copy(r.norms[norm].Mean, x.Data())
			copy(r.norms[norm].Var, init[norm+".running_var"].Data())
		case !strings.HasSuffix(name, ".running_var") && !strings.HasSuffix(name, ".num_batches_tracked"):
			r.names = append(r.names, name)
			r.params[name] = tensor.NewParameter(slices.Clone(x.Data()), x.Shape()...)
		}
	}
	return r
}

func (r *resnet) Parameters() iter.Seq2[string, *tensor.Parameter] {
	return func(yield func(string, *tensor.Parameter) bool) {
		for _, name := range r.names {
			if !yield(name, r.params[name]) {
				return
			}
		}
	}
}

func (r *resnet) Buffers() iter.Seq2[string, []float32] {
	return func(yield func(string, []float32) bool) {
		for _, name := range slices.Sorted(maps.Keys(r.norms)) {
			if n := r.norms[name]; !yield(name+".running_mean", n.Mean) || !yield(name+".running_var", n.Var) {
				return
			}
		}
	}
}

// values returns the weights and then the buffers.
func (r *resnet) values() map[string][]float32 {
	all := map[string][]float32{}
	for name, p := range r.params {
		all[name] = slices.Clone(p.Data())
	}
	for name, x := range r.Buffers() {
		all[name] = slices.Clone(x)
	}
	return all
}

func (r *resnet) forward(t *tensor.Tape, x *tensor.Tensor) *tensor.Tensor {
	use := func(name string) *tensor.Tensor { return t.Use(r.params[name]) }
	conv := func(x *tensor.Tensor, conv, norm string, stride, padding int) *tensor.Tensor {
		x = t.Conv2D(x, use(conv+".weight"), nil, tensor.ConvOptions{Stride: stride, Padding: padding, Double: r.precise})
		return t.BatchNorm2D(x, use(norm+".weight"), use(norm+".bias"), r.norms[norm])
	}
	x = t.MaxPool2D(t.ReLU(conv(x, "conv1", "bn1", 2, 3)), 3, 2, 1)
	for layer := range 4 {
		for block := range 2 {
			name, stride := fmt.Sprintf("layer%d.%d.", layer+1, block), 1
			if layer > 0 && block == 0 {
				stride = 2
			}
			y := conv(t.ReLU(conv(x, name+"conv1", name+"bn1", stride, 1)), name+"conv2", name+"bn2", 1, 1)
			if stride > 1 {
				x = conv(x, name+"downsample.0", name+"downsample.1", stride, 0)
			}
			x = t.ReLU(t.Add(y, x))
		}
	}
	x = t.AdaptiveAvgPool2D(x, 1, 1)
	return t.Linear(t.Reshape(x, x.Shape()[0], -1), use("fc.weight"), use("fc.bias"))
}

// batch makes the images and labels of a rank's step, as the script does.
func (c *resnetTrace) batch(steps, rank, step int) (pixels []float32, labels []int) {
	state := uint32(101 + rank*steps + step)
	next := func() int {
		state = state*1664525 + 1013904223
		return int(state >> 24)
	}
	plane := c.Size * c.Size
	mean, std := [3]float32{0.4914, 0.4822, 0.4465}, [3]float32{0.2023, 0.1994, 0.2010}
	for i := range c.Batch * 3 * plane {
		channel := i / plane % 3
		pixels = append(pixels, (float32(next())/255-mean[channel])/std[channel])
	}
	for range c.Batch {
		labels = append(labels, next()%10)
	}
	return pixels, labels
}

func (c *resnetTrace) loss(m *resnet, t *tensor.Tape, steps, rank, step int) *tensor.Tensor {
	pixels, labels := c.batch(steps, rank, step)
	return t.CrossEntropy(m.forward(t, t.Input(pixels, c.Batch, 3, c.Size, c.Size)), labels, tensor.CrossEntropyOptions{})
}

func resnetSGD(m Module) (optim.Optimizer, error) {
	return optim.NewSGD(Params(m), optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 5e-4})
}

// boosted is the loop of Colossal-AI's guide, with any plugin. after is called with each step's loss.
func (c *resnetTrace) boosted(ctx context.Context, m *resnet, p Plugin, w *World, steps int, due func(step int) bool, after func(step int, loss float64) error) error {
	sgd, err := resnetSGD(m)
	if err != nil {
		return err
	}
	b, err := NewBooster(p)
	if err != nil {
		return err
	}
	_, opt, _, _, _, err := b.Boost(m, sgd, nil, nil, nil)
	if err != nil {
		return err
	}
	opt.ZeroGrad()
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	for step := range steps {
		var loss *tensor.Tensor
		pass := func() error {
			loss = c.loss(m, tape, steps, w.Rank(), step)
			return b.Backward(ctx, tape.Scale(loss, 1/float32(c.Window)), opt)
		}
		if due(step) || !p.SupportNoSync() {
			err = pass()
		} else {
			err = b.NoSync(m, pass)
		}
		if err == nil && due(step) {
			err = opt.Step()
			opt.ZeroGrad()
		}
		if err == nil {
			err = after(step, float64(loss.Item()))
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

func resnetFixture(t *testing.T) (trace resnetTrace, dir string, init map[string]*tensor.Parameter) {
	t.Helper()
	dir = filepath.Join(golden.Module(t), "testdata", "golden", "train", "resnet_ddp")
	if !golden.JSON(t, filepath.Join(dir, "trace.json"), &trace) {
		t.Fatalf("no trace.json in %s", dir)
	}
	return trace, dir, readArrays(t, filepath.Join(dir, "..", "resnet", "init.safetensors"))
}

// Two ranks train ResNet18 to the weights of torch's DistributedDataParallel over gloo with every
// plugin. Running moments are rank 0's after each pass that averages gradients.
func TestGoldenResnetOnTwoRanks(t *testing.T) {
	trace, dir, init := resnetFixture(t)
	for _, c := range trace.Cases {
		final := readArrays(t, filepath.Join(dir, "final_"+c.Mode+".safetensors"))
		for name, plugin := range plugins {
			t.Run(c.Mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				report(t, Launch(t.Context(), len(c.Ranks), func(ctx context.Context, w *World) error {
					m, rows := newResnet(init), c.Ranks[w.Rank()]
					m.precise = true // or rounding decides in a few pools, and they in the losses that follow
					if w.Rank() > 0 {
						m.spoil()
					}
					err := trace.boosted(ctx, m, plugin(w), w, len(rows), func(i int) bool { return rows[i].Stepped }, func(i int, loss float64) error {
						sameMoments := w.Rank() == 0 || plugin(nil).SupportNoSync() && !rows[i].Stepped
						return rows[i].check(m, loss, sameMoments)
					})
					if err != nil {
						return err
					}
					for name, got := range m.values() {
						if m.params[name] == nil && w.Rank() > 0 {
							continue // moments of this rank's last passes, if their gradients were not averaged
						}
						if err := closeTo(name, widened(final[name].Data()), got); err != nil {
							return err
						}
					}
					return nil
				}))
			})
		}
	}
	golden.Count(t, "train/resnet_ddp", len(trace.Cases))
}

// spoil changes everything that preparing must replace with rank 0's.
func (r *resnet) spoil() {
	for _, p := range r.params {
		p.Data()[0]++
	}
	for _, x := range r.Buffers() {
		x[0]++
	}
}

func (row *resnetRow) check(m *resnet, loss float64, moments bool) error {
	if d := math.Abs(loss - row.Loss); !(d <= 2e-4) {
		return fmt.Errorf("loss %g, want %g", loss, row.Loss)
	}
	err := errors.Join(closeTo("first weights", row.Conv1, m.params["conv1.weight"].Data()[:len(row.Conv1)]),
		closeTo("last bias", row.Bias, m.params["fc.bias"].Data()))
	if moments {
		err = errors.Join(err, closeTo("first running mean", row.Mean, m.norms["bn1"].Mean), closeTo("first running variance", row.Variance, m.norms["bn1"].Var),
			closeTo("last running variance", row.Last, m.norms["layer4.1.bn2"].Var))
	}
	return err
}

// closeTo allows what rounding grows to in a few steps.
func closeTo(what string, want []float64, got []float32) error {
	if len(want) != len(got) {
		return fmt.Errorf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for k, m := range want {
		if !(math.Abs(float64(got[k])-m) <= 5e-4*max(1, math.Abs(m))) {
			return fmt.Errorf("%s: element %d is %g, want %g", what, k, got[k], m)
		}
	}
	return nil
}

func widened(x []float32) []float64 {
	all := make([]float64, len(x))
	for i, v := range x {
		all[i] = float64(v)
	}
	return all
}

// On one rank every plugin trains ResNet18 as a plain loop does, bit for bit.
func TestResnetOnOneRankIsPlainTraining(t *testing.T) {
	trace, _, init := resnetFixture(t)
	const steps = 4
	due := func(step int) bool { return step%(trace.Window-1) == 0 }
	plain := newResnet(init)
	opt, err := resnetSGD(plain)
	if err != nil {
		t.Fatal(err)
	}
	tape := tensor.NewTape(tensor.Options{Threads: 1})
	for step := range steps {
		if err := tensor.Backward(tape.Scale(trace.loss(plain, tape, steps, 0, step), 1/float32(trace.Window)), 1); err != nil {
			t.Fatal(err)
		}
		if due(step) {
			if err := opt.Step(); err != nil {
				t.Fatal(err)
			}
			opt.ZeroGrad()
		}
	}
	for name, plugin := range plugins {
		m := newResnet(init)
		err := trace.boosted(t.Context(), m, plugin(nil), nil, steps, due, func(int, float64) error { return nil })
		if err != nil || !maps.EqualFunc(m.values(), plain.values(), slices.Equal) {
			t.Errorf("%s: weights or moments are not those of a plain loop (%v)", name, err)
		}
	}
}

// Ranks without batches take part in the exchange of buffers, and end with those of a rank that
// trained.
func TestJoinedRanksShareBuffers(t *testing.T) {
	trace, _, init := resnetFixture(t)
	moments := make([]map[string][]float32, 3)
	report(t, Launch(t.Context(), 3, func(ctx context.Context, w *World) error {
		a, err := New(Config{World: w})
		if err != nil {
			return err
		}
		m := newResnet(init)
		if err := a.Prepare(m); err != nil {
			return err
		}
		tape := tensor.NewTape(tensor.Options{Threads: 1})
		err = a.JoinUnevenInputs(ctx, func(ctx context.Context) error {
			for step := range w.Rank() { // rank 0 has no batch
				if err := a.Backward(ctx, trace.loss(m, tape, 2, w.Rank(), step)); err != nil {
					return err
				}
			}
			return nil
		})
		moments[w.Rank()] = maps.Collect(m.Buffers())
		return err
	}))
	for r := range moments {
		if !maps.EqualFunc(moments[r], moments[2], slices.Equal) {
			t.Errorf("rank %d has other running moments than rank 2", r)
		}
	}
	if slices.Equal(moments[2]["bn1.running_mean"], init["bn1.running_mean"].Data()) {
		t.Error("the running moments are those before training")
	}
}
