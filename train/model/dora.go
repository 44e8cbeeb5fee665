package model

import (
	"cmp"
	"fmt"
	"math"
	"runtime"

	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/lora"
	"github.com/heftai/heft/internal/nn"
	view "github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// measure sets the squared lengths of the rows of the weights under pairs with magnitudes (DoRA),
// as passes use these weights. Pairs that have no magnitudes yet get the lengths as magnitudes. It
// reads the weights once, unit by unit.
func (m *Model) measure(from *lora.Adapter) (err error) {
	b, err := cpu.New(cpu.Options{Threads: runtime.GOMAXPROCS(0)})
	if err != nil {
		return fmt.Errorf("model: %w", err)
	}
	defer b.Close()
	w := newWeights(m.parameters)
	if err := w.acquire(); err != nil {
		return err
	}
	defer w.release()
	if err := w.begin(meta.Float32); err != nil {
		return err
	}
	left := map[*lora.Pair]bool{}
	for i := range from.Pairs {
		left[&from.Pairs[i]] = true
	}
	for k, u := range m.program.Units {
		var here []*lora.Pair
		for i := range from.Pairs {
			if p := &from.Pairs[i]; left[p] && reads(u, p.Path) {
				here = append(here, p)
				delete(left, p)
			}
		}
		if err := m.measureUnit(b, w, k, here); err != nil {
			return m.explain(err)
		}
	}
	return nil
}

// measureUnit measures the weights of a unit.
func (m *Model) measureUnit(b *cpu.Backend, w *weights, unit int, pairs []*lora.Pair) error {
	if len(pairs) == 0 {
		return nil
	}
	if err := w.Hold(unit, -1); err != nil {
		return err
	}
	for _, p := range pairs {
		pieces := w.Parts(m.meta.Root.Find(p.Path).Param(p.Param).Resolve(), -1)
		if len(pieces) == 0 {
			return cmp.Or(w.Err(), fmt.Errorf("%s: its weight is not loaded", p.Path))
		}
		var err error
		if p.Squares, err = nn.Squares(b, pieces, &p.Target); err != nil {
			return err
		}
		if !p.Magnitude.IsZero() {
			continue
		}
		lengths := make([]float32, p.Out)
		for i, v := range p.Squares {
			lengths[i] = float32(math.Sqrt(v))
		}
		p.Magnitude = view.Floats(lengths, p.Out, 1)
	}
	return nil
}
