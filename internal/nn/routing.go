package nn

import (
	"encoding/binary"

	"github.com/heftai/heft/meta"
)

// tableOf returns the table of m's router, if there is one.
func (c *compiler) tableOf(router Node, m *moe) error {
	if m.spec.Table == "" {
		return nil
	}
	c.together("experts chosen by the token")
	for _, b := range router.Module.Buffers {
		if b.Name == m.spec.Table && len(b.Shape) == 2 && b.Shape[1] == m.spec.TopK {
			m.table, m.tablePath = b, meta.Join(router.Path, b.Name)
			return nil
		}
	}
	return at(router.Path, "no buffer %q with %d experts of each token", m.spec.Table, m.spec.TopK)
}

// lookUp sets experts to the table's entries for the tokens of the pass.
func (m *moe) lookUp(c *Context, experts []int32) {
	if m.table == nil {
		return
	}
	t, k, path := c.weights.Buffer(m.table), m.spec.TopK, m.tablePath
	if t.DType != meta.Int64 && t.DType != meta.Int32 || t.Rank != 2 || t.Dims[1] != k || int64(len(t.Data)) < t.Bytes() {
		c.fail("%s: buffer of %v %v, wanted %d integers for each token", path, t.DType, t.Shape(), k)
		return
	}
	if len(c.in.Tokens) != len(experts)/k {
		c.fail("%s: %d tokens for %d rows", path, len(c.in.Tokens), len(experts)/k)
		return
	}
	for i, id := range c.in.Tokens {
		if id < 0 || int(id) >= t.Dims[0] {
			c.fail("%s: token %d in row %d; the table has %d", path, id, i, t.Dims[0])
			return
		}
		for j := range k {
			at := int(id)*k + j
			if t.DType == meta.Int32 {
				experts[i*k+j] = int32(binary.LittleEndian.Uint32(t.Data[4*at:]))
			} else { // as unsigned numbers, negative ones are large
				experts[i*k+j] = int32(min(binary.LittleEndian.Uint64(t.Data[8*at:]), 1<<30))
			}
		}
	}
}

// routing assigns rows to experts.
type routing struct {
	experts []int32   // selected experts, row by row
	weights []float32 // their weights
	begin   []int32   // begin[e] to begin[e+1] is the range of expert e in
	rows    []int32   // rows by expert, in order
	shares  []float32 // the weights, by expert
	places  []int32   // the index of each share in weights
	hit     []int32   // selected experts, ascending
	left    []int32   // experts of a lot that are not computed yet
	guess   []int32   // experts that the next block will probably select, in its stack
	guessOf *meta.Module
	next    []int32
	divided divided   // empty in a context whose experts all run with their blocks
	gates   []float32 // of the rows, for the shared expert
	// toHeads and fromHeads are for MoE layers of attention heads, see byHead.
	toHeads, fromHeads []int32
}

func (r *routing) init(p *Program, l Limits) {
	n := l.Rows * p.topK
	if n == 0 {
		return
	}
	*r = routing{
		experts: make([]int32, n), weights: make([]float32, n),
		rows: make([]int32, n), shares: make([]float32, n), places: make([]int32, n),
		gates:   make([]float32, l.Rows),
		toHeads: make([]int32, n*p.mixedHeads), fromHeads: make([]int32, n*p.mixedHeads),
		begin: make([]int32, p.experts+1), next: make([]int32, p.experts), hit: make([]int32, 0, p.experts), left: make([]int32, 0, p.experts),
	}
}

// sort fills the per-expert slices from the first n choices. It reports whether all choices are
// below count.
func (r *routing) sort(n, topK, count int) bool {
	clear(r.begin[:count+1])
	for _, e := range r.experts[:n] {
		if e < 0 || int(e) >= count {
			return false
		}
		r.begin[e+1]++
	}
	r.hit = r.hit[:0]
	for e := range count {
		if r.begin[e+1] > 0 {
			r.hit = append(r.hit, int32(e))
		}
		r.begin[e+1] += r.begin[e]
	}
	copy(r.next, r.begin[:count])
	for i, e := range r.experts[:n] {
		at := r.next[e]
		r.next[e]++
		r.rows[at], r.shares[at], r.places[at] = int32(i/topK), r.weights[i], int32(i)
	}
	return true
}

// beyond returns the number of selected experts that are count or more.
func (r *routing) beyond(count int) int {
	n := 0
	for n < len(r.hit) && int(r.hit[len(r.hit)-1-n]) >= count {
		n++
	}
	return n
}

// lot returns the longest prefix of hit whose experts have at most rows rows together.
func (r *routing) lot(hit []int32, rows int) []int32 {
	n, first := 1, int(r.begin[hit[0]])
	for n < len(hit) && int(r.begin[hit[n]+1])-first <= rows {
		n++
	}
	return hit[:n]
}
