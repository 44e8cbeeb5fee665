package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// recurrentCase is a layer of Qwen3.5's shape with 16 heads.
type recurrentCase struct {
	b      *Backend
	in     backend.DeltaInputs
	dst    tensor.Tensor
	states backend.States
	args   backend.DeltaArgs
	conv   [3]tensor.Tensor // result, operand, weights
}

func newRecurrentCase(t testing.TB, rows int) *recurrentCase {
	t.Helper()
	b, err := New(Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	const heads, dim = 16, 128
	r := rand.New(rand.NewPCG(1, 1))
	matrix := func(rows, cols int) tensor.Tensor {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		return tensor.Floats(v, rows, cols)
	}
	vector := func() tensor.Tensor { return tensor.Floats(matrix(1, heads).F32(), heads) }
	c := &recurrentCase{b: b, dst: matrix(rows, heads*dim), args: backend.DeltaArgs{KeyHeads: heads, ValueHeads: heads, KeyDim: dim, ValueDim: dim}}
	c.in = backend.DeltaInputs{Q: matrix(rows, heads*dim), K: matrix(rows, heads*dim), V: matrix(rows, heads*dim),
		A: matrix(rows, heads), B: matrix(rows, heads), ALog: vector(), DTBias: vector()}
	c.states = backend.States{Memory: matrix(2, heads*dim*dim), Spans: []backend.StateSpan{{Rows: rows, To: 1}}}
	c.conv = [3]tensor.Tensor{matrix(rows, 3*heads*dim), matrix(rows, 3*heads*dim), matrix(3*heads*dim, 4)}
	return c
}

// TestStatesAllocateNothing: the operations of a layer with a state run for each token.
func TestStatesAllocateNothing(t *testing.T) {
	c := newRecurrentCase(t, 1)
	if n := testing.AllocsPerRun(20, func() {
		c.b.DeltaRule(c.dst, c.in, c.states, c.args)
		c.b.ShortConv(c.conv[0], c.conv[1], c.conv[2], tensor.Tensor{}, c.states, meta.ActSiLU)
	}); n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
	if err := c.b.Sync(); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkDeltaRule(b *testing.B) {
	for _, rows := range []int{1, 256} {
		b.Run(map[int]string{1: "token", 256: "prompt"}[rows], func(b *testing.B) {
			c := newRecurrentCase(b, rows)
			for b.Loop() {
				c.b.DeltaRule(c.dst, c.in, c.states, c.args)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/token")
		})
	}
}

func BenchmarkShortConv(b *testing.B) {
	c := newRecurrentCase(b, 256)
	for b.Loop() {
		c.b.ShortConv(c.conv[0], c.conv[1], c.conv[2], tensor.Tensor{}, c.states, meta.ActSiLU)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*256), "ns/token")
}

// BenchmarkDeltaRuleGrad is one text of 1024 tokens.
func BenchmarkDeltaRuleGrad(b *testing.B) {
	const rows = 1024
	c := newRecurrentCase(b, rows)
	like := func(t tensor.Tensor) tensor.Tensor { return tensor.Floats(make([]float32, t.Elements()), t.Shape()...) }
	d := backend.DeltaInputs{Q: like(c.in.Q), K: like(c.in.K), V: like(c.in.V), A: like(c.in.A), B: like(c.in.B), ALog: like(c.in.ALog), DTBias: like(c.in.DTBias)}
	c.states.Spans[0].From, c.states.Spans[0].To = -1, -1
	for b.Loop() {
		c.b.DeltaRuleGrad(d, c.dst, c.in, c.states, c.args)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/token")
}
