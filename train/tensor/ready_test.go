package tensor

import (
	"fmt"
	"slices"
	"testing"
)

// A parameter is ready when no earlier operation uses it: while backward goes on for those that are
// used late, and never before the last use in reverse.
func TestParametersAreReadyInReverse(t *testing.T) {
	tape := NewTape(Options{Threads: 1})
	params := []*Parameter{NewParameter([]float32{2}), NewParameter([]float32{3}), NewParameter([]float32{5})}
	x := tape.Input([]float32{1})
	for _, i := range []int{0, 1, 2, 0} { // the first one is used again at the end
		x = tape.Mul(x, tape.Use(params[i]))
	}
	var order []string
	err := BackwardReady(tape.Sum(x), 1, func(p *Parameter) {
		i := slices.Index(params, p)
		order = append(order, fmt.Sprint(i, p.Grad()))
		if tape.open == 0 && i > 0 {
			t.Errorf("parameter %d was ready at the end only", i)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"2 [12]", "1 [20]", "0 [60]"}; !slices.Equal(order, want) {
		t.Errorf("ready in order %v, want %v", order, want)
	}
}

// A pass with operations whose parameters the tape does not know reports none early.
func TestFunctionsAndCheckpointsAreReadyAtTheEnd(t *testing.T) {
	tape, p := NewTape(Options{Threads: 1}), NewParameter([]float32{2})
	x := tape.Mul(tape.Input([]float32{1}), tape.Use(p))
	x = tape.Checkpoint(func(tp *Tape, in []*Tensor) *Tensor { return tp.Mul(in[0], tp.Use(p)) }, nil, x)
	if err := BackwardReady(tape.Sum(x), 1, func(*Parameter) { t.Error("reported early") }); err != nil {
		t.Fatal(err)
	}
	if p.Grad()[0] != 4 {
		t.Errorf("gradient %v, want 4", p.Grad())
	}
}

// A Function that knows its parameters reports each when it is complete, unless an earlier operation uses
// it.
func TestFunctionsReportTheirParameters(t *testing.T) {
	tape := NewTape(Options{Threads: 1})
	params := []*Parameter{NewParameter([]float32{2}), NewParameter([]float32{3}), NewParameter([]float32{5})}
	x := tape.Mul(tape.Input([]float32{1}), tape.Use(params[0]))
	inside := false
	out := tape.Function(Function{Name: "own", Data: []float32{30}, Shape: []int{1}, Inputs: []*Tensor{x}, Params: params,
		Backward: func(grad []float32) error {
			inside = true
			for i, g := range []float32{15, 10, 6} {
				params[i].SetGrad([]float32{g * grad[0]})
				tape.Complete(params[i])
			}
			tape.Gradient(x)[0] += 15 * grad[0]
			inside = false
			return nil
		}})
	var order []string
	err := BackwardReady(tape.Sum(out), 1, func(p *Parameter) {
		order = append(order, fmt.Sprint(slices.Index(params, p), inside, p.Grad()))
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 true [10]", "2 true [6]", "0 false [30]"}; !slices.Equal(order, want) {
		t.Errorf("ready in order %v, want %v", order, want)
	}
}
