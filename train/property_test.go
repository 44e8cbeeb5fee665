package train

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/heftai/heft/train/data"
	"github.com/heftai/heft/train/tensor"
)

// run is a training run whose shape a property draws.
type runShape struct {
	world, steps, batch int
	lengths             data.Slice[int]
	even                bool
}

func drawRun(t *rapid.T) runShape {
	return runShape{
		world:   rapid.IntRange(1, 4).Draw(t, "world"),
		steps:   rapid.IntRange(1, 4).Draw(t, "steps"),
		batch:   rapid.IntRange(1, 3).Draw(t, "batch"),
		lengths: rapid.SliceOfN(rapid.IntRange(1, 9), 1, 24).Draw(t, "lengths"),
		even:    rapid.Bool().Draw(t, "even"),
	}
}

// train runs two epochs by windows and notes the lengths that each step saw, on all
// ranks together. It returns the weights, which must be the same on every rank.
func (s runShape) train(ctx context.Context) (weights []float32, steps [][]int, err error) {
	var mu sync.Mutex
	err = Launch(ctx, s.world, func(ctx context.Context, w *World) error {
		p, err := s.model(Config{World: w, GradientAccumulationSteps: s.steps, DataLoader: DataLoaderConfig{EvenBatches: &s.even}})
		if err != nil {
			return err
		}
		k := 0
		for range 2 {
			for win, err := range Windows(ctx, p.a, p.l.All(ctx), func(b texts) int { return b.items }) {
				if err != nil {
					return err
				}
				mu.Lock()
				if k == len(steps) {
					steps = append(steps, nil)
				}
				for _, b := range win.Batches {
					steps[k] = append(steps[k], b.lengths()...)
				}
				mu.Unlock()
				k++
				if _, err := win.Each(ctx, func(_ context.Context, b texts) (*tensor.Tensor, error) { return p.sum(b), nil }); err != nil {
					return err
				}
				if err := p.opt.Step(); err != nil {
					return err
				}
				p.opt.ZeroGrad()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if weights == nil {
			weights = p.w.Data()
		}
		for i := range weights {
			if weights[i] != p.w.Data()[i] {
				return fmt.Errorf("rank %d ends with %v, another with %v", w.Rank(), p.w.Data(), weights)
			}
		}
		return nil
	})
	return weights, steps, err
}

func (s runShape) model(c Config) (*pair, error) {
	p, err := newPair(c, 0, 0.05, 1, 1)
	if err != nil {
		return nil, err
	}
	if p.l, err = data.NewLoader(s.lengths, collateTexts, data.Options{BatchSize: s.batch}); err != nil {
		return nil, err
	}
	return p, p.a.Prepare(p.l)
}

// lengths are those of the texts in b.
func (b texts) lengths() []int {
	var all []int
	for i, id := range b.ids {
		switch id {
		case 1:
			all = append(all, 1)
		case -100:
		default:
			all[len(all)-1] = int(b.ids[i])
		}
	}
	return all
}

// Whatever the ranks, the window and the lengths of texts, each step by windows is that
// of the mean over all tokens of one big batch.
func TestWindowsEqualOneBigBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawRun(rt)
		weights, steps, err := s.train(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		big, err := s.model(Config{})
		if err != nil {
			rt.Fatal(err)
		}
		for _, lengths := range steps {
			b, err := collateTexts(lengths)
			if err != nil {
				rt.Fatal(err)
			}
			y := big.tape.Linear(big.tape.Input(b.ids, len(b.ids), 1), big.tape.Use(big.w), nil)
			loss := big.tape.CrossEntropy(y, b.labels, tensor.CrossEntropyOptions{})
			if err := first(big.a.Backward(t.Context(), loss), big.opt.Step()); err != nil {
				rt.Fatal(err)
			}
			big.opt.ZeroGrad()
		}
		for i := range weights {
			if d := math.Abs(float64(weights[i] - big.w.Data()[i])); d > 2e-5 {
				rt.Fatalf("weights %v, in one big batch %v", weights, big.w.Data())
			}
		}
	})
}

// With the correction, a window that the loader's end cuts short is the mean of its
// batches: of one big batch, where batches are equally large.
func TestShortWindowsEqualOneBigBatch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		world, steps := rapid.IntRange(1, 4).Draw(rt, "world"), rapid.IntRange(1, 5).Draw(rt, "steps")
		batch, rounds := rapid.IntRange(1, 3).Draw(rt, "batch"), rapid.IntRange(1, 7).Draw(rt, "rounds")
		n := world * batch * rounds
		got := make([]float64, world)
		err := Launch(t.Context(), world, func(ctx context.Context, w *World) error {
			m, err := newToy(Config{World: w, GradientAccumulationSteps: steps, Corrections: Corrected()}, 1, 1e-3, 0)
			if err != nil {
				return err
			}
			l := indices(n, batch)
			if err := m.a.Prepare(l); err != nil {
				return err
			}
			for ids, err := range l.All(ctx) {
				if err != nil {
					return err
				}
				if err := m.square(ctx, ids); err != nil {
					return err
				}
			}
			got[w.Rank()] = m.weight()
			return nil
		})
		if err != nil {
			rt.Fatal(err)
		}
		weight := 1.0
		for lo := 0; lo < n; lo += world * batch * steps {
			hi := min(n, lo+world*batch*steps)
			sum := 0.0
			for x := lo; x < hi; x++ {
				sum += float64(x+1) * float64(x+1)
			}
			weight -= 1e-3 * 2 * weight * sum / float64(hi-lo)
		}
		for r, w := range got {
			if !(math.Abs(w-weight) <= 1e-4*(1+math.Abs(weight))) {
				rt.Fatalf("rank %d ends with %v, want %v", r, w, weight)
			}
		}
	})
}

// square is a micro step of the mean of y² over samples ids+1.
func (m *toy) square(ctx context.Context, ids []int) error {
	x, y := make([]float32, len(ids)), make([]float32, len(ids))
	for i, id := range ids {
		x[i] = float32(id + 1)
	}
	return m.a.Accumulate(ctx, func(ctx context.Context) error {
		if err := m.a.Backward(ctx, m.loss(x, y)); err != nil {
			return err
		}
		if err := m.opt.Step(); err != nil {
			return err
		}
		m.opt.ZeroGrad()
		return nil
	}, m.w)
}
