package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

func opened(t *testing.T, threads int) *Backend {
	t.Helper()
	b, err := New(Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// lruCase is a gated unit of more channels than a thread computes at once.
type lruCase struct {
	x, gate, rate []float32
	rows          int
	args          backend.GatedLRUArgs
}

func newLRUCase() *lruCase {
	c := &lruCase{rows: 9, args: backend.GatedLRUArgs{Channels: lruChannels + 7, Power: 8}}
	r := rand.New(rand.NewPCG(7, 8))
	for range c.rows * c.args.Channels {
		c.x, c.gate = append(c.x, float32(r.NormFloat64())), append(c.gate, float32(r.Float64()))
	}
	for range c.args.Channels {
		c.rate = append(c.rate, float32(3*r.NormFloat64()-2))
	}
	return c
}

// run computes rows [begin, end) of dst; memory has two slots, of which the first goes on.
func (c *lruCase) run(b *Backend, dst []float32, memory tensor.Tensor, begin, end int) {
	n := c.args.Channels
	cut := func(x []float32) tensor.Tensor { return tensor.Floats(x[begin*n:end*n], end-begin, n) }
	span := backend.StateSpan{Rows: end - begin, SaveAfter: 1, Save: 1}
	if begin == 0 {
		span.From = -1
	}
	b.GatedLRU(cut(dst), backend.GatedLRUInputs{X: cut(c.x), Gate: cut(c.gate), Rate: tensor.Floats(c.rate, n)},
		backend.States{Memory: memory, Spans: []backend.StateSpan{span}}, c.args)
}

// TestGatedLRU compares the gated unit with the formula in float64.
func TestGatedLRU(t *testing.T) {
	b, c := opened(t, 2), newLRUCase()
	n := c.args.Channels
	got := make([]float32, c.rows*n)
	c.run(b, got, tensor.Floats(make([]float32, 2*n), 2, n), 0, c.rows)
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
	for channel, rate := range c.rate {
		state := 0.0
		for token := range c.rows {
			i := token*n + channel
			log := -8 * math.Log1p(math.Exp(float64(rate))) * float64(c.gate[i])
			share := math.Sqrt(-math.Expm1(2 * log))
			if token == 0 {
				share = 1
			}
			state = math.Exp(log)*state + share*float64(c.x[i])
			if !(math.Abs(float64(got[i])-state) <= 1e-5*(1+math.Abs(state))) {
				t.Fatalf("token %d, channel %d: got %v, want %v", token, channel, got[i], state)
			}
		}
	}
}

// TestGatedLRUInPasses: results do not depend on passes, threads, and whether they replace the operand.
func TestGatedLRUInPasses(t *testing.T) {
	b, one, c := opened(t, 2), opened(t, 1), newLRUCase()
	n := c.args.Channels
	memory := func() tensor.Tensor { return tensor.Floats(make([]float32, 2*n), 2, n) }
	whole := make([]float32, c.rows*n)
	c.run(b, whole, memory(), 0, c.rows)
	for _, cut := range []int{1, 5} {
		got, states := make([]float32, c.rows*n), memory()
		c.run(one, got, states, 0, cut)
		c.run(one, got, states, cut, c.rows)
		if !slices.Equal(got, whole) {
			t.Errorf("two passes, the second from token %d on, differ from one", cut)
		}
		if saved := states.Row(1); !slices.Equal(saved, whole[cut*n:][:n]) {
			t.Errorf("the state after token %d was not saved", cut)
		}
	}
	c.run(b, c.x, memory(), 0, c.rows)
	if !slices.Equal(c.x, whole) {
		t.Error("in place of the operand, the results are others")
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
}

// TestGatedLRUErrors: arguments that the formula has no meaning for are errors.
func TestGatedLRUErrors(t *testing.T) {
	b, c := opened(t, 1), newLRUCase()
	c.args.Power = 0
	n := c.args.Channels
	c.run(b, make([]float32, c.rows*n), tensor.Floats(make([]float32, 2*n), 2, n), 0, c.rows)
	if b.Sync() == nil {
		t.Error("no error of a power of 0")
	}
}
