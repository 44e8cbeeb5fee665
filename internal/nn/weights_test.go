package nn

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// random are weights made up from the names of parameters.
type random struct {
	values  map[*meta.Param][]float32
	buffers map[*meta.Buffer][]float32
	// cut serves matrices and vectors in pieces of so many rows; 0 in one.
	cut   int
	whole map[*meta.Param]bool // never cut: norms
	held  []int32
	want  []int32 // the last WantExperts
	fail  func(expert int) error
	most  int // that were held last
	// arrival is the order in which experts are loaded
	arrival  *rand.Rand
	together bool // all experts are loaded at once

	served  map[served][]backend.Part
	missing *meta.Param // is not there
	alpha   []float32   // of learned frequencies
}

type served struct {
	p      *meta.Param
	expert int
}

func newRandom(root *meta.Module) *random {
	w := &random{values: map[*meta.Param][]float32{}, buffers: map[*meta.Buffer][]float32{}, served: map[served][]backend.Part{}, whole: map[*meta.Param]bool{},
		arrival: rand.New(rand.NewPCG(7, 7))}
	for path, p := range root.AllParams() {
		if p.SameAs != nil {
			continue
		}
		scale, shift := 0.3, 0.0
		if len(p.Shape) > 1 {
			scale = 1.5 / math.Sqrt(float64(p.Shape[len(p.Shape)-1]))
		} else if p.Name == "weight" {
			shift = 1
		}
		if w.values[p] = noise(path, meta.Elements(p.Shape), scale, shift); p.Name == "alpha" {
			w.alpha = w.values[p]
			learns(root, strings.TrimSuffix(path, ".alpha"))
		}
	}
	for path, m := range root.Walk() {
		for _, p := range m.Params {
			w.whole[p] = m.Kind == meta.KindNorm
		}
		for _, b := range m.Buffers {
			w.buffers[b] = noise(meta.Join(path, b.Name), meta.Elements(b.Shape), 0.5, 0)
		}
	}
	return w
}

// learns says that the learned frequencies of ropes below root are in the module at path.
func learns(root *meta.Module, path string) {
	for _, m := range root.Walk() {
		if s, ok := m.Spec.(*meta.AttentionSpec); ok && s.Rope != nil && s.Rope.Alpha != "" {
			s.Rope.Alpha = path
		}
	}
}

func noise(name string, n int64, scale, shift float64) []float32 {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(shift + scale*r.NormFloat64())
	}
	return v
}

// slab is the values of p, or of one of its experts.
func (w *random) slab(p *meta.Param, expert int) ([]float32, []int) {
	v, shape := w.values[p], p.Shape
	if expert >= 0 {
		n := len(v) / shape[0]
		v, shape = v[expert*n:(expert+1)*n], shape[1:]
	}
	return v, shape
}

func (w *random) Parts(p *meta.Param, expert int) []backend.Part {
	if p == w.missing || expert >= 0 && !slices.Contains(w.held, int32(expert)) {
		return nil
	}
	key := served{p, expert}
	if parts := w.served[key]; parts != nil {
		return parts
	}
	v, shape := w.slab(p, expert)
	whole := tensor.Floats(v, shape...)
	parts := []backend.Part{{Matrix: backend.Matrix{Tensor: whole}}}
	if rows := shape[0]; w.cut > 0 && w.cut < rows && !w.whole[p] {
		parts = parts[:0]
		for i := 0; i < rows; i += w.cut {
			end := min(i+w.cut, rows)
			parts = append(parts, backend.Part{Matrix: backend.Matrix{Tensor: whole.Slice(i, end)}, Into: meta.RowRange{Begin: i, End: end}})
		}
	}
	w.served[key] = parts
	return parts
}

func (w *random) Buffer(b *meta.Buffer) tensor.Tensor {
	return tensor.Floats(w.buffers[b], b.Shape...)
}

func (w *random) Err() error { return nil }

func (w *random) WantExperts(_ *meta.Module, experts []int32) {
	w.want = append(w.want[:0], experts...)
}

// HoldExperts holds one, then two, and so on, if there are as many: those that happen to be chosen.
func (w *random) HoldExperts(_ *meta.Module, experts []int32) (int, error) {
	w.most, w.held = w.most%3+1, w.held[:0]
	n := min(len(experts), w.most)
	if w.together {
		n = len(experts)
	}
	w.arrival.Shuffle(len(experts), func(i, j int) { experts[i], experts[j] = experts[j], experts[i] })
	slices.Sort(experts[:n])
	slices.Sort(experts[n:])
	for _, e := range experts[:n] {
		if w.fail != nil {
			if err := w.fail(int(e)); err != nil {
				return 0, fmt.Errorf("expert %d: %w", e, err)
			}
		}
		w.held = append(w.held, e)
	}
	return len(w.held), nil
}
