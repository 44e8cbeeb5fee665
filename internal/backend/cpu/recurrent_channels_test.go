package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
)

// channelCase has random operands of a delta rule whose channels decay by themselves.
type channelCase struct {
	args             backend.DeltaArgs
	q, k, v, a, b    []float32
	aLog, bias, dst  []float32
	rows, keys, vals int
}

func newChannelCase(args backend.DeltaArgs, rows int) *channelCase {
	r := rand.New(rand.NewPCG(3, 4))
	random := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return v
	}
	c := &channelCase{args: args, rows: rows, keys: args.KeyHeads * args.KeyDim, vals: args.ValueHeads * args.ValueDim}
	c.q, c.k, c.v = random(rows*c.keys), random(rows*c.keys), random(rows*c.vals)
	c.a, c.b = random(rows*args.Decays()), random(rows*args.ValueHeads)
	c.aLog, c.bias = random(args.ValueHeads), random(args.Decays())
	c.dst = make([]float32, rows*c.vals)
	return c
}

// run computes rows [begin, end) with the state in memory.
func (c *channelCase) run(b *Backend, memory tensor.Tensor, begin, end int) {
	cut := func(x []float32, cols int) tensor.Tensor {
		return tensor.Floats(x[begin*cols:end*cols], end-begin, cols)
	}
	from := int32(0)
	if begin == 0 {
		from = -1
	}
	b.DeltaRule(cut(c.dst, c.vals), backend.DeltaInputs{Q: cut(c.q, c.keys), K: cut(c.k, c.keys), V: cut(c.v, c.vals), A: cut(c.a, c.args.Decays()),
		B: cut(c.b, c.args.ValueHeads), ALog: tensor.Floats(c.aLog, len(c.aLog)), DTBias: tensor.Floats(c.bias, len(c.bias))},
		backend.States{Memory: memory, Spans: []backend.StateSpan{{Rows: end - begin, From: from}}}, c.args)
}

// want is the recurrence of one value head as package backend states it, in float64.
func (c *channelCase) want(head int) []float64 {
	k, v := c.args.KeyDim, c.args.ValueDim
	unit := func(x []float32) []float64 {
		sum, out := 1e-6, make([]float64, len(x))
		for i, f := range x {
			out[i] = float64(f)
			sum += out[i] * out[i]
		}
		for i := range out {
			out[i] /= math.Sqrt(sum)
		}
		return out
	}
	state, out := make([]float64, k*v), []float64(nil)
	for t := range c.rows {
		first := t*c.keys + c.args.KeyHead(head)*k
		query, key := unit(c.q[first:first+k]), unit(c.k[first:first+k])
		strength := 1 / (1 + math.Exp(-float64(c.b[t*c.args.ValueHeads+head])))
		for i := range k {
			at, rate := float64(c.a[t*c.args.Decays()+head*k+i])+float64(c.bias[head*k+i]), math.Exp(float64(c.aLog[head]))
			g := -rate * math.Log1p(math.Exp(at))
			if floor := float64(c.args.Floor); floor != 0 {
				g = floor / (1 + math.Exp(-rate*at))
			}
			for j := range v {
				state[i*v+j] *= math.Exp(g)
			}
		}
		for j := range v {
			seen, y := 0.0, 0.0
			for i := range k {
				seen += key[i] * state[i*v+j]
			}
			for i := range k {
				state[i*v+j] += key[i] * strength * (float64(c.v[t*c.vals+head*v+j]) - seen)
				y += query[i] * state[i*v+j]
			}
			out = append(out, y/math.Sqrt(float64(k)))
		}
	}
	return out
}

// TestChannelsDecayByThemselves compares Kimi's delta attention with the recurrence, whole and in passes.
func TestChannelsDecayByThemselves(t *testing.T) {
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	for _, args := range []backend.DeltaArgs{
		{KeyHeads: 2, ValueHeads: 4, KeyDim: 5, ValueDim: 7, ByChannel: true},
		{KeyHeads: 3, ValueHeads: 3, KeyDim: 16, ValueDim: 16, ByChannel: true, Floor: -2.5},
	} {
		c := newChannelCase(args, 11)
		memory := tensor.Floats(make([]float32, c.vals*args.KeyDim), 1, c.vals*args.KeyDim)
		c.run(b, memory, 0, c.rows)
		whole := slices.Clone(c.dst)
		for i, got := range whole {
			head, j := i%c.vals/args.ValueDim, i%args.ValueDim
			if want := c.want(head)[i/c.vals*args.ValueDim+j]; !(math.Abs(float64(got)-want) <= 1e-5) {
				t.Fatalf("%+v: token %d, head %d: got %v, want %v", args, i/c.vals, head, got, want)
			}
		}
		for _, cut := range []int{1, 4, 10} {
			clear(c.dst)
			c.run(b, memory, 0, cut)
			c.run(b, memory, cut, c.rows)
			if !slices.Equal(c.dst, whole) {
				t.Errorf("%+v: two passes, the second from token %d on, differ from one", args, cut)
			}
		}
	}
	if err := b.Sync(); err != nil {
		t.Fatal(err)
	}
}
