package policy

import "math/rand/v2"

// NewRandom is [New] for a cache that evicts at random. It is for tests: results must not depend
// on the decisions of a policy.
func NewRandom(layers []Layer, capacity int64, ahead int, seed uint64) *Cache {
	c := newCache(layers, capacity, ahead)
	c.order = random{rand.New(rand.NewPCG(seed, 1))}
	return c
}

type random struct{ *rand.Rand }

func (random) request(int, []int32)  {}
func (random) expect(int)            {}
func (r random) value(int32) float64 { return r.Float64() }
