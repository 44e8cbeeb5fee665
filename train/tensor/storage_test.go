package tensor_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/optim"
	"github.com/heftai/heft/train/tensor"
	"github.com/heftai/heft/train/tensor/tensortest"
)

// regress trains a small model for some steps and returns its last loss.
func regress(t *testing.T, w, b *tensor.Parameter) float32 {
	t.Helper()
	opt, err := optim.NewAdamW([]optim.Param{w, b}, optim.AdamOptions{LR: 0.1, WeightDecay: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	tp := tensor.NewTape(tensor.Options{})
	var last float32
	for range 5 {
		x := tp.Input([]float32{1, 2, 3, 4, 5, 6}, 2, 3)
		y := tp.Checkpoint(func(tp *tensor.Tape, in []*tensor.Tensor) *tensor.Tensor {
			return tp.Linear(in[0], tp.Use(w), tp.Use(b))
		}, nil, x)
		loss := tp.Mean(tp.Mul(y, y))
		last = loss.Item()
		if err := tp.Backward(loss, 1); err != nil {
			t.Fatal(err)
		}
		if err := opt.Step(); err != nil {
			t.Fatal(err)
		}
		opt.ZeroGrad()
	}
	return last
}

// A parameter whose numbers are not in memory trains to the same bits, and its storage is free
// after each pass.
func TestParametersElsewhereTrainTheSame(t *testing.T) {
	w, b := []float32{0.5, -0.25, 1, 0.125, 2, -1}, []float32{0.1, -0.2}
	in := []*tensor.Parameter{tensor.NewParameter(slices.Clone(w), 2, 3), tensor.NewParameter(slices.Clone(b))}
	stores := []*tensortest.Elsewhere{tensortest.NewElsewhere(w), tensortest.NewElsewhere(b)}
	out := []*tensor.Parameter{tensor.NewStored(stores[0], 2, 3), tensor.NewStored(stores[1], 2)}
	if want, got := regress(t, in[0], in[1]), regress(t, out[0], out[1]); got != want {
		t.Errorf("the loss is %v, want %v", got, want)
	}
	for i, p := range out {
		if stores[i].InUse() || p.Data() != nil {
			t.Errorf("parameter %d is in use after training", i)
		}
		err := p.Access(false, func(values []float32) error {
			if !slices.Equal(values, in[i].Data()) || !slices.Equal(p.Data(), values) {
				t.Errorf("parameter %d is %v, want %v", i, values, in[i].Data())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		p.Move(tensor.Memory{1, 2, 3, 4, 5, 6}[:p.Len()])
		if p.Data()[0] != 1 || p.DType() != meta.Float32 {
			t.Errorf("after Move: %v", p.Data())
		}
	}
}

// An error of a storage ends the pass or the step with its cause.
func TestStorageErrorsAreReported(t *testing.T) {
	broken := errors.New("the disk is gone")
	store := tensortest.NewElsewhere([]float32{1, 2})
	p := tensor.NewStored(store, 2)
	tp := tensor.NewTape(tensor.Options{})
	store.Fails = broken
	if err := tp.Backward(tp.Sum(tp.Use(p)), 1); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	loss := tp.Sum(tp.Use(p))
	store.Fails = broken
	if err := tp.Backward(loss, 1); !errors.Is(err, broken) || store.InUse() {
		t.Errorf("releasing: %v, in use %v", err, store.InUse())
	}
	opt, err := optim.NewSGD([]optim.Param{p}, optim.SGDOptions{LR: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.SetGrad([]float32{1, 1})
	store.Fails = broken
	if err := opt.Step(); !errors.Is(err, broken) {
		t.Errorf("stepping: %v", err)
	}
	tp.NoGrad(func() { tp.Use(p) })
	if err := tp.Reset(); err != nil || store.InUse() {
		t.Errorf("after Reset: %v, in use %v", err, store.InUse())
	}
}

// elsewhere is a storage of a gradient.
type elsewhere struct {
	*tensortest.Elsewhere
	drops int
}

func (s *elsewhere) Drop() {
	s.drops++
	values, _ := s.Acquire(true)
	clear(values)
	_ = s.Release(true)
}

// Gradients that are not in memory between passes and steps accumulate and step to the same bits.
func TestGradientsElsewhereTrainTheSame(t *testing.T) {
	w, b := []float32{0.5, -0.25, 1, 0.125, 2, -1}, []float32{0.1, -0.2}
	in := []*tensor.Parameter{tensor.NewParameter(slices.Clone(w), 2, 3), tensor.NewParameter(slices.Clone(b))}
	out := []*tensor.Parameter{tensor.NewParameter(slices.Clone(w), 2, 3), tensor.NewParameter(slices.Clone(b))}
	stores := []*elsewhere{{Elsewhere: tensortest.NewElsewhere(make([]float32, 6))}, {Elsewhere: tensortest.NewElsewhere(make([]float32, 2))}}
	for i, p := range out {
		p.KeepGrad(stores[i])
	}
	pass := func(p []*tensor.Parameter) {
		t.Helper()
		tp := tensor.NewTape(tensor.Options{})
		y := tp.Linear(tp.Input([]float32{1, 2, 3, 4, 5, 6}, 2, 3), tp.Use(p[0]), tp.Use(p[1]))
		if err := tp.Backward(tp.Mean(tp.Mul(y, y)), 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		pass(in)
		pass(out)
	}
	for i, p := range out {
		if stores[i].InUse() || p.Grad() != nil || !p.HasGrad() {
			t.Errorf("parameter %d: its gradient is in use, or lost", i)
		}
		p.ScaleGrad(0.3)
		in[i].ScaleGrad(0.3)
		err := p.AccessGrad(false, func(g []float32) error {
			if !slices.Equal(g, in[i].Grad()) || !slices.Equal(p.Grad(), g) {
				t.Errorf("the gradient of parameter %d is %v, want %v", i, g, in[i].Grad())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		p.ZeroGrad()
		in[i].ZeroGrad()
		if p.HasGrad() || stores[i].drops != 1 {
			t.Errorf("parameter %d: a gradient after ZeroGrad, or %d drops", i, stores[i].drops)
		}
	}
	if want, got := regress(t, in[0], in[1]), regress(t, out[0], out[1]); got != want {
		t.Errorf("the loss is %v, want %v", got, want)
	}
	broken := errors.New("the disk is gone")
	stores[0].Fails = broken
	tp := tensor.NewTape(tensor.Options{})
	if err := tp.Backward(tp.Sum(tp.Use(out[0])), 1); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}
