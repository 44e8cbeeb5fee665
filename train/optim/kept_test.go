package optim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// array is a state array that fails when its disk is full.
type array struct {
	values []float32
	full   *int // acquisitions until it fails, once; 0 never
}

var errFull = errors.New("the disk is full")

func (a *array) Len() int { return len(a.values) }
func (a *array) Acquire(bool) ([]float32, error) {
	if *a.full > 0 {
		if *a.full--; *a.full == 0 {
			return nil, errFull
		}
	}
	return slices.Clone(a.values), nil
}
func (a *array) Release(write bool) error { return nil }

// held is an array whose changes stay.
type held struct{ array }

func (a *held) Acquire(w bool) ([]float32, error) {
	if _, err := a.array.Acquire(w); err != nil {
		return nil, err
	}
	return a.values, nil
}

func keeper(full *int) Keeper {
	return Keeper{Elements: 1, New: func(_ string, n int, start float32) Array {
		return &held{array{slices.Repeat([]float32{start}, n), full}}
	}}
}

func noisy(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	return x
}

// twins are equal parameters of two optimizers; the second one keeps its state outside memory.
type twins struct {
	t       *testing.T
	r       *rand.Rand
	full    int
	in, out []Param
	a, b    *Descent
}

func newTwins(t *testing.T, make func([]Param) (*Descent, error)) *twins {
	w := &twins{t: t, r: rand.New(rand.NewPCG(1, 2))}
	for _, n := range []int{3*share + 5, 7} {
		v := &VectorParam{Value: noisy(w.r, n)}
		w.in, w.out = append(w.in, v), append(w.out, &VectorParam{Value: slices.Clone(v.Value)})
	}
	var err error
	if w.a, err = make(w.in); err != nil {
		t.Fatal(err)
	}
	if w.b, err = make(w.out); err != nil {
		t.Fatal(err)
	}
	if err := w.b.KeepState(keeper(&w.full)); err != nil {
		t.Fatal(err)
	}
	return w
}

// step steps both. The second one fails in the middle and is called again.
func (w *twins) step() {
	w.t.Helper()
	for i, p := range w.in {
		g := noisy(w.r, len(p.Data()))
		p.(*VectorParam).Gradient, w.out[i].(*VectorParam).Gradient = g, slices.Clone(g)
	}
	if err := w.a.Step(); err != nil {
		w.t.Fatal(err)
	}
	w.full = 3
	err := w.b.Step()
	if !errors.Is(err, errFull) {
		w.t.Fatalf("a full disk: got %v", err)
	}
	if err := w.b.Step(); err != nil {
		w.t.Fatal(err)
	}
	for i := range w.in {
		if !slices.Equal(w.in[i].Data(), w.out[i].Data()) || w.out[i].Grad() != nil {
			w.t.Fatalf("parameter %d differs, or has a gradient still", i)
		}
	}
}

// TestStateOutsideMemoryStepsTheSameBits for each rule, over several pieces, with steps that fail in the
// middle and are called again, and through saved states of both kinds.
func TestStateOutsideMemoryStepsTheSameBits(t *testing.T) {
	for name, make := range map[string]func([]Param) (*Descent, error){
		"AdamW":   func(p []Param) (*Descent, error) { return NewAdamW(p, DefaultAdamW()) },
		"AMSGrad": func(p []Param) (*Descent, error) { return NewAdam(p, AdamOptions{AMSGrad: true}) },
		"SGD":     func(p []Param) (*Descent, error) { return NewSGD(p, SGDOptions{LR: 0.1, Momentum: 0.9}) },
		"Adagrad": func(p []Param) (*Descent, error) { return NewAdagrad(p, AdagradOptions{LR: 0.1, Initial: 0.5}) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTwins(t, make)
			w.step()
			w.step()
			if err := w.a.LoadState(w.b.State()); err != nil {
				t.Fatal(err)
			}
			if err := w.b.LoadState(w.a.State()); err != nil {
				t.Fatal(err)
			}
			w.step()
			if err := w.b.KeepState(keeper(&w.full)); err == nil {
				t.Error("KeepState after a step: got no error")
			}
		})
	}
	f, err := NewAdafactor(nil, AdafactorOptions{LR: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.KeepState(Keeper{}); !errors.Is(err, errWhole) {
		t.Errorf("Adafactor: got %v", err)
	}
}
