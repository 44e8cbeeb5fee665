package backendtest

import (
	"github.com/heftai/heft/internal/backend"
	"github.com/heftai/heft/internal/tensor"
	"github.com/heftai/heft/meta"
)

// relative are the profiles of distance biases, [rank, extent]. Rank 0 means no biases.
type relative struct {
	rank, extent int
	profiles     []float32
	stored       tensor.Tensor
}

// of returns the biases of rows [begin, end) of the sequences of c.
func (r *relative) of(c *cache, begin, end []int) (b backend.Relative) {
	if r.rank == 0 {
		return b
	}
	var states []float32
	width := c.a.Heads * r.rank
	for i, s := range c.seqs {
		states = append(states, s.states[begin[i]*width:end[i]*width]...)
	}
	return backend.Relative{States: c.e.strided(states, len(states)/width, width, 2), Profiles: r.stored}
}

// bias returns the bias of token t of s for one head and a distance.
func (r *relative) bias(heads int, s *sequence, t, head, distance int) (sum float64) {
	for i := range r.rank {
		if distance < r.extent {
			sum += float64(s.states[(t*heads+head)*r.rank+i]) * float64(r.profiles[i*r.extent+distance])
		}
	}
	return sum
}

// testAttentionRelative tests distance biases that depend on the query: in whole sequences, in
// chunks, and with rows of prompts, which have the same bits as other rows.
func testAttentionRelative(e *env) {
	for i, a := range []backend.AttentionArgs{
		{Heads: 4, KVHeads: 2, Dim: 16, ValueDim: 16, Scale: 0.25},
		{Heads: 6, KVHeads: 2, Dim: 20, ValueDim: 13, Scale: 0.3, Window: 7},
		{Heads: 8, KVHeads: 1, Dim: 80, ValueDim: 64, Scale: 0.1},
		{Heads: 4, KVHeads: 4, Dim: 32, ValueDim: 32, Scale: 0.2, Window: 30, Slopes: []float32{0, 0, 0, 0}},
	} {
		const n = 42
		dtype := dtypes[i%len(dtypes)]
		c := newCache(e, a, kvTypes[i%4], []int{8, 16}[i%2], n, 9)
		c.rank, c.extent = 3, []int{11, 7, 100, 30}[i]
		c.profiles = e.values(c.rank * c.extent)
		c.stored = e.place(dtype, c.profiles, 0, c.rank, c.extent)
		c.profiles = rounded(dtype, c.profiles)
		for _, s := range c.seqs {
			s.states = e.values(s.n * a.Heads * c.rank)
		}
		whole := c.run([]int{0, 0}, []int{n, 9})
		for j, got := range whole {
			close64(e, name("biases of distances", i, "sequence", j), got, c.reference(c.seqs[j]), 1e-5, 1)
		}
		width := a.Heads * a.ValueDim
		for _, at := range [][2]int{{0, 0}, {1, 3}, {17, 8}, {41, 5}} {
			for j, got := range c.runAs([]int{n, 0}, at[:], []int{n, 9}) {
				sameBits(e, name("biases of distances", i, "sequence", j, "from", at[j]), got, whole[j][at[j]*width:])
			}
			for j, got := range c.run(at[:], []int{at[0] + 1, at[1] + 1}) {
				sameBits(e, name("biases of distances", i, "sequence", j, "token", at[j]), got, whole[j][at[j]*width:][:width])
			}
		}
	}
	bad := newCache(e, backend.AttentionArgs{Heads: 2, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 1, Softcap: 2}, meta.Float32, 8, 4)
	bad.rank, bad.stored, bad.seqs[0].states = 1, e.floats(make([]float32, 4), 1, 4), make([]float32, 8)
	bad.e.Attention(e.empty(4, 16), e.floats(bad.seqs[0].q, 4, 16), bad.kv, []backend.Span{{Rows: 4, Pages: bad.seqs[0].pages}}, backend.AttentionArgs{
		Heads: 2, KVHeads: 1, Dim: 8, ValueDim: 8, Scale: 1, Softcap: 2, Relative: bad.relative.of(bad, []int{0}, []int{4})})
	if err := e.Sync(); err == nil {
		e.Error("biases of distances with capped scores are no error")
	}
}
