package nn

import (
	"slices"
	"testing"

	"github.com/heftai/heft/meta"
)

// TestHashesOfNGrams: n-grams end at the first token of a sequence and at the last end of text before their token, whose
// own number is not one.
func TestHashesOfNGrams(t *testing.T) {
	const end = 7
	g := &ngrams{spec: &meta.NGramSpec{Size: 3, Heads: 2, End: end}, earlier: 2}
	h := &hashed{multipliers: []int64{3, 1 << 40, -5}, sizes: []int64{11, 13, 17, 1 << 20}, offsets: []int64{0, 11, 24, 41}}
	want := func(id, before, earlier int64) []int32 {
		two := id*3 ^ before<<40
		three := two ^ earlier*-5
		mod := func(x, n int64) int32 { return int32((x%n + n) % n) }
		return []int32{mod(two, 11), mod(two, 13) + 11, mod(three, 17) + 24, mod(three, 1<<20) + 41}
	}
	for _, c := range []struct {
		id              int64
		state           []float32 // tokens before, as numbers from 1 on
		before, earlier int64
	}{
		{5, []float32{0, 0}, end, end},
		{5, []float32{4, 0}, 3, end},
		{5, []float32{4, 10}, 3, 9},
		{5, []float32{end + 1, 10}, end, end},
		{5, []float32{4, end + 1}, 3, end},
		{end, []float32{4, 10}, 3, 9},
	} {
		rows := make([]int32, 4)
		g.hash(rows, c.id, c.state, h)
		if w := want(c.id, c.before, c.earlier); !slices.Equal(rows, w) {
			t.Errorf("token %d after %v: got rows %v, want %v", c.id, c.state, rows, w)
		}
	}
}
