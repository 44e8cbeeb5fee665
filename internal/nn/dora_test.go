package nn

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// magnified gives pairs magnitudes where they may have some, and removes the others.
func magnified(t *testing.T, root *meta.Module, m *machine, w *random, a *lora.Adapter) *lora.Adapter {
	t.Helper()
	kept := a.Pairs[:0]
	for i := range a.Pairs {
		p := a.Pairs[i]
		if number, err := m.program.linearAt(&p); err != nil || p.Experts > 0 || m.program.linears[number-1].partial && !m.program.linears[number-1].magnitudes {
			continue
		}
		p.Magnitude = tensor.Floats(noise(p.Path+"magnitude", int64(p.Out), 0.2, 1), p.Out, 1)
		pieces := w.Parts(root.Find(p.Path).Param(p.Param).Resolve(), -1)
		var err error
		if p.Squares, err = Squares(m.backend, pieces, &p.Target); err != nil {
			t.Fatal(err)
		}
		if p.Lengths, err = Lengths(m.backend, pieces, &p); err != nil {
			t.Fatal(err)
		}
		p.Squares = nil
		kept = append(kept, p)
	}
	a.Pairs = kept
	return a
}

// whole is an adapter that replaces every linear map and norm that it may.
func whole(m *machine) *lora.Adapter {
	a := &lora.Adapter{}
	replace := func(path string, weight, bias param) {
		for name, p := range map[string]param{"weight": weight, "bias": bias} {
			if p.Param == nil {
				continue
			}
			scale := 0.5
			if len(p.Shape) > 1 {
				scale = 1.5 / math.Sqrt(float64(p.Shape[len(p.Shape)-1]))
			}
			a.Saved = append(a.Saved, lora.Saved{Path: path, Param: name, Tensor: tensor.Floats(noise(p.path+"saved", meta.Elements(p.Shape), scale, 0), p.Shape...)})
		}
	}
	for _, r := range m.program.linears {
		if !r.partial && r.experts == 0 {
			replace(r.path, r.weight, r.bias)
		}
	}
	for _, r := range m.program.norms {
		if r.number > 0 {
			replace(r.path, r.weight, r.bias)
		}
	}
	return a
}

// TestMagnitudesAndWholeModulesInEveryKindOfBlock compares adapters with magnitudes (DoRA) and with weights in place of
// the model's with the merged model. Among rows with others and with none, the bits are the same.
func TestMagnitudesAndWholeModulesInEveryKindOfBlock(t *testing.T) {
	const n = 7
	x := tensor.Floats(noise("x", n*testWidth, 1, 0), n, testWidth)
	eachBlock(t, func(t *testing.T, _ blockCase, root *meta.Module) {
		w := newRandom(root)
		m := newMachine(t, root, w, Limits{Rows: 4 * n}, 16)
		sources := []*lora.Adapter{magnified(t, root, m, w, madeUp(root, m.program, "first", 3)), whole(m)}
		if len(sources[0].Pairs) == 0 {
			t.Error("no linear map of this block takes magnitudes")
		}
		adapters := append(bound(t, m, sources...), nil)
		rows := func(a ...*Adapter) [][]float32 { return runAdapted(t, m, x, a...) }
		want := [][]float32{rows(adapters[0])[0], rows(adapters[1])[0], rows(nil)[0]}
		references := []*random{merged(t, root, w, sources[0]), newRandom(root)}
		for i := range sources[1].Saved {
			s := &sources[1].Saved[i]
			references[1].values[root.Find(s.Path).Param(s.Param).Resolve()] = slices.Clone(s.F32())
		}
		for k, weights := range references {
			nearReference(t, fmt.Sprintf("adapter %d, ", k), root, weights, x, want[k], 4e-5)
		}
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0, 1}, {1, 2, 1}, {1, 1}, {0, 0}} {
			sameAmongOthers(t, adapters, order, rows, want)
		}
	})
}

// TestAPassWithMagnitudesAllocatesNothing holds law 5 for DoRA and whole modules.
func TestAPassWithMagnitudesAllocatesNothing(t *testing.T) {
	s := newSteps(t, meta.CausalLMSpec{})
	from := magnified(t, s.root, s.m, newRandom(s.root), madeUp(s.root, s.m.program, "steps", 2))
	saved := whole(s.m)
	from.Saved = saved.Saved[:1]
	from.Pairs = slices.DeleteFunc(from.Pairs, func(p lora.Pair) bool { return p.Path == from.Saved[0].Path })
	a := bound(t, s.m, from)[0]
	s.input.Adapters = []*Adapter{a}
	for range 40 {
		if err := s.step(t, int32(s.seq.Len()%32)); err != nil {
			t.Fatal(err)
		}
	}
	n := testing.AllocsPerRun(40, func() {
		if s.step(t, 3) != nil {
			t.Fatal("failed")
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a pass", n)
	}
}
