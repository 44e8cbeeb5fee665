package nn

import (
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/backend/cpu"
	"github.com/heftai/heft/internal/backend/record"
	"github.com/heftai/heft/internal/kvcache"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// trained are random weights with gradients.
type trained struct {
	*random
	grads map[*meta.Param][]float32
	held  [][2]int // the units that were held, each with the next one
	lent  int      // and not released
}

func newTrained(root *meta.Module, cut int) *trained {
	w := &trained{random: newRandom(root), grads: map[*meta.Param][]float32{}}
	w.cut = cut
	for p, v := range w.values {
		w.grads[p] = make([]float32, len(v))
	}
	return w
}

func (w *trained) Hold(i, next int) error {
	w.held = append(w.held, [2]int{i, next})
	w.lent++
	return nil
}

func (w *trained) Release(int) { w.lent-- }

func (w *trained) Gradient(t tensor.Tensor) (tensor.Tensor, bool) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(t.Data)))
	for p, v := range w.values {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(v)))
		if i := int(at-begin) / 4; at >= begin && i < len(v) {
			n := len(t.Data) / 4
			t.Data = tensor.Floats(w.grads[p][i:i+n], n).Data
			return t, true
		}
	}
	return tensor.Tensor{}, false
}

func (w *trained) Trains(t tensor.Tensor) bool {
	_, ok := w.Gradient(t)
	return ok
}

// newTrainingOf runs passes of root that begin with hidden states of one sequence of n rows.
func newTrainingOf(t *testing.T, root *meta.Module, w *trained, n int) (*Training, *Input) {
	t.Helper()
	training, in, _ := newCountedTraining(t, root, w, n)
	return training, in
}

// counted counts the products of passes.
type counted struct {
	*cpu.Backend
	products int
}

func (c *counted) Product(dst, x tensor.Tensor, w backend.Matrix, bias tensor.Tensor, rounded bool) {
	c.products++
	c.Backend.Product(dst, x, w, bias, rounded)
}

// newCountedTraining is newTrainingOf on a backend that counts.
func newCountedTraining(t *testing.T, root *meta.Module, w *trained, n int) (*Training, *Input, *counted) {
	t.Helper()
	p, err := Compile(root)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Backend: b}
	r := record.New(c, w)
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	training, err := p.NewTraining(r, w, Limits{Rows: n})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{}
	for _, l := range p.KV() {
		k, err := r.New(meta.Float32, 1, n, l.KWidth)
		if err != nil {
			t.Fatal(err)
		}
		v := k
		if l.VWidth > 0 {
			if v, err = r.New(meta.Float32, 1, n, l.VWidth); err != nil {
				t.Fatal(err)
			}
		}
		in.KV = append(in.KV, kvcache.Layer{KV: backend.KV{K: k, V: v, PageTokens: n}})
	}
	g := Group{Spans: []backend.Span{{Rows: n, Pages: []int32{0}}}}
	for i := range n {
		g.Slots = append(g.Slots, int32(i))
		in.Lengths = append(in.Lengths, int32(n))
	}
	in.Groups = []Group{g}
	return training, in, c
}

// reversed runs x and takes the gradient c of the result back.
func reversed(t *testing.T, training *Training, in *Input, x []float32, c [][]float64, way Way) {
	t.Helper()
	in.Hidden = tensor.Floats(x, len(c), len(x)/len(c))
	if err := training.Forward(in, way, 0); err != nil {
		t.Fatal(err)
	}
	g := training.HiddenGradient()
	for i := range c {
		for k, v := range c[i] {
			g.Row(i)[k] = float32(v)
		}
	}
	if err := training.Backward(nil); err != nil {
		t.Fatal(err)
	}
}

// TestBlocksAreReversed compares the gradients of every block between two linear maps with
// quotients of the reference's differences, weights whole and in pieces, remembered and
// computed again.
func TestBlocksAreReversed(t *testing.T) {
	const n, in, out = 9, 6, 5
	x, c := noise("input", n*in, 1, 0), make([][]float64, n)
	for i := range c {
		c[i] = wide(noise("gradient", n*out, 1, 0)[i*out : (i+1)*out])
	}
	for _, test := range blockCases() {
		t.Run(test.name, func(t *testing.T) {
			root := build(t, func(b *meta.Builder) {
				b.Runs(meta.KindSequential, nil)
				b.Linear("0", in, testWidth, true)
				test.build(b.Child("1", "Block"))
				b.Linear("2", testWidth, out, true)
			})
			w := newTrained(root, 0)
			training, input := newTrainingOf(t, root, w, n)
			reversed(t, training, input, x, c, Remember)
			kept := map[*meta.Param][]float32{}
			for p, g := range w.grads {
				kept[p] = slices.Clone(g)
				clear(g)
			}
			reversed(t, training, input, x, c, Recompute)
			value := func() float64 {
				r, sum := reference{w.random}, 0.0
				h := make(rows, n)
				for i := range h {
					h[i] = wide(x[i*in : (i+1)*in])
				}
				h = r.linear(root.Find("2"), r.block(root.Find("1"), r.linear(root.Find("0"), h)))
				for i, y := range h {
					for k, v := range y {
						sum += v * c[i][k]
					}
				}
				return sum
			}
			for path, p := range root.AllParams() {
				if p.SameAs == nil {
					sameBits(t, path+" computed again", w.grads[p], kept[p])
					checkSlope(t, path, w.values[p], kept[p], value)
				}
			}
			for _, cut := range test.cuts {
				pieces := newTrained(root, cut)
				training, input := newTrainingOf(t, root, pieces, n)
				reversed(t, training, input, x, c, Recompute)
				for path, p := range root.AllParams() {
					if p.SameAs == nil {
						checkNear(t, path+" in pieces", pieces.grads[p], kept[p])
					}
				}
			}
		})
	}
}

// TestBackwardReadsUnitsInReverse: backward reads the units from the last to the first, each with
// the one before it ahead, and ends where nothing below is trained.
func TestBackwardReadsUnitsInReverse(t *testing.T) {
	const n = 2
	root := build(t, func(b *meta.Builder) {
		b.Runs(meta.KindSequential, nil)
		for i := range 4 {
			b.Linear(string(rune('0'+i)), testWidth, testWidth, true)
		}
	})
	w := newTrained(root, 0)
	training, in := newTrainingOf(t, root, w, n)
	in.Hidden = tensor.Floats(noise("input", n*testWidth, 1, 0), n, testWidth)
	for _, way := range []Way{Remember, Recompute} {
		for first, want := range [][][2]int{{{3, 2}, {2, 1}, {1, 0}, {0, -1}}, {{3, 2}, {2, 1}, {1, -1}}} {
			w.held = nil
			if err := training.Forward(in, way, first); err != nil {
				t.Fatal(err)
			}
			if want := [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, -1}}; !slices.Equal(w.held, want) {
				t.Errorf("forward held %v, want %v", w.held, want)
			}
			w.held = nil
			training.HiddenGradient()
			if err := training.Backward(nil); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(w.held, want) || w.lent != 0 {
				t.Errorf("way %d from unit %d: backward held %v and kept %d, want %v", way, first, w.held, w.lent, want)
			}
		}
	}
}

// TestTheLastProductIsNotComputedAgain: Backward computes a block again for its gradients, which need the result of an MLP's last
// map only if a norm reads it.
func TestTheLastProductIsNotComputedAgain(t *testing.T) {
	const n, maps = 3, 9 // two, and seven of the block
	again := map[string]int{"pre-norm": 1 + 6, "post-norm": 1 + 7}
	for _, test := range blockCases() {
		want, ok := again[test.name]
		if !ok {
			continue
		}
		root := build(t, func(b *meta.Builder) {
			b.Runs(meta.KindSequential, nil)
			b.Linear("0", testWidth, testWidth, true)
			test.build(b.Child("1", "Block"))
			b.Linear("2", testWidth, testWidth, true)
		})
		x, c := noise("input", n*testWidth, 1, 0), make([][]float64, n)
		for i := range c {
			c[i] = make([]float64, testWidth)
		}
		training, in, products := newCountedTraining(t, root, newTrained(root, 0), n)
		reversed(t, training, in, x, c, Recompute)
		if got := products.products - maps; got != want {
			t.Errorf("%s: Backward computed %d products again, want %d", test.name, got, want)
		}
		delete(again, test.name)
	}
	if len(again) > 0 {
		t.Errorf("no blocks %v", again)
	}
}

func checkNear(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i, v := range want {
		if d := math.Abs(float64(got[i] - v)); !(d <= 1e-4*(1+math.Abs(float64(v)))) {
			t.Errorf("%s: element %d is %g, want %g", what, i, got[i], v)
			return
		}
	}
}

// checkSlope moves v along a random direction.
func checkSlope(t *testing.T, what string, v, gradient []float32, value func() float64) {
	t.Helper()
	old, far := slices.Clone(v), noise(what, int64(len(v)), 2e-3, 0)
	want, size := 0.0, 0.0
	for i := range v {
		v[i] = old[i] + far[i]
	}
	above := slices.Clone(v)
	high := value()
	for i := range v {
		v[i] = old[i] - far[i]
	}
	for i := range v {
		d := float64(above[i]) - float64(v[i])
		want += d * float64(gradient[i])
		size += math.Abs(d * float64(gradient[i]))
	}
	got := high - value()
	copy(v, old)
	if !(math.Abs(got-want) <= 2e-3*math.Abs(want)+2e-4*size+1e-6) {
		t.Errorf("%s: moving along a direction changes the result by %g, its gradient says %g", what, got, want)
	}
}
