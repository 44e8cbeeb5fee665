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

// TestStateOutsideMemoryStepsTheSameBits for each rule, over several pieces, with steps that fail in the
// middle and are called again, and through saved states of both kinds.
func TestStateOutsideMemoryStepsTheSameBits(t *testing.T) {
	for name, make := range map[string]func([]Param) (*Descent, error){
		"AdamW":   func(p []Param) (*Descent, error) { return NewAdamW(p, DefaultAdamW()) },
		"AMSGrad": func(p []Param) (*Descent, error) { return NewAdam(p, AdamOptions{AMSGrad: true}) },
		"SGD":     func(p []Param) (*Descent, error) { return NewSGD(p, SGDOptions{LR: 0.1, Momentum: 0.9}) },
		"Adagrad": func(p []Param) (*Descent, error) {
			return NewAdagrad(p, AdagradOptions{LR: 0.1, Initial: 0.5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			full := 0
			params := func(from []Param) (all []Param) {
				for _, n := range []int{3*share + 5, 7} {
					v := &VectorParam{Value: noisy(r, n)}
					if from != nil {
						v.Value = slices.Clone(from[len(all)].Data())
					}
					all = append(all, v)
				}
				return all
			}
			in := params(nil)
			out := params(in)
			a, err := make(in)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := make(out)
			if err := b.KeepState(keeper(&full)); err != nil {
				t.Fatal(err)
			}
			step := func() {
				t.Helper()
				for i, p := range in {
					g := noisy(r, len(p.Data()))
					p.(*VectorParam).Gradient, out[i].(*VectorParam).Gradient = g, slices.Clone(g)
				}
				if err := a.Step(); err != nil {
					t.Fatal(err)
				}
				full = 3 // in the second piece or parameter
				err := b.Step()
				if full == 0 {
					if !errors.Is(err, errFull) {
						t.Fatalf("a full disk: got %v", err)
					}
					err = b.Step()
				}
				full = 0
				if err != nil {
					t.Fatal(err)
				}
				for i := range in {
					if !slices.Equal(in[i].Data(), out[i].Data()) || out[i].Grad() != nil {
						t.Fatalf("parameter %d differs, or has a gradient still", i)
					}
				}
			}
			step()
			step()
			// States go from either kind to either kind.
			saved := b.State()
			if err := a.LoadState(saved); err != nil {
				t.Fatal(err)
			}
			if err := b.LoadState(a.State()); err != nil {
				t.Fatal(err)
			}
			step()
			if err := b.KeepState(keeper(&full)); err == nil {
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
