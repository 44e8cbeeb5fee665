package tensor

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/heftai/heft/meta"
)

// twice makes two losses that share a layer.
func twice(tp *Tape, trunk, a, b *Parameter) (*Tensor, *Tensor) {
	x := tp.Tanh(tp.Linear(tp.Input([]float32{1, 2, -1, 0.5, 3, -2}, 2, 3), tp.Use(trunk), nil))
	half := tp.Slice(x, 0, 0, 1) // a view
	first := tp.Mean(tp.Linear(x, tp.Use(a), nil))
	second := tp.Sum(tp.Mul(tp.Linear(half, tp.Use(b), nil), half))
	return first, second
}

// TestTwoLossesOfOnePassCanEachBeReversed, in any order, as the losses of a GAN: the gradients are
// those of the sum.
func TestTwoLossesOfOnePassCanEachBeReversed(t *testing.T) {
	params := func() []*Parameter { return []*Parameter{random(1, 4, 3), random(2, 4, 4), random(3, 4, 4)} }
	want, tp := params(), NewTape(Options{})
	a, b := twice(tp, want[0], want[1], want[2])
	if err := tp.Backward(tp.Add(a, b), 1); err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		for _, within := range []bool{false, true} {
			got := params()
			for range 3 { // a pass after another
				for _, p := range got {
					p.ZeroGrad()
				}
				losses := make([]*Tensor, 2)
				run := func() *Tensor {
					losses[0], losses[1] = twice(tp, got[0], got[1], got[2])
					return losses[0]
				}
				if within {
					tp.Within(run)
				} else {
					run()
				}
				for _, i := range order {
					if err := tp.Backward(losses[i], 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i, p := range got {
				for j, g := range p.Grad() {
					if d := g - want[i].Grad()[j]; d > 1e-6 || d < -1e-6 {
						t.Fatalf("order %v, within %v: gradient %d[%d] is %g, want %g", order, within, i, j, g, want[i].Grad()[j])
					}
				}
			}
		}
	}
}

// TestASecondLossReadsParametersElsewhere that the first Backward released and that moved.
func TestASecondLossReadsParametersElsewhere(t *testing.T) {
	want := []*Parameter{random(1, 4, 3), random(2, 4, 4), random(3, 4, 4)}
	got := make([]*Parameter, len(want))
	for i, p := range want {
		got[i] = NewStored(&moving{values: slices.Clone(p.Data())}, p.Shape()...)
		got[i].Trainable, p.Trainable = i == 0, i == 0
	}
	for _, params := range [][]*Parameter{want, got} {
		tp := NewTape(Options{})
		a, b := twice(tp, params[0], params[1], params[2])
		for _, loss := range []*Tensor{a, b} {
			if err := tp.Backward(loss, 1); err != nil {
				t.Fatal(err)
			}
			for _, p := range params {
				if s, ok := p.Storage().(*moving); ok && s.uses != 0 {
					t.Errorf("a parameter is in use after Backward")
				}
			}
		}
	}
	if !slices.Equal(got[0].Grad(), want[0].Grad()) {
		t.Errorf("gradient %v, want %v", got[0].Grad(), want[0].Grad())
	}
}

// moving is a storage whose values are at another address each time that they are acquired, and
// that destroys those that were released.
type moving struct {
	values, lent []float32
	uses         int
}

func (m *moving) Len() int                   { return len(m.values) }
func (m *moving) DType() meta.DType          { return meta.Float32 }
func (m *moving) Resident() (int, []float32) { return 0, nil }
func (m *moving) Acquire(bool) ([]float32, error) {
	if m.uses++; m.uses == 1 {
		m.lent = slices.Clone(m.values)
	}
	return m.lent, nil
}
func (m *moving) Release(bool) error {
	if m.uses--; m.uses == 0 {
		fill(m.lent, 1e9)
		m.lent = nil
	}
	return nil
}

// TestEvaluationWithoutNoGradIsCollected: the tape does not keep tensors that the caller drops.
func TestEvaluationWithoutNoGradIsCollected(t *testing.T) {
	tp, w, freed := NewTape(Options{}), random(1, 64, 64), 0
	batch := func() weak.Pointer[Tensor] {
		y := tp.Within(func() *Tensor {
			return tp.Linear(tp.SiLU(tp.Linear(tp.Input(make([]float32, 64*64), 64, 64), tp.Use(w), nil)), tp.Use(w), nil)
		})
		tp.Function(Function{Name: "custom", Data: []float32{1}, Inputs: []*Tensor{y}, Free: func() { freed++ }})
		return weak.Make(y)
	}
	first := batch()
	for range 2000 {
		batch()
	}
	runtime.GC()
	if first.Value() != nil {
		t.Error("the result of the first batch is still in memory")
	}
	batch()
	if len(tp.frees) > 2 {
		t.Errorf("the tape keeps %d records", len(tp.frees))
	}
	if err := tp.Reset(); err != nil {
		t.Fatal(err)
	}
}

// TestBackwardOnADroppedRecordSaysWhatToDo, after Reset and after Backward.
func TestBackwardOnADroppedRecordSaysWhatToDo(t *testing.T) {
	tp, w := NewTape(Options{}), random(1, 2)
	for name, end := range map[string]func(*Tensor) error{
		"Reset":    func(*Tensor) error { return tp.Reset() },
		"Backward": func(loss *Tensor) error { return tp.Backward(loss, 1) },
	} {
		loss := tp.Sum(tp.SiLU(tp.Use(w)))
		if err := end(loss); err != nil {
			t.Fatal(err)
		}
		err := tp.Backward(loss, 1)
		if err == nil || !strings.Contains(err.Error(), "compute it again, or reverse the sum of the losses once") {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestAFunctionIsReversedOnce: two losses of its result are an error that names the way out.
func TestAFunctionIsReversedOnce(t *testing.T) {
	tp, freed := NewTape(Options{}), 0
	y := tp.Function(Function{Name: "custom", Data: []float32{1}, Trains: true, Backward: func([]float32) error { return nil }, Free: func() { freed++ }})
	a, b := tp.Scale(y, 2), tp.Scale(y, 3)
	if err := tp.Backward(a, 1); err != nil {
		t.Fatal(err)
	}
	err := tp.Backward(b, 1)
	if err == nil || !strings.Contains(err.Error(), "custom is reversed already") || !strings.Contains(err.Error(), "sum of the losses") {
		t.Errorf("got %v", err)
	}
	if freed != 1 {
		t.Errorf("freed %d times, want once", freed)
	}
}
