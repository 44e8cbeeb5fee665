package nn

import (
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/golden"
	"github.com/heftai/heft/loader"
	"github.com/heftai/heft/meta"
)

// asking records the parameters that a unit asks for as a whole.
type asking struct {
	Weights
	asked []*meta.Param
}

func (a *asking) Parts(p *meta.Param, expert int) []backend.Part {
	if expert < 0 {
		a.asked = append(a.asked, p)
	}
	return a.Weights.Parts(p, expert)
}

// checkedStep compares the order in which a unit asks for matrices with the one that it states.
type checkedStep struct {
	step
	t    *testing.T
	unit *Unit
	to   *asking
}

func (s *checkedStep) run(c *Context) {
	s.to.asked = s.to.asked[:0]
	s.step.run(c)
	var got []int
	for _, p := range s.to.asked {
		if i := slices.Index(s.unit.Banded, p); i >= 0 {
			got = append(got, i)
		}
	}
	want := make([]int, len(s.unit.Banded))
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s asks for its matrices in the order %v, want %v", s.unit.Path, got, want)
	}
}

// TestUnitsAskForMatricesInTheOrderOfTheirBands holds Unit.Banded for all architectures: a matrix that a rule asks
// for in another order, or twice, would be read from the disk again.
func TestUnitsAskForMatricesInTheOrderOfTheirBands(t *testing.T) {
	routers := 0
	for g := range golden.Models(t) {
		t.Run(g.Name(), func(t *testing.T) {
			model, ck, err := loader.OpenModel(g.Dir())
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			ids := g.Prompts[0].IDs
			to := &asking{Weights: newCheckpoint(t, ck, model)}
			m := newMachine(t, model.Root, to, Limits{Rows: len(ids), Outputs: 1}, 64+len(ids)/4)
			for _, u := range m.program.Units {
				u.step = &checkedStep{u.step, t, u, to}
				for _, p := range u.Banded {
					if len(u.Experts) > 0 && p.Shape[0] == m.program.experts {
						routers++
					}
				}
			}
			seq := m.cache.NewSequence(0)
			defer seq.Free()
			m.pass(t, nil, work{seq: seq, tokens: ids, prompt: len(ids)})
			m.pass(t, nil, work{seq: seq, tokens: ids[:1]})
		})
	}
	if routers == 0 {
		t.Error("no router may come in bands")
	}
}
