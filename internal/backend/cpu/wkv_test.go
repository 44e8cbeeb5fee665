package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// wkvCase is a keyed average of more channels than a thread computes at once.
type wkvCase struct {
	k, v, decay, first []float32
	rows, n            int
}

func newWKVCase() *wkvCase {
	c := &wkvCase{rows: 9, n: wkvChannels + 7}
	r := rand.New(rand.NewPCG(7, 9))
	for range c.rows * c.n {
		c.k, c.v = append(c.k, float32(40*r.NormFloat64())), append(c.v, float32(r.NormFloat64()))
	}
	for range c.n {
		c.decay, c.first = append(c.decay, float32(2*r.NormFloat64())), append(c.first, float32(r.NormFloat64()))
	}
	return c
}

// run computes rows [begin, end) of dst; memory has two slots, of which the first goes on and the second gets the state after a row.
func (c *wkvCase) run(t *testing.T, b *Backend, dst []float32, memory tensor.Tensor, begin, end int) {
	t.Helper()
	cut := func(x []float32) tensor.Tensor { return tensor.Floats(x[begin*c.n:end*c.n], end-begin, c.n) }
	span := backend.StateSpan{Rows: end - begin, SaveAfter: 1, Save: 1}
	if begin == 0 {
		span.From = -1
	}
	b.WKV(cut(dst), backend.WKVInputs{K: cut(c.k), V: cut(c.v), Decay: tensor.Floats(c.decay, c.n), First: tensor.Floats(c.first, c.n)},
		backend.States{Memory: memory, Spans: []backend.StateSpan{span}}, backend.WKVArgs{Channels: c.n})
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
}

func (c *wkvCase) memory() tensor.Tensor {
	return tensor.Floats(make([]float32, 2*backend.WKVState*c.n), 2, backend.WKVState*c.n)
}

// TestWKV compares the keyed average with the sums over all tokens in float64. Keys are so far apart that their exponentials
// are none of float32.
func TestWKV(t *testing.T) {
	c := newWKVCase()
	got := make([]float32, c.rows*c.n)
	c.run(t, opened(t, 2), got, c.memory(), 0, c.rows)
	for channel := range c.n {
		w := -math.Exp(float64(c.decay[channel]))
		for token := range c.rows {
			logs := make([]float64, token+1)
			for i := range logs {
				logs[i] = float64(c.k[i*c.n+channel]) + w*float64(token-1-i)
			}
			logs[token] = float64(c.k[token*c.n+channel]) + float64(c.first[channel])
			above, below, most := 0.0, 0.0, slices.Max(logs)
			for i, log := range logs {
				above, below = above+math.Exp(log-most)*float64(c.v[i*c.n+channel]), below+math.Exp(log-most)
			}
			if g := float64(got[token*c.n+channel]); !(math.Abs(g-above/below) < 2e-5) {
				t.Fatalf("token %d, channel %d: got %v, want %v", token, channel, g, above/below)
			}
		}
	}
}

// TestWKVInPasses: results depend neither on passes nor on threads.
func TestWKVInPasses(t *testing.T) {
	b, one, c := opened(t, 2), opened(t, 1), newWKVCase()
	whole := make([]float32, c.rows*c.n)
	c.run(t, b, whole, c.memory(), 0, c.rows)
	for _, cut := range []int{1, 5} {
		got, states, ahead := make([]float32, c.rows*c.n), c.memory(), c.memory()
		c.run(t, one, got, states, 0, cut)
		c.run(t, b, make([]float32, c.rows*c.n), ahead, 0, cut+1)
		c.run(t, one, got, states, cut, c.rows)
		if !slices.Equal(got, whole) {
			t.Errorf("two passes, the second from token %d on, differ from one", cut)
		}
		if !slices.Equal(states.Row(1), ahead.Row(0)) {
			t.Errorf("the state after token %d was not saved", cut)
		}
	}
}

// TestWKVErrors: operands of another width are errors.
func TestWKVErrors(t *testing.T) {
	b, c := opened(t, 1), newWKVCase()
	x := tensor.Floats(c.k, c.rows, c.n)
	b.WKV(x, backend.WKVInputs{K: x, V: x, Decay: tensor.Floats(c.decay[1:], c.n-1), First: tensor.Floats(c.first, c.n)},
		backend.States{Memory: c.memory(), Spans: []backend.StateSpan{{Rows: c.rows, From: -1}}}, backend.WKVArgs{Channels: c.n})
	if b.Sync() == nil {
		t.Error("no error of decays for fewer channels")
	}
}
