package model

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/train/tensor"
)

// batchGolden is what transformers computes for batches of one model (scripts/make-batch-fixtures.py).
// Pairs of numbers are a tensor's norm and its product with cos(0), cos(1), ….
type batchGolden struct {
	Hidden *struct { // nil for blocks of several streams
		IDs       []int
		Length    int
		States    [][2]float64
		Gradients map[string][2]float64
	}
	Texts struct {
		Texts     [][]int
		Loss      float64
		Gradients map[string][2]float64
	}
	Left   [][2]float64
	Router *struct {
		Loss, Auxiliary float64
		Gradients       map[string][2]float64
	}
}

// TestHiddenStatesOfSeveralStreams: the places between blocks of Gemma 3n have several states for each token, which are
// no [batch length hidden]; the state after the final norm is one.
func TestHiddenStatesOfSeveralStreams(t *testing.T) {
	dir := ownModel(t, "gemma3n")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := someBatch(3, 9, 4, 8)
	if _, err := m.AllHiddenStates(tensor.NewTape(tensor.Options{}), b, Options{}); err == nil || !strings.Contains(err.Error(), "several streams, 48 numbers for each token and not 16") {
		t.Errorf("got %v", err)
	}
	if states, err := m.HiddenStates(tensor.NewTape(tensor.Options{}), b, Options{}); err != nil || !slices.Equal(states.Shape(), []int{1, 4, 16}) {
		t.Errorf("states after the norm: %v, %v", states, err)
	}
}

// eachBatch calls f for each of the project's own models.
func eachBatch(t *testing.T, f func(t *testing.T, dir string, g *batchGolden)) {
	for _, path := range ownFiles(t, "batches.json.gz") {
		t.Run(filepath.Base(filepath.Dir(path)), func(t *testing.T) {
			var g batchGolden
			golden.JSON(t, strings.TrimSuffix(path, ".gz"), &g)
			f(t, golden.Unpacked(t, filepath.Dir(path)), &g)
		})
	}
}

// pairOf is the norm of a tensor and its product with cosines.
func pairOf(x []float32) (p [2]float64) {
	for i, v := range x {
		v := float64(v)
		p[0] += v * v
		p[1] += v * math.Cos(float64(i))
	}
	p[0] = math.Sqrt(p[0])
	return p
}

func checkPair(t *testing.T, name string, x []float32, want [2]float64) {
	t.Helper()
	got, scale := pairOf(x), 2e-5*(want[0]+1e-2)
	if got[0] < 1e-5 && want[0] < 1e-5 && len(x) > 0 {
		return // 0 but for rounding, as that of a bias of keys without rope
	}
	if !(math.Abs(got[0]-want[0]) <= scale && math.Abs(got[1]-want[1]) <= scale) {
		t.Errorf("%s: got norm and product %v, transformers has %v", name, got, want)
	}
}

func checkPairs(t *testing.T, m *Model, want map[string][2]float64) {
	t.Helper()
	got := named(t, m.Gradients)
	for name, w := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("no gradient %s", name)
		}
		checkPair(t, name, got[name], w)
	}
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
}

// TestHiddenStatesOfEveryKind compares the states of all places, and the gradients of a sum over them.
func TestHiddenStatesOfEveryKind(t *testing.T) {
	cases := 0
	eachBatch(t, func(t *testing.T, dir string, g *batchGolden) {
		if g.Hidden == nil {
			return // its blocks have several streams
		}
		cases++
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		b := Batch{IDs: g.Hidden.IDs, Length: g.Hidden.Length}
		for _, recompute := range []bool{false, true} {
			tp := tensor.NewTape(tensor.Options{})
			states, err := m.AllHiddenStates(tp, b, Options{Recompute: recompute})
			if err != nil {
				t.Fatal(err)
			}
			if len(states) != len(g.Hidden.States) {
				t.Fatalf("got %d states, transformers has %d", len(states), len(g.Hidden.States))
			}
			var loss *tensor.Tensor
			for place, s := range states {
				if shape := s.Shape(); !slices.Equal(shape, []int{len(b.IDs) / b.Length, b.Length, m.spec.Hidden}) {
					t.Errorf("state %d has shape %v", place, shape)
				}
				checkPair(t, "state", s.Data(), g.Hidden.States[place])
				by := make([]float32, s.Len())
				for i := range by {
					by[i] = float32(math.Cos(float64(i + place)))
				}
				part := tp.Sum(tp.Mul(s, tp.Input(by, s.Shape()...)))
				if loss == nil {
					loss = part
				} else {
					loss = tp.Add(loss, part)
				}
			}
			last, err := m.HiddenStates(tp, b, Options{})
			if err != nil || !slices.Equal(last.Data(), states[len(states)-1].Data()) {
				t.Errorf("the last states differ: %v", err)
			}
			if err := tp.Backward(loss, 1); err != nil {
				t.Fatal(err)
			}
			checkPairs(t, m, g.Hidden.Gradients)
		}
	})
	if cases < 30 {
		t.Errorf("got hidden states of %d models, want at least 30", cases)
	}
}

// TestHiddenStatesHaveGradients compares the gradients of the last states by a head of one's own with
// those of all states, and those of the logits' loss.
func TestHiddenStatesHaveGradients(t *testing.T) {
	dir := ownModel(t, "gemma2")
	m, err := openFile(t, dir, dir, Freeze(func(path string) bool { return path == "lm_head.weight" }))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	head := tensor.NewParameter(make([]float32, m.spec.Hidden), 1, m.spec.Hidden)
	for i := range head.Data() {
		head.Data()[i] = float32(i%3) - 0.5
	}
	b := Batch{IDs: []int{3, 9, 4, 8, 30, 12}, Length: 3}
	var first map[string][]float32
	for _, all := range []bool{false, true} {
		tp := tensor.NewTape(tensor.Options{})
		var last *tensor.Tensor
		if all {
			states, err := m.AllHiddenStates(tp, b, Options{})
			if err != nil {
				t.Fatal(err)
			}
			last = states[len(states)-1]
		} else if last, err = m.HiddenStates(tp, b, Options{}); err != nil {
			t.Fatal(err)
		}
		values := tp.Linear(last, tp.Use(head), nil)
		if err := tp.Backward(tp.Sum(tp.Mul(values, values)), 1); err != nil {
			t.Fatal(err)
		}
		got := named(t, m.Gradients)
		if first == nil {
			first = got
		}
		for name, g := range got {
			if !slices.Equal(g, first[name]) {
				t.Errorf("%s differs", name)
			}
		}
		for _, p := range m.Parameters() {
			p.ZeroGrad()
		}
	}
	if pairOf(first["model.layers.0.self_attn.q_proj.weight"])[0] == 0 || head.Grad() == nil {
		t.Error("no gradients")
	}
}
