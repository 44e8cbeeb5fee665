package policy

import "math"

// A Trace is a recorded routing: what each layer of each pass requested.
type Trace struct {
	Layers []Layer
	Steps  []Step
}

// A Step is one request.
type Step struct {
	Layer    int
	Segments []int32
}

// A Kind names a policy of eviction.
type Kind string

// The kinds. Forecast is the policy of [New]. LRU evicts the least recently used segment. Belady
// evicts the segment that is requested last of all: it knows the future and bounds what others reach.
const (
	Forecast Kind = "forecast"
	LRU      Kind = "lru"
	Belady   Kind = "belady"
)

// Kinds lists the kinds.
func Kinds() []Kind { return []Kind{LRU, Forecast, Belady} }

// Replay counts the hits of a trace in a cache of capacity bytes that begins empty. capacity and ahead
// are as in [New].
func Replay(t *Trace, kind Kind, capacity int64, ahead int) Stats {
	c := newCache(t.Layers, capacity, ahead)
	switch kind {
	case LRU:
		c.order = &recency{cache: c, used: make([]float64, len(c.layerOf))}
	case Belady:
		c.order = newFuture(c, t)
	default:
		c.order = newForecast(c)
	}
	for _, s := range t.Steps {
		c.Request(s.Layer, s.Segments)
	}
	return c.stats
}

// recency is the order of LRU.
type recency struct {
	cache *Cache
	used  []float64
	clock float64
}

func (r *recency) request(layer int, segments []int32) {
	for _, s := range segments {
		r.clock++
		r.used[r.cache.layers[layer].first+s] = r.clock
	}
}

func (r *recency) value(id int32) float64 { return r.used[id] }

// future is the order of Belady.
type future struct {
	cache *Cache
	steps [][]int32 // by id: the steps that request it, from the next one on
	step  int32
}

func newFuture(c *Cache, t *Trace) *future {
	f := &future{cache: c, steps: make([][]int32, len(c.layerOf))}
	for i, s := range t.Steps {
		for _, e := range s.Segments {
			id := c.layers[s.Layer].first + e
			f.steps[id] = append(f.steps[id], int32(i))
		}
	}
	return f
}

func (f *future) request(layer int, segments []int32) {
	for _, s := range segments {
		id := f.cache.layers[layer].first + s
		f.steps[id] = f.steps[id][1:]
	}
	f.step++
}

func (f *future) value(id int32) float64 {
	if len(f.steps[id]) == 0 {
		return math.Inf(-1)
	}
	return -float64(f.steps[id][0])
}
